// A panel takes the keyboard focus when the reader opens it, and gives it back when it closes.

/** `fallback()` returns the element that gets the focus if the one that had it before is gone. */
export function panelFocus(panel, fallback) {
  let opener = null;
  const holds = () => panel.contains(document.activeElement);
  panel.tabIndex = -1;
  return {
    take() {
      if (!holds() && document.activeElement !== document.body) opener = document.activeElement;
      panel.focus({ preventScroll: true });
    },
    /** Hides the panel with `hide`. */
    giveBack(hide) {
      const had = holds();
      const next = opener?.isConnected ? opener : null;
      const other = fallback();
      opener = null;
      hide();
      if (had) (next ?? other ?? document.getElementById("main"))?.focus({ preventScroll: true });
    },
  };
}
