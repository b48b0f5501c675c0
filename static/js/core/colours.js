// Theme colours for a canvas; a probe element resolves `light-dark()`.

export function coloursOf(element, names) {
  const probe = document.createElement("span");
  probe.hidden = true;
  element.append(probe);
  const colours = {};
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    colours[name] = getComputedStyle(probe).color;
  }
  colours.font = getComputedStyle(element).fontFamily;
  probe.remove();
  return colours;
}

/** Calls `recolour` whenever the theme changes, by the button or by the system. */
export function onTheme(recolour) {
  document.documentElement.addEventListener("themechange", recolour);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
}

/** Sets the size of a canvas, sharp on every screen. */
export function sizeCanvas(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  return ctx;
}
