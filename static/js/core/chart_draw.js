// Stateless drawing functions for rows over time on a 2D canvas.
import { AXIS, GAP, MINIMAP, ticks } from "#js/core/chart_model.js";
import { formatTick } from "#js/core/format.js";

export const GUTTER = 64;
/** Theme colours that these functions use. */
export const CHART_COLOURS = ["bg", "bg-2", "line", "line-2", "text", "muted", "accent", "critical", "bar-text", "span", "call"];

export function xOf(ns, view, width) {
  return GUTTER + ((ns - view.start) / (view.end - view.start)) * (width - GUTTER);
}

export function nsOf(x, view, width) {
  return view.start + ((x - GUTTER) / (width - GUTTER)) * (view.end - view.start);
}

/** Draws the axis, the minimap and the rows; `strips` are those of drawMinimap, drawRow(row) is clipped to its row. */
export function drawChart(ctx, picture, strips, drawRow) {
  const { width, height, rows, colours } = picture;
  drawAxis(ctx, picture);
  drawMinimap(ctx, picture, strips);
  for (const row of rows) {
    if (row.label) {
      ctx.fillStyle = colours.muted;
      ctx.fillText(row.label, 2, row.y + row.height / 2, GUTTER - 6);
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(GUTTER, row.y, width - GUTTER, row.height);
    ctx.clip();
    drawRow(row);
    ctx.restore();
  }
  ctx.fillStyle = colours.line;
  ctx.fillRect(GUTTER - 1, 0, 1, height);
}

const WHOLE = [{ start: 0, end: Infinity }];

/** Draws the ticks; each of `parts` counts from its own start. */
function drawAxis(ctx, { width, height, colours, view, data, parts = WHOLE }) {
  if (data.untimed) return;
  for (const part of parts) drawTicks(ctx, { width, height, colours, view }, part);
  ctx.fillStyle = colours.line;
  ctx.fillRect(0, MINIMAP + AXIS, width, 1);
}

function drawTicks(ctx, { width, height, colours, view }, part) {
  const [start, end] = [Math.max(view.start, part.start), Math.min(view.end, part.end)];
  if (start >= end) return;
  const share = (end - start) / (view.end - view.start);
  const { step, values } = ticks({ start: start - part.start, end: end - part.start }, (share * (width - GUTTER)) / 110);
  const right = Math.min(width, xOf(end, view, width));
  for (const value of values) {
    const x = Math.round(xOf(value + part.start, view, width));
    ctx.fillStyle = colours["line-2"];
    ctx.fillRect(x, MINIMAP, 1, height - MINIMAP);
    ctx.fillStyle = colours.muted;
    const label = formatTick(value, step);
    if (x + 4 + ctx.measureText(label).width <= right) ctx.fillText(label, x + 4, MINIMAP + AXIS / 2);
  }
}

/** Draws the minimap on top with a frame around the view; `strips`: [{y, height, intervals, colour(interval)}]. */
function drawMinimap(ctx, { width, colours, bounds, view }, strips) {
  const at = (ns) => xOf(ns, bounds, width);
  const bottom = MINIMAP - GAP;
  ctx.fillStyle = colours["bg-2"];
  ctx.fillRect(GUTTER, 0, width - GUTTER, bottom);
  for (const { y, height, intervals, colour } of strips) {
    let right = -1;
    for (const one of intervals) {
      const x = at(one.start);
      if (at(one.end) <= right) continue;
      ctx.fillStyle = colours[colour(one)];
      right = Math.max(x + 1, at(one.end));
      ctx.fillRect(x, y, right - x, height);
    }
  }
  ctx.fillStyle = colours.muted;
  ctx.fillText("all", 2, bottom / 2);
  const [left, right] = [at(view.start), at(view.end)];
  ctx.globalAlpha = 0.55;
  ctx.fillStyle = colours.bg;
  ctx.fillRect(GUTTER, 0, left - GUTTER, bottom);
  ctx.fillRect(right, 0, width - right, bottom);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = colours.accent;
  ctx.strokeRect(Math.round(left) + 0.5, 0.5, Math.max(2, Math.round(right - left) - 1), bottom - 1);
}

/** Returns the bar of an interval, with a gap after it if it is wider than `least`. */
export function barOf({ start, end }, { view, width }, least = 3) {
  const left = Math.max(xOf(start, view, width), GUTTER);
  const right = Math.min(xOf(end, view, width), width);
  return { left, size: Math.max(1, right - left - (right - left > least ? 1 : 0)) };
}

const widths = new Map();

/** Draws the name truncated to its bar, or nothing if fewer than three letters fit. */
export function drawName(ctx, name, left, size, lane, colours, colour = "bar-text") {
  if (size < 28) return;
  let text = name;
  let wide = widths.get(text);
  if (wide === undefined) {
    wide = ctx.measureText(text).width;
    if (widths.size > 5000) widths.clear();
    widths.set(text, wide);
  }
  if (wide > size - 8) {
    const fits = Math.floor((name.length * (size - 14)) / wide);
    if (fits < 3) return;
    text = `${name.slice(0, fits)}…`;
  }
  ctx.fillStyle = colours[colour];
  ctx.fillText(text, left + 4, lane.y + lane.height / 2 + 0.5, size - 4);
}

/** Draws what follows the pointer on its own canvas, so that the chart below is not redrawn. */
export function drawPointer(ctx, { width, height, colours, x, label }) {
  ctx.clearRect(0, 0, width, height);
  if (x === null || x < GUTTER) return;
  ctx.fillStyle = colours.muted;
  ctx.fillRect(Math.round(x), MINIMAP, 1, height - MINIMAP);
  ctx.font = `11px ${colours.font}`;
  ctx.textBaseline = "middle";
  const size = ctx.measureText(label).width + 10;
  const left = Math.min(x, width - size);
  ctx.fillStyle = colours.text;
  ctx.fillRect(left, MINIMAP + 2, size, AXIS - 4);
  ctx.fillStyle = colours.bg;
  ctx.fillText(label, left + 5, MINIMAP + AXIS / 2);
}
