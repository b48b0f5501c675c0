// Stateless drawing functions for the chart of compile-time spans.
import { marksOf, outermost, spansOf } from "#js/compiles/flame_model.js";
import { CHART_COLOURS, GUTTER, barOf, drawChart, drawName, xOf } from "#js/core/chart_draw.js";
import { GAP, MINIMAP, inView } from "#js/core/chart_model.js";
import { formatLong } from "#js/core/format.js";

export const FLAME_COLOURS = [...CHART_COLOURS, "bg-3", "warning"];
const OPEN_PX = 48;

export function drawFlame(ctx, picture) {
  const strips = outermost(picture.whole).map((intervals) => ({ y: 3, height: 4, intervals, colour: () => "span" }));
  drawChart(ctx, picture, strips, (row) => drawRow(ctx, picture, row));
  for (const gap of picture.gaps) drawGap(ctx, picture, gap);
}

function drawRow(ctx, picture, row) {
  const { width, colours, data, view } = picture;
  if (row.depth < 0) return drawInstants(ctx, picture, row);
  for (const span of inView(spansOf(data, row), view)) drawSpan(ctx, picture, row, span);
  for (const mark of marksOf(data, row)) drawOpen(ctx, xOf(mark.ns, view, width), mark, row, colours);
}

function drawSpan(ctx, picture, row, span) {
  const { colours } = picture;
  const { left, size } = barOf(span, picture);
  ctx.globalAlpha = span.count > 1 ? 0.55 : 1;
  ctx.fillStyle = colours[row.depth % 2 ? "call" : "span"];
  ctx.fillRect(left, row.y + 1, size, row.height - 2);
  ctx.globalAlpha = 1;
  if (span.count === 1) drawName(ctx, span.name, left, size, row, colours);
}

/** Draws a shortened gap without spans: a band with its length, and its place in the minimap. */
function drawGap(ctx, { width, height, colours, view, bounds }, gap) {
  const at = xOf(gap.at_ns, bounds, width);
  ctx.fillStyle = colours.line;
  ctx.fillRect(at, 0, Math.max(2, xOf(gap.at_ns + gap.shown_ns, bounds, width) - at), MINIMAP - GAP);
  const left = Math.max(GUTTER, xOf(gap.at_ns, view, width));
  const right = Math.min(width, xOf(gap.at_ns + gap.shown_ns, view, width));
  if (right <= left) return;
  ctx.fillStyle = colours["bg-3"];
  ctx.fillRect(left, MINIMAP, right - left, height - MINIMAP);
  ctx.fillStyle = colours.line;
  for (const x of [left, right - 1]) ctx.fillRect(x, MINIMAP, 1, height - MINIMAP);
  if (right - left < 14) return;
  ctx.save();
  ctx.translate((left + right) / 2, (MINIMAP + height) / 2);
  ctx.rotate(-Math.PI / 2);
  ctx.textAlign = "center";
  ctx.fillStyle = colours.muted;
  ctx.fillText(`${formatLong(gap.length_ns)} without a span`, 0, 0);
  ctx.restore();
}

/** Draws a span with an unknown end: dashed and open to the right. */
function drawOpen(ctx, left, mark, row, colours) {
  ctx.strokeStyle = colours.critical;
  ctx.setLineDash([4, 3]);
  ctx.beginPath();
  ctx.moveTo(left + OPEN_PX, row.y + 1.5);
  ctx.lineTo(left + 0.5, row.y + 1.5);
  ctx.lineTo(left + 0.5, row.y + row.height - 1.5);
  ctx.lineTo(left + OPEN_PX, row.y + row.height - 1.5);
  ctx.stroke();
  ctx.setLineDash([]);
  drawName(ctx, mark.name, left, OPEN_PX + 8, row, colours, "text");
}

function drawInstants(ctx, { width, colours, data, view }, row) {
  ctx.fillStyle = colours.warning;
  const middle = row.y + row.height / 2;
  for (const { ns } of marksOf(data, row)) {
    const x = xOf(ns, view, width);
    if (x < GUTTER - 4 || x > width + 4) continue;
    ctx.beginPath();
    ctx.moveTo(x, middle - 4);
    ctx.lineTo(x + 4, middle);
    ctx.lineTo(x, middle + 4);
    ctx.lineTo(x - 4, middle);
    ctx.fill();
  }
}
