"use strict";
// Keeps the page as the server has it. Texts of tasks are in the fragments that the server has
// escaped, and no script of them can run: the policy of the page loads scripts of this server only.
const lists = {needs: $("needs"), tree: $("tree")};
const html = new Map(); // what each element was made of

// A link that pairs was opened in a browser that is paired already.
if (new URLSearchParams(location.hash.slice(1)).has("pair")) history.replaceState(null, "", "/");

// ── What changes ──

function draw(piece) {
  let e = $(piece.id);
  if (!e) {
    e = document.createElement(piece.list === "tree" ? "tr" : "li");
    e.id = piece.id;
    lists[piece.list].append(e);
  }
  const moved = e.dataset.key !== piece.key;
  e.dataset.key = piece.key;
  if (html.get(piece.id) !== piece.html) {
    const typed = keep(e);
    html.set(piece.id, piece.html);
    e.innerHTML = piece.html;
    restore(e, typed);
    mark(e);
  }
  return moved;
}

// What the user has typed, and where, stays when its element is drawn again.
function keep(e) {
  return [...e.querySelectorAll("[data-field]")].map((f) => ({
    name: f.dataset.field, value: f.value, focus: f === document.activeElement, from: f.selectionStart, to: f.selectionEnd,
  }));
}

function restore(e, typed) {
  for (const t of typed) {
    const f = e.querySelector(`[data-field="${t.name}"]`);
    if (!f || t.value === f.value && !t.focus) continue;
    f.value = t.value;
    if (t.focus) {
      f.focus();
      f.setSelectionRange(t.from, t.to);
    }
  }
}

function mark(e) {
  for (const w of e.querySelectorAll(".writes")) w.hidden = !key;
  const name = e.querySelector("td.name");
  if (name) e.classList.toggle("over", /st-(completed|failed|killed)/.test(name.className));
  clock(e);
}

// Only elements that stand in the wrong place are moved.
function order(list) {
  const wanted = [...list.children].sort((a, b) => (a.dataset.key < b.dataset.key ? -1 : a.dataset.key > b.dataset.key ? 1 : 0));
  let at = list.firstElementChild;
  for (const e of wanted) {
    if (e === at) at = at.nextElementSibling;
    else list.insertBefore(e, at);
  }
}

function change(c) {
  const needs = lists.needs.textContent;
  if (c.reset) {
    const there = new Set((c.set || []).map((p) => p.id));
    for (const l of Object.values(lists)) for (const e of [...l.children]) if (!there.has(e.id)) drop(e.id);
  }
  for (const id of c.gone || []) drop(id);
  let moved = false;
  for (const p of c.set || []) {
    if (p.list === "tree") waiting.set(p.id, p);
    else moved = draw(p) || moved;
  }
  if (moved) order(lists.needs);
  if (needs !== lists.needs.textContent) shifted = performance.now();
  count();
  drawWaiting();
}

// What changes in the tree is drawn in slices, so that the page answers also when thousands of tasks change. Of a task
// that changes again before it is drawn only the last state is.
const waiting = new Map(); // pieces to draw, by ID
const slice = 8; // ms of a frame
const orderEvery = 250; // ms, while slices follow each other
let scheduled = false;
let unordered = false;
let ordered = 0;

function drawWaiting() {
  if (scheduled || waiting.size === 0) return;
  scheduled = true;
  if (document.hidden) setTimeout(drawSlice, 50); // no frames come
  else requestAnimationFrame(drawSlice);
}

function drawSlice() {
  scheduled = false;
  const begin = performance.now();
  for (const [id, p] of waiting) {
    waiting.delete(id);
    if (draw(p)) unordered = true;
    hide($(id));
    if (performance.now() - begin > slice) break;
  }
  if (unordered && (waiting.size === 0 || begin - ordered > orderEvery)) {
    order(lists.tree);
    unordered = false;
    ordered = begin;
  }
  count();
  drawWaiting();
}

