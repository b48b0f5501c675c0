// Stateless drawing functions for the timeline on a 2D canvas.
import { CHART_COLOURS, GUTTER, barOf, drawChart, drawName, xOf } from "#js/core/chart_draw.js";
import { inView } from "#js/core/chart_model.js";
import { HEALTH_COLOURS, drawClass, drawMissing, drawSign } from "#js/core/health_draw.js";
import { VERDICTS, signOf } from "#js/judged/badge.js";
import { BANDS, drawLiveLane } from "#js/steps/timeline_live.js";
import { intervalsOf, stripParts } from "#js/steps/timeline_model.js";

/** Returns the kinds of launches in the order of the legend, which css/core/colours.css lists beside their colours. */
export function kindsOf(element) {
  return getComputedStyle(element).getPropertyValue("--kinds").trim().split(" ");
}

export function timelineColours(element) {
  return [...CHART_COLOURS, "warning", "info", ...BANDS.map(({ colour }) => colour), ...HEALTH_COLOURS, ...kindsOf(element).map((kind) => `kind-${kind}`)];
}

export function drawTimeline(ctx, picture) {
  drawChart(ctx, picture, stripsOf(picture.whole), (lane) => {
    if (lane.kind === "launches" || lane.kind === "stream") drawLaunches(ctx, picture, lane);
    else if (lane.kind === "health") drawHealth(ctx, picture, lane);
    else if (lane.kind === "judge") drawVerdicts(ctx, picture, lane);
    else if (lane.kind === "memory") drawLive(ctx, picture, lane);
    else if (lane.kind === "other") drawOther(ctx, picture, lane);
    else drawSpans(ctx, picture, lane);
  });
  drawSelected(ctx, picture);
  picture.drawArea(ctx);
  for (const lane of picture.rows) if (lane.kind === "launches") drawMarks(ctx, picture, lane);
}

function stripsOf({ spans, calls, launches }) {
  const top = Math.min(...spans.map(({ item }) => item.depth));
  return [
    { y: 3, height: 4, intervals: spans.filter(({ item }) => item.depth === top), colour: () => "span" },
    { y: 8, height: 4, intervals: calls, colour: () => "call" },
    ...[...launches.values()].map((intervals) => ({ y: 13, height: 8, intervals, colour: ({ kind }) => `kind-${kind}` })),
  ];
}

function drawSpans(ctx, picture, lane) {
  const { data, view, colours } = picture;
  for (const one of inView(intervalsOf(data, lane), view)) {
    const { left, size } = barOf(one, picture, 0);
    ctx.fillStyle = colours[lane.kind === "spans" ? "span" : "call"];
    ctx.fillRect(left, lane.y + 1, size, lane.height - 2);
    drawName(ctx, one.item.graph_label ?? one.item.name, left, size, lane, colours);
  }
}

function drawLaunches(ctx, picture, lane) {
  const { data, view, colours, matches } = picture;
  for (const launch of inView(intervalsOf(data, lane), view)) {
    const { left, size } = barOf(launch, picture);
    ctx.globalAlpha = matches && !matches(launch.kernel) ? 0.15 : launch.count > 1 ? 0.7 : 1;
    ctx.fillStyle = colours[`kind-${launch.kind}`] ?? colours.span;
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

/** Draws the launches of the other step faintly, so that those of this step stay in front. */
function drawOther(ctx, picture, lane) {
  const { other, view, colours, matches } = picture;
  for (const launch of inView(other.in(view).launches.get(lane.thread) ?? [], view)) {
    const { left, size } = barOf(launch, picture);
    ctx.globalAlpha = matches && !matches(launch.kernel) ? 0.12 : 0.5;
    ctx.fillStyle = colours[`kind-${launch.kind}`];
    ctx.fillRect(left, lane.y + 2, size, lane.height - 4);
    ctx.globalAlpha = 1;
    if (launch.count === 1) drawName(ctx, launch.kernel, left, size, lane, colours, "muted");
  }
}

/** Draws the signs of findings above their launches. */
function drawMarks(ctx, picture, lane) {
  const { colours } = picture;
  ctx.save();
  ctx.textAlign = "center";
  for (const { x, marks } of picture.marksOf(lane)) {
    ctx.fillStyle = colours.bg;
    ctx.beginPath();
    ctx.arc(x, lane.y + 9, 8, 0, 2 * Math.PI);
    ctx.fill();
    ctx.strokeStyle = ctx.fillStyle = colours[marks[0].severity];
    ctx.stroke();
    ctx.fillText(marks[0].sign, x, lane.y + 9.5);
  }
  ctx.restore();
}

function drawHealth(ctx, { data, view, width, colours }, lane) {
  const parts = stripParts(intervalsOf(data, lane), view, (ns) => xOf(ns, view, width), GUTTER, width);
  for (const { from, to, health } of parts) {
    const gap = to - from > 4 ? 1 : 0;
    drawClass(ctx, health, from, lane.y + 1, to - from - gap, lane.height - 2, colours);
  }
}

const ROOM_FOR_SIGN = 9;

/** Draws a high bar with a sign for a wrong launch, a dotted one for a launch that was not judged, and a line for the others. */
function drawVerdicts(ctx, { data, view, width, colours }, lane) {
  for (const { from, to, verdict } of stripParts(intervalsOf(data, lane), view, (ns) => xOf(ns, view, width), GUTTER, width, "verdict", VERDICTS)) {
    const size = to - from - (to - from > 4 ? 1 : 0);
    if (verdict === "wrong") {
      ctx.fillStyle = colours.critical;
      ctx.fillRect(from, lane.y + 1, Math.max(size, 2), lane.height - 2);
      if (size >= ROOM_FOR_SIGN) drawSign(ctx, signOf(verdict), from + size / 2, lane.y + lane.height / 2, colours.bg);
    } else if (verdict === "unjudged") {
      drawMissing(ctx, from, lane.y + 1, size, lane.height - 2, colours);
    } else if (verdict === "ok") {
      ctx.fillStyle = colours.accent;
      ctx.fillRect(from, lane.y + lane.height / 2 - 2, size, 4);
    }
  }
}

function drawLive(ctx, { live, view, width, colours }, lane) {
  drawLiveLane(ctx, live, { lane, view, x: (ns) => xOf(ns, view, width), left: GUTTER, right: width, colours });
}

function drawSelected(ctx, { selected, rows, view, width, colours }) {
  if (!selected) return;
  const lane = rows.find(({ kind, thread }) => kind === "launches" && thread === selected.thread);
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
