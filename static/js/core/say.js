// A short message at the bottom of the page, which disappears by itself.
const SHOWN_MS = 2500;
let quiet = 0;

export function say(text) {
  const box = document.getElementById("said");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(quiet);
  quiet = setTimeout(() => (box.hidden = true), SHOWN_MS);
}
