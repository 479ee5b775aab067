"use strict";
// Takes over the charts that have changed, as long as they are looked at. What is open stays so.
const used = $("used");
let stream = null;

function take(html) {
  const opened = [...used.querySelectorAll("details")].map((d) => d.open);
  used.innerHTML = html; // the server has escaped it
  used.querySelectorAll("details").forEach((d, n) => { d.open = opened[n] ?? false; });
}

function look() {
  if (document.hidden) {
    stream?.close();
    stream = null;
    return;
  }
  if (stream) return;
  stream = new EventSource("/stream?charts=" + encodeURIComponent(document.body.dataset.period));
  stream.addEventListener("open", () => { $("link").textContent = ""; });
  stream.addEventListener("error", () => { $("link").textContent = "connection lost: trying again"; });
  stream.addEventListener("use", (e) => take(JSON.parse(e.data)));
}

document.addEventListener("visibilitychange", look);
look();
