"use strict";
// Pairs this browser: with the code of the link that was opened, or with the token that is entered.
const said = document.getElementById("said");

async function pair(code) {
  said.textContent = "";
  try {
    const r = await fetch("/pair", {
      method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({code}),
    });
    const answer = await r.json();
    if (!r.ok) throw new Error(answer.error);
    if (answer.key) localStorage.setItem("drover-key", answer.key);
    else localStorage.removeItem("drover-key");
    location.replace("/");
  } catch (e) {
    said.textContent = e.message;
  }
}

document.getElementById("form").addEventListener("submit", (e) => {
  e.preventDefault();
  pair(document.getElementById("code").value.trim());
});

const code = new URLSearchParams(location.hash.slice(1)).get("pair");
if (code) {
  history.replaceState(null, "", "/");
  pair(code);
}
