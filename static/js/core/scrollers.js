// A region that scrolls and has nothing to focus inside takes the focus itself, so that arrow keys scroll it.
import { debounce } from "#js/core/dom.js";

const REGIONS = ".scroll, .code, pre";
const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
const WAIT_MS = 100;

export function focusScrollers() {
  for (const region of document.querySelectorAll(REGIONS)) {
    const scrolls = region.scrollWidth > region.clientWidth || region.scrollHeight > region.clientHeight;
    const isOurs = "scrolls" in region.dataset;
    if (scrolls && !isOurs && !region.hasAttribute("tabindex") && !region.querySelector(FOCUSABLE)) {
      region.tabIndex = 0;
      region.dataset.scrolls = "";
    } else if (!scrolls && isOurs) {
      region.removeAttribute("tabindex");
      delete region.dataset.scrolls;
    }
  }
}

/** Keeps to it while the window is resized and the page changes. */
export function watchScrollers() {
  const again = debounce(focusScrollers, WAIT_MS);
  addEventListener("resize", again);
  addEventListener("toggle", again, true);
  new MutationObserver(again).observe(document.body, { childList: true, subtree: true });
  focusScrollers();
}
