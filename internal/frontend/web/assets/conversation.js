"use strict";
// The conversation of a session with its main agent. All texts are put in as texts.
const {session} = document.body.dataset;
const talk = $("talk");
const most = 2000; // pieces that are kept
const names = {begin: "Prompt", mail: "Message", text: "", thinking: "Thinking", call: "Call", result: "Result", note: "Note"};

function piece(p) {
  if (p.kind === "open") return;
  if (p.kind === "gap") p.text = "Earlier parts are no longer kept.";
  if (p.kind === "end" && !p.error) return;
  let e = $("p" + p.n);
  const below = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 40;
  if (!e) {
    e = document.createElement("div");
    e.id = "p" + p.n;
    e.className = "piece " + p.kind;
    const head = [names[p.kind], p.who].filter(Boolean).join(": ");
    if (head) {
      const b = document.createElement("b");
      b.textContent = head;
      e.append(b);
    }
    e.append(document.createElement("pre"));
    talk.append(e);
    if (talk.children.length > most) talk.firstElementChild.remove();
  }
  const pre = e.querySelector("pre");
  if (p.from) pre.append(p.text || "");
  else pre.textContent = p.text || "";
  if (p.cut) pre.append(`\n… ${p.cut} more bytes`);
  if (p.error) {
    const f = document.createElement("p");
    f.className = "failed";
    f.textContent = p.error;
    e.append(f);
  }
  if (below) talk.scrollTop = talk.scrollHeight;
}

const stream = new EventSource("/watch/" + encodeURIComponent(session));
stream.addEventListener("open", () => { $("link").textContent = "connected"; });
stream.addEventListener("error", () => { $("link").textContent = "connection lost: trying again"; });
stream.addEventListener("piece", (e) => piece(JSON.parse(e.data)));
stream.addEventListener("end", () => { stream.close(); $("link").textContent = "the session has ended"; });

async function tried(f) {
  try {
    say("");
    await f();
  } catch (e) {
    say(e.message);
  }
}
$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  tried(async () => {
    await post("/act/prompt", {session, text: $("prompt").value});
    $("prompt").value = "";
  });
});
$("prompt").addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    $("form").requestSubmit();
  }
});
$("interrupt").addEventListener("click", () => tried(() => post("/act/interrupt", {session, ref: session})));
readOnly();
