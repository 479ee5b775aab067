"use strict";
// Sends the settings of a session that were changed here, and only those.
$("form")?.addEventListener("submit", async (e) => {
  e.preventDefault();
  const changed = {};
  for (const f of e.target.elements) {
    if (!f.name || f.value === f.dataset.was) continue;
    if (f.name === "effort") changed.thinking = {effort: f.value};
    else changed[f.name] = f.value;
  }
  if (Object.keys(changed).length === 0) {
    say("No changes.");
    return;
  }
  try {
    const now = await post("/act/configure", {session: document.body.dataset.session, settings: changed});
    const values = {model: now.model, permission_mode: now.permission_mode, effort: now.thinking.effort || "", session_mode: now.session_mode};
    for (const f of e.target.elements) if (f.name) f.value = f.dataset.was = values[f.name];
    say("Saved.");
  } catch (error) {
    say(error.message);
  }
});

readOnly();
for (const f of $("form")?.elements ?? []) f.disabled = !key;
