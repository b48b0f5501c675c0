// Live bytes on the time axis of the timeline: their data, tooltips and drawing.
import { windowAround } from "#js/core/chart_model.js";
import { exactBytes, formatBytes } from "#js/core/format.js";
import { firstWhere } from "#js/core/numbers.js";

export class LiveLane {
  /** `curve` covers the initial bounds; times are ns from `origin`. */
  constructor(curve, origin, bounds) {
    this.origin = origin;
    this.bounds = bounds;
    this.show(curve);
    this.whole = this.now;
  }

  show(curve) {
    const offset = curve.window_start_ns - this.origin;
    const ends = offset + curve.window_end_ns - curve.window_start_ns;
    this.now = {
      at: curve.at_ns.map((ns) => offset + ns), low: curve.low_bytes, high: curve.high_bytes, made: curve.made_bytes,
      start: offset, end: ends, merged: curve.merged, first: curve.start_ns - this.origin, last: curve.end_ns - this.origin,
    };
    this.whole ??= this.now;
  }

  /** Returns the points for a view, the finer ones where they cover it. */
  points(view) {
    return covers(this.now, view) ? this.now : this.whole;
  }

  /** Returns the window to fetch if finer points would show more, else null. */
  missing(view) {
    const { now } = this;
    const span = view.end - view.start;
    if (covers(now, view) && (!now.merged || span > (now.end - now.start) / 2)) return null;
    if (!covers(now, view) && covers(this.whole, view) && !this.whole.merged) return null;
    if (span >= (this.bounds.end - this.bounds.start) * 0.9) return null;
    return windowAround(view, this.bounds);
  }

  lines(ns) {
    const points = this.now.at.length && ns >= this.now.start && ns <= this.now.end ? this.now : this.whole;
    const index = indexAt(points.at, ns);
    if (index < 0) return ["no compiled call has seen a storage yet"];
    const [low, high] = [points.low[index], points.high[index]];
    return [
      low === high ? exactBytes(high) : `${exactBytes(low)} to ${exactBytes(high)}`,
      "live bytes of storages seen by compiled calls",
      `allocated by compiled calls: ${exactBytes(points.made[index])}`,
      ...(low === high ? [] : ["zoom in for exact values"]),
    ];
  }
}

/** Returns whether the points cover a view, as far as the run has events. */
function covers({ start, end, first, last }, view) {
  return (start <= view.start || start <= first) && (end >= view.end || end >= last);
}

/** Returns the index of the last point at or before a time, or -1. */
export function indexAt(at, ns) {
  return firstWhere(at.length, (index) => at[index] > ns) - 1;
}

/** Draws the curve; `x(ns)` returns a position in pixels. */
export function drawLiveLane(ctx, live, { lane, view, x, left, right, colours }) {
  const points = live.points(view);
  const first = Math.max(0, indexAt(points.at, view.start));
  const last = indexAt(points.at, view.end);
  let top = 0;
  for (let index = first; index <= last; index++) top = Math.max(top, points.high[index]);
  const bottom = lane.y + lane.height;
  const y = (value) => bottom - 1 - (top ? value / top : 0) * (lane.height - 14);
  const end = (index) => Math.min(right, index < points.at.length - 1 ? x(points.at[index + 1]) : right);
  ctx.fillStyle = colours.accent;
  for (const [values, alpha] of [[points.high, 0.14], [points.low, 0.14]]) {
    ctx.globalAlpha = alpha;
    for (let index = first; index <= last; index++) {
      const from = Math.max(left, x(points.at[index]));
      ctx.fillRect(from, y(values[index]), Math.max(0.5, end(index) - from), bottom - y(values[index]));
    }
  }
  ctx.globalAlpha = 1;
  for (const [values, colour] of [[points.made, "estimated"], [points.high, "accent"]]) {
    ctx.strokeStyle = colours[colour];
    ctx.beginPath();
    for (let index = first; index <= last; index++) {
      const from = Math.max(left, x(points.at[index]));
      if (index === first) ctx.moveTo(from, y(values[index]));
      else ctx.lineTo(from, y(values[index]));
      ctx.lineTo(end(index), y(values[index]));
    }
    ctx.stroke();
  }
  ctx.fillStyle = colours.muted;
  ctx.fillText(`${formatBytes(top)} maximum in view`, left + 4, lane.y + 6);
}
