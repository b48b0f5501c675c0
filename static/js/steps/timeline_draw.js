// The picture of the timeline on a 2D canvas. Draws what it is given; keeps nothing.
import { coloursOf } from "#js/core/colours.js";
import { formatTick } from "#js/core/format.js";
import { HEALTH_COLOURS, drawClass } from "#js/core/health_draw.js";
import { drawLiveLane } from "#js/steps/timeline_live.js";
import { AXIS, GAP, MINIMAP, firstAt, healthStrip, intervalsOf, ticks } from "#js/steps/timeline_model.js";

export const GUTTER = 64;
const NAMES = ["estimated", "bg", "bg-2", "line", "line-2", "text", "muted", "accent", "critical", "bar-text", "span", "call"];

/** Kinds of launches in the order of the legend, as css/core/colours.css names them beside their colours. */
export function kindsOf(element) {
  return getComputedStyle(element).getPropertyValue("--kinds").trim().split(" ");
}

export function themeColours(element) {
  return coloursOf(element, [...NAMES, ...HEALTH_COLOURS, ...kindsOf(element).map((kind) => `kind-${kind}`)]);
}

export function xOf(ns, view, width) {
  return GUTTER + ((ns - view.start) / (view.end - view.start)) * (width - GUTTER);
}

export function nsOf(x, view, width) {
  return view.start + ((x - GUTTER) / (width - GUTTER)) * (view.end - view.start);
}

export function drawTimeline(ctx, picture) {
  const { width, height, lanes, colours, view } = picture;
  ctx.clearRect(0, 0, width, height);
  ctx.font = `11px ${colours.font}`;
  ctx.textBaseline = "middle";
  drawAxis(ctx, picture);
  drawMinimap(ctx, picture);
  for (const lane of lanes) {
    if (lane.label) {
      ctx.fillStyle = colours.muted;
      ctx.fillText(lane.label, 2, lane.y + lane.height / 2, GUTTER - 8);
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(GUTTER, lane.y, width - GUTTER, lane.height);
    ctx.clip();
    if (lane.kind === "launches") drawLaunches(ctx, picture, lane);
    else if (lane.kind === "health") drawHealth(ctx, picture, lane);
    else if (lane.kind === "memory") drawLive(ctx, picture, lane);
    else drawSpans(ctx, picture, lane);
    ctx.restore();
  }
  ctx.fillStyle = colours.line;
  ctx.fillRect(GUTTER - 1, 0, 1, height);
  drawSelected(ctx, picture, view);
}

const WHOLE = [{ start: 0, end: Infinity }];

/** Ticks; each of `parts` counts from its own start. */
export function drawAxis(ctx, { width, height, colours, view, data, parts = WHOLE }) {
  if (data?.untimed) return;
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

/** The whole step in a strip on top, the part in view framed. */
export function drawMinimap(ctx, { width, colours, whole, bounds, view }) {
  const at = (ns) => GUTTER + ((ns - bounds.start) / (bounds.end - bounds.start)) * (width - GUTTER);
  const bottom = MINIMAP - GAP;
  ctx.fillStyle = colours["bg-2"];
  ctx.fillRect(GUTTER, 0, width - GUTTER, bottom);
  ctx.fillStyle = colours.span;
  const top = Math.min(...whole.spans.map(({ item }) => item.depth));
  for (const { item, start, end } of whole.spans) {
    if (item.depth === top) ctx.fillRect(at(start), 3, Math.max(1, at(end) - at(start)), 4);
  }
  ctx.fillStyle = colours.call;
  for (const { start, end } of whole.calls) ctx.fillRect(at(start), 8, Math.max(1, at(end) - at(start)), 4);
  for (const row of whole.launches.values()) {
    let right = -1;
    for (const launch of row) {
      const x = at(launch.start);
      if (at(launch.end) <= right) continue;
      ctx.fillStyle = colours[`kind-${launch.kind}`];
      right = Math.max(x + 1, at(launch.end));
      ctx.fillRect(x, 13, right - x, 8);
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

function drawSpans(ctx, { data, view, width, colours }, lane) {
  const fill = colours[lane.kind === "spans" ? "span" : "call"];
  const intervals = intervalsOf(data, lane);
  for (let index = firstAt(intervals, view.start); index < intervals.length; index++) {
    const { item, start, end } = intervals[index];
    if (start > view.end) break;
    const left = Math.max(xOf(start, view, width), GUTTER);
    const right = Math.min(xOf(end, view, width), width);
    const size = Math.max(1, right - left - 1);
    ctx.fillStyle = fill;
    ctx.fillRect(left, lane.y + 1, size, lane.height - 2);
    drawName(ctx, item.graph_label ?? item.name, left, size, lane, colours);
  }
}

function drawLaunches(ctx, { data, view, width, colours, matches }, lane) {
  const intervals = intervalsOf(data, lane);
  for (let index = firstAt(intervals, view.start); index < intervals.length; index++) {
    const launch = intervals[index];
    if (launch.start > view.end) break;
    const left = Math.max(xOf(launch.start, view, width), GUTTER);
    const right = Math.min(xOf(launch.end, view, width), width);
    const size = Math.max(1, right - left - (right - left > 3 ? 1 : 0));
    ctx.globalAlpha = matches && !matches(launch.kernel) ? 0.15 : launch.count > 1 ? 0.7 : 1;
    ctx.fillStyle = colours[`kind-${launch.kind}`];
    if (launch.returned) {
      ctx.fillRect(left, lane.y + 1, size, lane.height - 2);
    } else {
      ctx.strokeStyle = colours.critical;
      ctx.setLineDash([4, 3]);
      ctx.strokeRect(left + 0.5, lane.y + 1.5, Math.max(2, size - 1), lane.height - 3);
      ctx.setLineDash([]);
    }
    if (launch.count === 1) drawName(ctx, launch.kernel, left, size, lane, colours, launch.returned ? "bar-text" : "text");
  }
  ctx.globalAlpha = 1;
}

function drawHealth(ctx, { data, view, width, colours }, lane) {
  const parts = healthStrip(intervalsOf(data, lane), view, (ns) => xOf(ns, view, width), GUTTER, width);
  for (const { from, to, health } of parts) {
    const gap = to - from > 4 ? 1 : 0;
    drawClass(ctx, health, from, lane.y + 1, to - from - gap, lane.height - 2, colours);
  }
}

function drawLive(ctx, { live, view, width, colours }, lane) {
  drawLiveLane(ctx, live, { lane, view, x: (ns) => xOf(ns, view, width), left: GUTTER, right: width, colours });
}

const widths = new Map();

/** The name, cut where the bar ends; nothing where fewer than three letters fit. */
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

function drawSelected(ctx, { selected, lanes, view, width, colours }) {
  if (!selected) return;
  const lane = lanes.find(({ kind, thread }) => kind === "launches" && thread === selected.thread);
  if (!lane || selected.start > view.end || selected.end < view.start) return;
  const left = Math.max(xOf(selected.start, view, width), GUTTER);
  const right = Math.min(xOf(selected.end, view, width), width);
  ctx.strokeStyle = colours.bg;
  ctx.lineWidth = 1;
  ctx.strokeRect(left + 0.5, lane.y + 1.5, Math.max(2, right - left - 1), lane.height - 3);
  ctx.strokeStyle = colours.text;
  ctx.lineWidth = 2;
  ctx.strokeRect(left - 1, lane.y, Math.max(4, right - left + 2), lane.height);
  ctx.lineWidth = 1;
}

/** What moves with the pointer, on a canvas of its own so that the picture below stays. */
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
