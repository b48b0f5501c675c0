// The theme and the keys of every page.
import { isTyping } from "#js/core/dom.js";
import { nextFinding } from "#js/core/finding_keys.js";
import { watchScrollers } from "#js/core/scrollers.js";
import { say } from "#js/core/say.js";

const root = document.documentElement;
const keys = document.getElementById("keys");

watchScrollers();

document.getElementById("theme-toggle").addEventListener("click", () => {
  const isDark = getComputedStyle(root).colorScheme.startsWith("dark")
    || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("stepscope-theme", root.dataset.theme);
  } catch {
    // Storage is blocked, so the choice applies to this page only.
  }
  root.dispatchEvent(new Event("themechange"));
});
// On a narrow screen, the links are in a scrolling strip. After scrollIntoView, the first Tab would go on from that link.
const here = document.querySelector('.nav a[aria-current="page"]');
if (here) here.parentElement.scrollLeft = here.offsetLeft + here.offsetWidth - here.parentElement.clientWidth;
document.getElementById("keys-toggle").addEventListener("click", () => keys.showModal());

addEventListener("keydown", (event) => {
  const search = document.getElementById("search");
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && search) {
    event.preventDefault();
    search.focus();
    search.select();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape" && event.target === search) search.blur();
  if (isTyping(event)) return;
  if (event.key === "/" && search) search.focus();
  else if (event.key === "?") keys.showModal();
  else if (event.key === "," || event.key === "<") step("prev");
  else if (event.key === "." || event.key === ">") step("next");
  else if (event.key === "[") goToFinding(-1);
  else if (event.key === "]") goToFinding(1);
  else return;
  event.preventDefault();
});

// A page restored from the browser's cache shows the state in its address, not earlier input.
addEventListener("pageshow", (event) => {
  if (event.persisted) for (const form of document.querySelectorAll("main form")) form.reset();
});

function step(direction) {
  for (const link of document.querySelectorAll(`main a[rel="${direction}"]`)) {
    if (link.checkVisibility()) {
      link.click();
      return;
    }
  }
}

const FINDING = "stepscope-finding";

/** Opens the next or previous finding; the last one is stored because several can share a page. */
function goToFinding(direction) {
  const links = [...document.querySelectorAll("#finding-links a[href]")];
  if (!links.length) return say("No findings in this trace.");
  const last = Number(recall() ?? -1);
  const index = nextFinding(links.map((link) => link.href), location.href, last, direction);
  if (index === null) return say(direction > 0 ? "This is the last finding." : "This is the first finding.");
  keep(index);
  if (links[index].href === location.href) say(`Finding ${index + 1} of ${links.length}: ${links[index].textContent}`);
  else location.href = links[index].href;
}

function recall() {
  try {
    return sessionStorage.getItem(FINDING);
  } catch {
    return null;
  }
}

function keep(index) {
  try {
    sessionStorage.setItem(FINDING, index);
  } catch {
    // Storage is blocked, so findings that share a page count as one.
  }
}
