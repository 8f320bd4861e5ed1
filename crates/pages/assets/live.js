// Renews what the page shows while somebody looks at it. Everything can be read without.
"use strict";
const EVERY_MS = 5000;
const button = document.querySelector("[data-live]");
let held = false;

// Whoever reads with the keyboard, has opened something or marks text is not disturbed.
function busy() {
  const main = document.querySelector("main");
  return held || document.hidden || main.contains(document.activeElement)
    || main.querySelector("details[open]") || String(getSelection()) !== "";
}

async function renew() {
  if (busy()) return;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.redirected) return location.reload();
    if (!answer.ok || busy()) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of ["main", "[data-made]"]) {
      document.querySelector(part).replaceWith(page.querySelector(part));
    }
  } catch {
    // The service is away: what was seen last stays, and is asked for again.
  }
}

if (button) {
  button.hidden = false;
  button.addEventListener("click", () => {
    held = !held;
    button.textContent = held ? "Go on" : "Hold still";
  });
  setInterval(renew, EVERY_MS);
}
