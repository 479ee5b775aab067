"use strict";
// What all pages share: clocks, requests that change something, and what is said to the user.
const $ = (id) => document.getElementById(id);
const key = localStorage.getItem("drover-key");

function say(text) { $("said").textContent = text; }

function readOnly() {
  for (const w of document.querySelectorAll(".writes")) w.hidden = !key;
  const note = $("readonly");
  if (note) note.hidden = Boolean(key);
}

function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

function clock(e) {
  const now = Date.now();
  for (const t of e.querySelectorAll("time")) {
    const d = t.dataset;
    const text = d.left ? `${span(d.left - now)} left` : span((d.until || now) - d.since);
    if (t.textContent !== text) t.textContent = text;
  }
}

setInterval(() => { if (!document.hidden) clock(document.body); }, 1000);

async function post(path, body) {
  const r = await fetch(path, {
    method: "POST", headers: {"Content-Type": "application/json", "X-Drover-Key": key}, body: JSON.stringify(body),
  });
  const answer = await r.json();
  if (!r.ok) throw new Error(answer.error);
  return answer;
}
