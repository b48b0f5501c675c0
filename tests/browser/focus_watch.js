// Notes which controls of a page get the focus, by their place in the document, and which of them do not show it.
(() => {
  const CONTROLS = "a[href], button, input, select, textarea, summary, [tabindex]";
  const inTurn = (one) => one.tabIndex >= 0 && !one.disabled && one.type !== "hidden" && one.checkVisibility({ visibilityProperty: true });
  const controls = [...document.querySelectorAll(CONTROLS)].filter(inTurn);
  const unseen = [];
  let visited = [];

  const hasRing = (one) => {
    const { outlineStyle, outlineWidth } = getComputedStyle(one);
    const drawn = one instanceof SVGElement && one.querySelector("rect");
    return (outlineStyle !== "none" && parseFloat(outlineWidth) > 0) || (drawn && parseFloat(getComputedStyle(drawn).strokeWidth) > 1);
  };
  const isOutside = ({ top, bottom, left, right, width }) => bottom < 0 || top > innerHeight || right < 0 || left > innerWidth || !width;

  addEventListener("focusin", ({ target }) => {
    visited.push(controls.indexOf(target));
    const wrong = !hasRing(target) ? "it has no outline" : isOutside(target.getBoundingClientRect()) ? "it is out of the window" : null;
    if (wrong) unseen.push(`${target.outerHTML.slice(0, 120)}: ${wrong}`);
  });

  window.focusWatch = {
    controls,
    unseen,
    take: () => visited.splice(0),
    goTo(index) {
      controls[index].focus();
      visited = [];
      return index;
    },
    /** A page that gives the focus to something when it loads starts there. Returns the first control in turn. */
    startAtTop: () => (document.querySelector("[autofocus]") ? focusWatch.goTo(0) + 1 : 0),
    /** Gives the focus to the last control before the content of the page. Returns the next one in turn. */
    startAtMain: () => focusWatch.goTo(controls.findIndex((one) => one.closest("main")) - 1) + 1,
  };
})()
