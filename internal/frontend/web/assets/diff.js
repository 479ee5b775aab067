"use strict";
// The changed files of a task, and comments on their lines. A file is loaded when it is opened. All comments
// are on one state of the change: if the agent changes a file meanwhile, they are kept and not sent.
let shown = ""; // digest of the change that comments are on

function openFile(d) {
  tried(async () => {
    const q = new URLSearchParams({path: d.dataset.path, old: d.dataset.old});
    const e = d.querySelector("div");
    e.innerHTML = (await get(`/part/file/${at}?${q}`)).html; // the server has escaped it
    readOnly();
    const now = e.firstElementChild.dataset.digest;
    if (now !== $("files").dataset.digest) say("The agent has changed its files. Close and reopen Changed files.");
  });
}

// The event does not bubble.
document.querySelector('[data-part="changes"]').addEventListener("toggle", (e) => {
  const d = e.target.closest("details[data-path]");
  if (d?.open) openFile(d);
}, true);

// ── Comments ──

const drafts = $("drafts");

function comment(button) {
  const {path} = button.closest("details[data-path]").dataset;
  const line = Number(button.dataset.line);
  const old = Boolean(button.closest("td.old"));
  const digest = button.closest("[data-digest]").dataset.digest;
  const drafted = [...drafts.children].find((e) => e.dataset.path === path && Number(e.dataset.line) === line && e.dataset.old === String(old));
  if (drafted) {
    drafted.querySelector("textarea").focus();
    return;
  }
  if (drafts.children.length === 0) shown = digest;
  if (digest !== shown) {
    say("The comments below are on an earlier version of the change. Send or remove them first.");
    return;
  }
  const e = document.createElement("li");
  Object.assign(e.dataset, {path, line, old});
  const label = document.createElement("label");
  label.textContent = path + (line ? `:${line}` : "") + (old ? " (before the change)" : "");
  const quote = document.createElement("pre");
  quote.textContent = line ? button.closest("tr").querySelector("code").textContent : "";
  const text = document.createElement("textarea");
  text.rows = 2;
  text.required = true;
  label.append(quote, text);
  const remove = document.createElement("button");
  remove.type = "button";
  remove.textContent = "Remove";
  remove.addEventListener("click", () => { e.remove(); $("comments").hidden = drafts.children.length === 0; });
  e.append(label, remove);
  drafts.append(e);
  $("comments").hidden = false;
  text.focus();
}

document.addEventListener("click", (e) => {
  const b = e.target.closest("button.at");
  if (b && key) comment(b);
});

$("comments").addEventListener("submit", (e) => {
  e.preventDefault();
  const button = e.target.querySelector('[type="submit"]');
  tried(async () => {
    button.disabled = true;
    try {
      const comments = [...drafts.children].map((d) => ({
        path: d.dataset.path, line: Number(d.dataset.line), old: d.dataset.old === "true", text: d.querySelector("textarea").value,
      }));
      await post("/act/comment", {session, ref: task, digest: shown, comments});
      drafts.textContent = "";
      $("comments").hidden = true;
      say("Comments sent.");
    } finally {
      button.disabled = false;
    }
  });
});
