// The panel's left edge can be dragged; its width is remembered.
const KEY = "stepscope-panel";
const LEAST = 320;

export function makeResizable(panel) {
  const set = (width) => document.body.style.setProperty("--panel", `${Math.round(width)}px`);
  const stored = Number(recall());
  if (stored >= LEAST) set(Math.min(stored, innerWidth * 0.7));
  panel.addEventListener("pointerdown", (event) => {
    if (event.clientX - panel.getBoundingClientRect().left > 6) return;
    event.preventDefault();
    panel.setPointerCapture(event.pointerId);
    const move = ({ clientX }) => set(Math.min(Math.max(innerWidth - clientX, LEAST), innerWidth * 0.7));
    panel.addEventListener("pointermove", move);
    panel.addEventListener(
      "pointerup",
      () => {
        panel.removeEventListener("pointermove", move);
        keep(panel.offsetWidth);
      },
      { once: true },
    );
  });
}

function recall() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function keep(width) {
  try {
    localStorage.setItem(KEY, width);
  } catch {
    // Storage is blocked, so the width applies to this page only.
  }
}
