// Live bytes on the time axis of the timeline: their data, tooltips and drawing.
import { windowAround } from "#js/core/chart_model.js";
import { exactBytes, formatBytes } from "#js/core/format.js";
import { firstWhere } from "#js/core/numbers.js";

/** The parts of the live bytes from bottom to top: name, text and colour. */
export const BANDS = [
  { name: "input", text: "inputs and parameters", colour: "m-input" },
  { name: "saved", text: "saved for a backward call", colour: "m-saved" },
  { name: "kept", text: "outputs and others that outlive their call", colour: "m-output" },
  { name: "temporary", text: "freed by the call that allocated them", colour: "m-temporary" },
];

/** Returns the bytes of each band; they add up to the highest live bytes of each point. */
function bandsOf({ high_bytes: high, made_bytes: made, saved_bytes: saved, kept_bytes: kept }) {
  return {
    input: high.map((bytes, index) => bytes - made[index]),
    saved,
    kept,
    temporary: made.map((bytes, index) => bytes - saved[index] - kept[index]),
  };
}

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
      at: curve.at_ns.map((ns) => offset + ns), low: curve.low_bytes, high: curve.high_bytes, bands: bandsOf(curve),
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
      ...BANDS.filter(({ name }) => points.bands[name][index]).map(({ name, text }) => [`${text}:`, exactBytes(points.bands[name][index])]).reverse(),
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

/** Draws the bands on each other, and the least bytes of points that join several events; `x(ns)` returns a position. */
export function drawLiveLane(ctx, live, { lane, view, x, left, right, colours }) {
  const points = live.points(view);
  const first = Math.max(0, indexAt(points.at, view.start));
  const last = indexAt(points.at, view.end);
  let top = 0;
  for (let index = first; index <= last; index++) top = Math.max(top, points.high[index]);
  const bottom = lane.y + lane.height - 1;
  const y = (value) => bottom - (top ? value / top : 0) * (lane.height - 15);
  const end = (index) => Math.min(right, index < points.at.length - 1 ? x(points.at[index + 1]) : right);
  for (let index = first; index <= last; index++) {
    const from = Math.max(left, x(points.at[index]));
    let below = 0;
    for (const { name, colour } of BANDS) {
      const bytes = points.bands[name][index];
      ctx.fillStyle = colours[colour];
      ctx.fillRect(from, y(below + bytes), Math.max(0.5, end(index) - from), y(below) - y(below + bytes));
      below += bytes;
    }
  }
  drawLow(ctx, points, { first, last, y, start: (index) => Math.max(left, x(points.at[index])), end, colour: colours.text });
  ctx.fillStyle = colours.muted;
  ctx.fillText(`${formatBytes(top)} maximum in view`, left + 4, lane.y + 6);
}

/** Draws the least bytes where they differ from the highest ones. */
function drawLow(ctx, { low, high }, { first, last, y, start, end, colour }) {
  ctx.strokeStyle = colour;
  ctx.globalAlpha = 0.5;
  ctx.beginPath();
  for (let index = first; index <= last; index++) {
    if (low[index] === high[index]) continue;
    ctx.moveTo(start(index), y(low[index]));
    ctx.lineTo(end(index), y(low[index]));
  }
  ctx.stroke();
  ctx.globalAlpha = 1;
}