function drop(id) {
  html.delete(id);
  waiting.delete(id);
  $(id)?.remove();
}

function count() {
  const n = lists.needs.children.length;
  $("count").textContent = n ? `(${n})` : "";
  $("nothing").hidden = n > 0;
  $("empty").hidden = lists.tree.children.length > 0;
  document.title = n ? `(${n}) Drover` : "Drover";
}

// A task that lacks the text that is looked for is hidden; sessions stay.
function hide(e) {
  const text = $("find").value.toLowerCase();
  const hidden = text !== "" && !e.querySelector(".session") && !e.textContent.toLowerCase().includes(text);
  if (e.hidden !== hidden) e.hidden = hidden;
}

function filter() {
  lists.tree.classList.toggle("all", $("ended").checked);
  for (const e of lists.tree.children) hide(e);
}

// ── What the user does ──

const settle = 500; // ms for which nothing of the list moves before an answer counts: none hits what came under the pointer
let shifted = -settle;

async function act(button) {
  if (button.dataset.act === "decide" && performance.now() - shifted < settle) {
    say("The list has just changed. Check it, then answer.");
    return;
  }
  const article = button.closest("article");
  const b = button.dataset;
  const body = {session: article.dataset.session, ref: b.ref || article.dataset.ref};
  const field = (name) => article.querySelector(`[data-field="${name}"]`)?.value ?? "";
  try {
    if (b.act === "decide") {
      body.digest = article.dataset.digest;
      body.allow = b.allow === "true";
      if (!body.allow) body.reason = field("reason");
      else if (article.querySelector('[data-field="input"]')) body.input = JSON.parse(field("input"));
      else body.text = b.text || field("text");
      if (b.always) body.always = b.always;
    }
    if (b.act === "send") body.text = field("text");
    button.disabled = true;
    await post("/act/" + b.act, body);
    say("");
  } catch (e) {
    say(e.message);
  } finally {
    button.disabled = false;
  }
}

document.addEventListener("click", (e) => {
  const button = e.target.closest("[data-act]");
  if (button) act(button);
});
document.addEventListener("keydown", (e) => {
  if (e.key !== "Enter" || e.target.tagName !== "INPUT" || !e.target.dataset.field) return;
  const buttons = [...e.target.closest("article").querySelectorAll("[data-act]")];
  const denies = e.target.dataset.field === "reason";
  const button = buttons.find((b) => !b.dataset.text && !b.dataset.always && (b.dataset.allow === "false") === denies);
  if (button) act(button);
});
$("find").addEventListener("input", filter);
$("ended").addEventListener("change", filter);

// A link is made when it is wanted: it pairs whoever opens it first.
async function link(title, readOnly) {
  const {path, code} = await post("/link", {read_only: readOnly});
  const e = document.createElement("div");
  e.innerHTML = code ?? ""; // the server has drawn it
  const [h, p] = [document.createElement("h3"), document.createElement("p")];
  h.textContent = title;
  p.textContent = location.origin + path;
  e.prepend(h);
  e.append(p);
  return e;
}

$("add").addEventListener("click", async () => {
  try {
    $("links").replaceChildren(await link("To read only", true), await link("To read and answer", false));
    $("device").hidden = false;
    $("device-title").focus();
    say("");
  } catch (e) {
    say(e.message);
  }
});
$("close").addEventListener("click", () => {
  $("links").textContent = "";
  $("device").hidden = true;
  $("add").focus();
});

// ── Begin ──

readOnly();
clock(document.body);
for (const l of Object.values(lists)) for (const e of l.children) mark(e);
count();
filter();

const stream = new EventSource("/stream?after=" + encodeURIComponent(document.body.dataset.mark));
stream.addEventListener("open", () => { $("link").textContent = "connected"; });
stream.addEventListener("error", () => {
  $("link").textContent = "connection lost: trying again";
  if (stream.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 5000);
});
stream.addEventListener("change", (e) => change(JSON.parse(e.data)));
