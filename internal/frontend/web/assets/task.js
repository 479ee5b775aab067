"use strict";
// The page of one task. Its output is a window of parts: what is too much leaves at the other end.
const {session, task} = document.body.dataset;
const at = `${encodeURIComponent(session)}/${encodeURIComponent(task)}`;
const mostParts = 24;
const output = $("output");
let stream = null;
let style = "";

// ── Output ──

function place(p, front) {
  const e = document.createElement("div");
  e.innerHTML = p.html; // the server has escaped it
  e.dataset.offset = p.offset;
  e.dataset.next = p.next;
  if (p.left) {
    const gap = document.createElement("i");
    gap.textContent = `… ${p.left} bytes skipped, load them with Earlier output …\n`;
    output.append(gap);
  }
  if (front) output.prepend(e);
  else output.append(e);
  while (output.children.length > mostParts) (front ? output.lastElementChild : output.firstElementChild).remove();
  const [first, last] = [output.querySelector("div"), output.querySelector("div:last-of-type")];
  $("place").textContent = p.size ? `bytes ${first.dataset.offset} to ${last.dataset.next} of ${p.size}` : "no output";
}

async function get(path) {
  const r = await fetch(path);
  const answer = await r.json();
  if (!r.ok) throw new Error(answer.error);
  return answer;
}

function leaveEnd() {
  stream?.close();
  stream = null;
  $("link").textContent = "not following";
}

async function load(offset, clear) {
  leaveEnd();
  if (clear) {
    output.textContent = "";
    style = "";
  }
  const p = await get(`/output/${at}?offset=${offset}&style=${encodeURIComponent(style)}`);
  style = p.style;
  place(p, false);
  return p;
}

async function tried(f) {
  try {
    say("");
    await f();
  } catch (e) {
    say(e.message);
  }
}

$("begin").addEventListener("click", () => tried(async () => { await load(0, true); output.scrollTop = 0; }));
$("end").addEventListener("click", follow);
$("earlier").addEventListener("click", () => tried(async () => {
  leaveEnd();
  const first = Number(output.querySelector("div")?.dataset.offset ?? 0);
  if (first === 0) return;
  const from = Math.max(0, first - 65536);
  const p = await get(`/output/${at}?offset=${from}`);
  const height = output.scrollHeight;
  if (p.next > first) {
    output.textContent = "";
    place(p, false);
  } else {
    place(p, true);
    output.scrollTop += output.scrollHeight - height;
  }
}));
// At the end of what is shown, more is loaded, unless the end is followed.
let loading = false;
output.addEventListener("scroll", () => {
  if (stream || loading || output.scrollTop + output.clientHeight < output.scrollHeight - 200) return;
  const next = output.querySelector("div:last-of-type")?.dataset.next;
  if (!next) return;
  loading = true;
  tried(() => load(next, false)).finally(() => { loading = false; });
});

// How the task stands: the graph of a workflow stays where it was scrolled to, and its list open.
function head(html) {
  const h = $("head");
  const [open, left] = [h.querySelector("details")?.open, h.querySelector(".scrolls")?.scrollLeft];
  h.innerHTML = html; // the server has escaped it
  if (open) h.querySelector("details").open = true;
  if (left) h.querySelector(".scrolls").scrollLeft = left;
  clock(h);
}

function follow() {
  leaveEnd();
  output.textContent = "";
  style = "";
  stream = new EventSource(`/follow/${at}`);
  stream.addEventListener("open", () => { $("link").textContent = "following"; });
  stream.addEventListener("error", () => { $("link").textContent = "connection lost: trying again"; });
  stream.addEventListener("output", (e) => {
    const below = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
    place(JSON.parse(e.data), false);
    if (below) output.scrollTop = output.scrollHeight;
  });
  stream.addEventListener("head", (e) => head(JSON.parse(e.data)));
  stream.addEventListener("end", () => { leaveEnd(); $("link").textContent = "ended"; });
}

// ── Search ──

let next = 0;
const once = 64 * 1024 * 1024; // bytes that are looked through before somebody asks for more

async function search(from) {
  const text = $("text").value;
  if (!text) return;
  const end = from + once;
  do {
    await searchPart(text, from);
    from = next;
  } while (text === $("text").value && !$("more").hidden && next < end && $("found").children.length === 0);
}

async function searchPart(text, from) {
  const m = await get(`/search/${at}?offset=${from}&text=${encodeURIComponent(text)}`);
  for (const f of m.found) {
    const li = document.createElement("li");
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = f.line;
    b.addEventListener("click", () => tried(async () => { await load(f.offset, true); output.scrollTop = 0; }));
    li.append(b);
    $("found").append(li);
  }
  next = m.next;
  $("more").hidden = next >= m.size;
  $("searched").textContent = `${$("found").children.length} found in ${next} of ${m.size} bytes`;
}
$("search").addEventListener("submit", (e) => {
  e.preventDefault();
  $("found").textContent = "";
  tried(() => search(0));
});
$("more").addEventListener("click", () => tried(() => search(next)));

// ── What the user does ──

function receipt(r) {
  const out = $("receipt");
  out.textContent = "";
  const p = (text, name) => {
    const e = document.createElement("p");
    e.textContent = text;
    e.className = name || "";
    out.append(e);
  };
  for (const s of r.stopped || []) {
    const signals = (s.signals || []).map((x) => `${x.signal} after ${x.after_ms} ms`).join(", ");
    p(`${s.task_id}: ${s.status} after ${s.ended_after_ms} ms${signals ? ` (${signals})` : ""}`);
  }
  for (const s of r.survivors || []) p(`survived: process ${s.pid} ${s.command}: ${s.why}`, "failed");
  if (!(r.survivors || []).length) p("No processes are left.");
}

document.addEventListener("click", (e) => {
  const b = e.target.closest("[data-act]");
  if (!b) return;
  tried(async () => {
    b.disabled = true;
    try {
      const body = {session, ref: task};
      if (b.dataset.act === "send") body.text = $("message").value;
      const answer = await post("/act/" + b.dataset.act, body);
      if (b.dataset.act === "send") $("message").value = "";
      if (b.dataset.act === "stop") receipt(answer);
    } finally {
      b.disabled = false;
    }
  });
});
$("message").addEventListener("keydown", (e) => { if (e.key === "Enter") document.querySelector('[data-act="send"]').click(); });

for (const d of document.querySelectorAll("details[data-part]")) {
  d.addEventListener("toggle", () => {
    if (!d.open) return;
    tried(async () => {
      d.querySelector("div").innerHTML = (await get(`/part/${d.dataset.part}/${at}`)).html;
      clock(d);
    });
  });
}

readOnly();
clock(document.body);
follow();
