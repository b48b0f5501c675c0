// What a page must not do at any width: called in the page, each function returns a list of texts, one for each fault.
(() => {
  const SLACK = 1;
  const nameOf = (element) => {
    const classes = [...element.classList].map((name) => `.${name}`).join("");
    return `${element.localName}${element.id && `#${element.id}`}${classes} "${element.textContent.trim().replace(/\s+/g, " ").slice(0, 50)}"`;
  };
  const shown = (element) => element.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true });
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
  const cuts = (value) => value === "hidden" || value === "clip";
  const isTold = (element) => element.closest("[title]") || element.querySelector("[title]");

  /** Things wider than the window: the document itself, and what scrolls sideways although it is no table, code or list. */
  const wide = () => [document.documentElement, document.body, document.querySelector("main"), document.getElementById("panel")]
    .filter((element) => element && shown(element) && element.scrollWidth > element.clientWidth + SLACK)
    .map((element) => `${element.localName} is ${element.scrollWidth} px wide in ${element.clientWidth} px${widest(element)}`);

  function widest(frame) {
    const edge = frame.getBoundingClientRect().left + frame.clientWidth;
    const out = [...frame.querySelectorAll("*")].filter((element) => shown(element) && element.getBoundingClientRect().right > edge + SLACK && !inScroller(element, frame));
    return out.length ? `, for example ${nameOf(out.at(-1))}` : "";
  }

  function inScroller(element, frame) {
    for (let parent = element.parentElement; parent && parent !== frame; parent = parent.parentElement) {
      if (getComputedStyle(parent).overflowX !== "visible") return true;
    }
    return false;
  }

  /** Texts of which a part is hidden, without a title that shows the whole or a way to scroll. */
  const clipped = () => [...document.body.querySelectorAll("*")].filter((element) => {
    if (!element.textContent.trim() || element.closest("svg, .visually-hidden, .skip") || !shown(element) || isTold(element)) return false;
    const style = getComputedStyle(element);
    if (cuts(style.overflowX) && element.scrollWidth > element.clientWidth + SLACK) return element.clientWidth > SLACK;
    return cuts(style.overflowY) && element.scrollHeight > element.clientHeight + 4 && element.clientHeight > SLACK;
  }).map((element) => `${nameOf(element)} is ${element.scrollWidth} px wide in ${element.clientWidth} px, ${element.scrollHeight} px high in ${element.clientHeight} px`);

  /** Controls of the header, of the navigation and of the footer that lie over each other or outside of the window. */
  const overlapping = () => [".top", ".nav", ".foot"].flatMap((selector) => {
    const area = document.querySelector(selector);
    const controls = area ? [...area.querySelectorAll("a, button, input, select, li, span")].filter(shown) : [];
    const boxes = controls.map((element) => [element, element.getBoundingClientRect()]);
    const canScroll = area && getComputedStyle(area).overflowX === "auto";
    return boxes.flatMap(([one, box], i) => [
      ...(!canScroll && box.right > innerWidth + SLACK ? [`${nameOf(one)} leaves the window`] : []),
      ...boxes.slice(i + 1).filter(([other, its]) => !one.contains(other) && !other.contains(one) && overlap(box, its)).map(([other]) => `${nameOf(one)} lies over ${nameOf(other)}`),
    ]);
  });

  const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > SLACK && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > SLACK;

  return { wide: wide(), clipped: clipped(), overlapping: overlapping() };
})()
