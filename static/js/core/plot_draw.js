// Drawing functions for plots. `plot` has colours, width, height, inner, view, scale, count, data, x(index) and y(value).
import { HEALTH } from "#js/core/health.js";
import { drawClass } from "#js/core/health_draw.js";
import { thinned } from "#js/core/plot_model.js";

export const GUTTER = 72, RIGHT = 16, TOP = 22, FLOOR = 26, LABEL = 76;
const DASHES = { solid: [], dashed: [6, 4], dotted: [1.5, 3] };
const SIGN = 11;
const MOST_DOTS = 300;

const knownAt = ({ values }, index) => values[index] ?? null;

export function drawAxes(ctx, { colours, height, inner, scale, data }) {
  const bottom = height - FLOOR;
  ctx.textAlign = "right";
  for (const { value, label } of scale.ticks) {
    const y = Math.round(TOP + scale.at(value));
    ctx.fillStyle = colours["line-2"];
    ctx.fillRect(GUTTER, y, inner, 1);
    ctx.fillStyle = colours.muted;
    ctx.fillText(label, GUTTER - 8, y);
  }
  ctx.fillStyle = colours.muted;
  if (data.log && data.series.some(({ values }) => values.includes(0))) ctx.fillText("0", GUTTER - 8, bottom);
  ctx.textAlign = "left";
  ctx.fillStyle = colours.line;
  ctx.fillRect(GUTTER, TOP, 1, bottom - TOP);
  ctx.fillRect(GUTTER, bottom, inner, 1);
}

/** Draws names of points below the axis; `room` is the width of each in pixels. */
export function drawLabels(ctx, { colours, width, height, x }, labels, room) {
  ctx.fillStyle = colours.muted;
  for (const { index, text } of labels) {
    const name = short(ctx, text, room);
    const wide = ctx.measureText(name).width;
    ctx.fillRect(Math.round(x(index)), height - FLOOR, 1, 4);
    ctx.fillText(name, Math.min(x(index) - wide / 2, width - wide - 2), height - FLOOR + 14);
  }
}

