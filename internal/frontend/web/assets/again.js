"use strict";
// Loads the page again every few seconds while it is looked at, and takes over what has changed.
// What is open or has the focus stays so.
const every = 3000;

async function again() {
  if (document.hidden) return;
  try {
    const r = await fetch(location.href);
    if (!r.ok) throw new Error(`the server says ${r.status}`);
    const now = new DOMParser().parseFromString(await r.text(), "text/html").querySelector("main");
    const was = document.querySelector("main");
    const opened = [...was.querySelectorAll("details")].map((d) => d.open);
    now.querySelectorAll("details").forEach((d, n) => { d.open = opened[n] ?? false; });
    if (now.innerHTML !== was.innerHTML) {
      const links = [...was.querySelectorAll("a")];
      const focus = links.indexOf(document.activeElement);
      const scrolled = [...was.querySelectorAll(".scrolls")].map((e) => e.scrollLeft);
      was.replaceWith(document.adoptNode(now));
      now.querySelectorAll(".scrolls").forEach((e, n) => { e.scrollLeft = scrolled[n] ?? 0; });
      if (focus >= 0) now.querySelectorAll("a")[focus]?.focus();
      clock(now);
    }
    $("link").textContent = "";
  } catch (e) {
    $("link").textContent = `not up to date: ${e.message}`;
  }
}

clock(document.body);
setInterval(again, every);
