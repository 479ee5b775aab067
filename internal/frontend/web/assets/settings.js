"use strict";
// Ends the pairing of this browser, or of another one.
async function end(path, body) {
  try {
    await post(path, body);
    return true;
  } catch (error) {
    say(error.message);
    return false;
  }
}

$("logout")?.addEventListener("click", async () => {
  if (!await end("/logout", {})) return;
  localStorage.removeItem("drover-key");
  location.replace("/");
});
for (const b of document.querySelectorAll("[data-revoke]")) {
  b.addEventListener("click", async () => { if (await end("/revoke", {id: b.dataset.revoke})) location.reload(); });
}
readOnly();