/** Truncates `text` to `room` pixels. */
function short(ctx, text, room) {
  let shown = text;
  while (shown.length > 4 && ctx.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  return shown;
}

/** Draws a horizontal line; its label is drawn last, on a background, because curves may run behind it. */
export function drawLimit(ctx, { colours, width, y }, { value, label }, isAbove) {
  const at = isAbove ? TOP : Math.round(y(value)) + 0.5;
  ctx.strokeStyle = colours.critical;
  ctx.setLineDash(isAbove ? [2, 5] : [6, 4]);
  ctx.beginPath();
  ctx.moveTo(GUTTER, at);
  ctx.lineTo(width - RIGHT, at);
  ctx.stroke();
  ctx.setLineDash([]);
  const text = isAbove ? `↑ ${label}, far above` : label;
  return () => {
    const wide = ctx.measureText(text).width;
    ctx.globalAlpha = 0.85;
    ctx.fillStyle = colours.bg;
    ctx.fillRect(width - RIGHT - wide - 4, at + 2, wide + 4, 14);
    ctx.globalAlpha = 1;
    ctx.fillStyle = colours.critical;
    ctx.textAlign = "right";
    ctx.fillText(text, width - RIGHT, at + 9);
    ctx.textAlign = "left";
  };
}

/** Writes a remark on the axis above its lower end. */
export function drawRemark(ctx, { colours, height }, text) {
  const [wide, bottom] = [ctx.measureText(text).width, height - FLOOR];
  ctx.globalAlpha = 0.85;
  ctx.fillStyle = colours.bg;
  ctx.fillRect(GUTTER + 2, bottom - 17, wide + 8, 15);
  ctx.globalAlpha = 1;
  ctx.fillStyle = colours.text;
  ctx.textAlign = "left";
  ctx.fillText(text, GUTTER + 6, bottom - 9);
}

export function drawSeries(ctx, plot, series) {
  const { colour = "accent", dash = "solid", filled = false, dots = false } = series;
  ctx.strokeStyle = ctx.fillStyle = plot.colours[colour];
  ctx.lineWidth = 1.5;
  ctx.setLineDash(DASHES[dash]);
  for (const run of runsOf(plot, series)) drawRun(ctx, run, { floor: filled ? plot.height - FLOOR : null, dots });
  ctx.setLineDash([]);
  ctx.lineWidth = 1;
  if (dots) drawDots(ctx, plot, series);
}

/** Returns runs of known values as points [x, y]; values that share a pixel become their minimum and maximum. */
function runsOf({ view, count, inner, x, y }, { values, stepped = false }) {
  const [first, last] = [Math.max(0, view[0] - 1), Math.min(count - 1, view[1] + 1)];
  const every = last - first > 2 * inner ? Math.ceil((last - first) / inner) : 1;
  const runs = [[]];
  const finish = () => runs.at(-1).length && runs.push([]);
  for (let index = first; index <= last; index += every) {
    const run = runs.at(-1);
    const known = values.slice(index, Math.min(index + every, last + 1)).filter((value) => (value ?? null) !== null);
    if (!known.length) finish();
    else if (every > 1) run.push(...ends(run, x(index), known.map(y)));
    else {
      if (stepped && run.length) run.push([x(index), run.at(-1)[1]]);
      run.push([x(index), y(known[0])]);
      // The last step has a width too.
      if (stepped && index === count - 1) run.push([x(index) + Math.min(RIGHT - 4, x(index) - x(index - 1) || 0), y(known[0])]);
    }
  }
  // A step that is alone has the whole width.
  if (stepped && count === 1 && runs[0].length) return [[[GUTTER, runs[0][0][1]], [GUTTER + inner, runs[0][0][1]]]];
  return runs.filter((run) => run.length);
}

/** Returns the minimum and maximum of a pixel, the one nearer to the end of `run` first, for a shorter line. */
function ends(run, x, heights) {
  const [low, high] = [Math.max(...heights), Math.min(...heights)];
  const from = run.at(-1)?.[1] ?? low;
  return Math.abs(from - high) < Math.abs(from - low) ? [[x, high], [x, low]] : [[x, low], [x, high]];
}

/** Draws a line, or with `floor` (a y) the area between it and the line; a single point is a dot. */
function drawRun(ctx, run, { floor, dots }) {
  if (run.length === 1) {
    if (!dots) ctx.fillRect(run[0][0] - 2, run[0][1] - 2, 4, 4);
    return;
  }
  ctx.beginPath();
  run.forEach(([x, y], place) => (place ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  if (floor === null) {
    ctx.stroke();
    return;
  }
  ctx.lineTo(run.at(-1)[0], floor);
  ctx.lineTo(run[0][0], floor);
  ctx.globalAlpha = 0.18;
  ctx.fill();
  ctx.globalAlpha = 1;
}

/** Draws dots; if there are many, only for isolated points. */
function drawDots(ctx, plot, series) {
  const few = plot.count <= MOST_DOTS;
  const isAlone = (index) => knownAt(series, index - 1) === null && knownAt(series, index + 1) === null;
  for (let index = 0; index < plot.count; index++) {
    if (knownAt(series, index) !== null && (few || isAlone(index))) dot(ctx, plot, index, series, 2.5);
  }
}

function dot(ctx, { x, y }, index, { values }, radius) {
  ctx.beginPath();
  ctx.arc(x(index), y(values[index]), radius, 0, 7);
  ctx.fill();
}

/** Draws value classes along the top. */
export function drawSigns(ctx, { colours, view, inner }, marks) {
  for (const { x, name } of thinned(marks, view, inner, SIGN + 2, HEALTH)) {
    drawClass(ctx, name, GUTTER + x - SIGN / 2, 2, SIGN, SIGN + 2, colours);
  }
}

/** Draws a ▼ over a point of a series, or the sign of a finding on the axis. */
export function drawMarker(ctx, { colours, view, height, data, x, y }, { index, series, sign, severity }) {
  if (index < view[0] || index > view[1]) return;
  if (sign) {
    ctx.fillStyle = colours[severity];
    ctx.textAlign = "center";
    ctx.fillText(sign, x(index), height - FLOOR - 7);
    ctx.textAlign = "left";
    return;
  }
  const value = knownAt(data.series[series], index);
  if (value === null) return;
  const [left, top] = [x(index), y(value) - 4];
  ctx.fillStyle = colours[data.series[series].colour ?? "accent"];
  ctx.beginPath();
  ctx.moveTo(left, top);
  ctx.lineTo(left - 5, top - 8);
  ctx.lineTo(left + 5, top - 8);
  ctx.fill();
}

export function drawDrag(ctx, { colours, height }, { from, to }) {
  ctx.globalAlpha = 0.5;
  ctx.fillStyle = colours.chosen;
  ctx.fillRect(Math.min(from, to), TOP, Math.abs(from - to), height - TOP - FLOOR);
  ctx.globalAlpha = 1;
}

/** Draws the point that the page is about. */
export function drawMarked(ctx, { colours, view, height, x }, index) {
  if (index === null || index < view[0] || index > view[1]) return;
  ctx.fillStyle = colours.accent;
  ctx.globalAlpha = 0.45;
  ctx.fillRect(Math.round(x(index)), TOP, 1, height - TOP - FLOOR);
  ctx.globalAlpha = 1;
  ctx.fillRect(x(index) - 4, height - FLOOR, 9, 3);
}

export function drawCursor(ctx, plot, index) {
  const { colours, height, data, x, y } = plot;
  ctx.fillStyle = colours.muted;
  ctx.fillRect(Math.round(x(index)), TOP, 1, height - TOP - FLOOR);
  for (const series of data.series) {
    const value = knownAt(series, index);
    if (value === null) continue;
    ctx.fillStyle = colours[series.dots ? "text" : (series.colour ?? "accent")];
    if (series.dots) dot(ctx, plot, index, series, 4);
    else ctx.fillRect(x(index) - 3, y(value) - 3, 6, 6);
  }
}
