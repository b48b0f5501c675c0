// What every page has: theme, keys, the jump box.
import { isTyping } from "#js/dom.js";

const root = document.documentElement;
const keys = document.getElementById("keys");

document.getElementById("theme-toggle").addEventListener("click", () => {
  const isDark = getComputedStyle(root).colorScheme.startsWith("dark")
    || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("stepscope-theme", root.dataset.theme);
  } catch {
    // Forbidden storage: the choice holds for this page only.
  }
  root.dispatchEvent(new Event("themechange"));
});
document.getElementById("keys-toggle").addEventListener("click", () => keys.showModal());

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.getElementById("search");
  if (event.key === "Escape" && event.target === search) search.blur();
  if (isTyping(event)) return;
  if (event.key === "/" && search) search.focus();
  else if (event.key === "?") keys.showModal();
  else if (event.key === ",") step("prev");
  else if (event.key === ".") step("next");
  else return;
  event.preventDefault();
});

function step(direction) {
  for (const link of document.querySelectorAll(`main a[rel="${direction}"]`)) {
    if (link.checkVisibility()) {
      link.click();
      return;
    }
  }
}
