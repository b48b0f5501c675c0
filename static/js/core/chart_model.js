// The model of rows over time, independent of the DOM. Times are ns from the start of the chart.
import { firstWhere, roundStep } from "#js/core/numbers.js";

export const AXIS = 22, MINIMAP = 30, GAP = 6, SPAN = 16;
const SHORTEST_VIEW = 200;

/** Returns the index of the first interval that ends at or after `ns`; intervals of a lane do not overlap. */
export function firstAt(intervals, ns) {
  return firstWhere(intervals.length, (index) => intervals[index].end >= ns);
}

/** Returns the interval at `ns`, or the nearest one within `slack`. */
export function pick(intervals, ns, slack) {
  let best = null;
  let distance = Infinity;
  for (let index = firstAt(intervals, ns - slack); index < intervals.length; index++) {
    const found = intervals[index];
    if (found.start > ns + slack) break;
    const away = Math.max(found.start - ns, ns - found.end, 0);
    if (away < distance) [best, distance] = [found, away];
  }
  return best;
}

/** Returns the intervals in view, in order. */
export function inView(intervals, view) {
  const first = firstAt(intervals, view.start);
  let last = first;
  while (last < intervals.length && intervals[last].start <= view.end) last++;
  return intervals.slice(first, last);
}

export function clamp(view, bounds) {
  const span = Math.min(Math.max(view.end - view.start, SHORTEST_VIEW), bounds.end - bounds.start);
  const start = Math.min(Math.max(view.start, bounds.start), bounds.end - span);
  return { start, end: start + span };
}

/** Zooms around the time `at`; a factor below 1 zooms in. */
export function zoom(view, bounds, factor, at) {
  const span = Math.min(Math.max((view.end - view.start) * factor, SHORTEST_VIEW), bounds.end - bounds.start);
  const share = (at - view.start) / (view.end - view.start);
  return clamp({ start: at - share * span, end: at + (1 - share) * span }, bounds);
}

export function pan(view, bounds, ns) {
  return clamp({ start: view.start + ns, end: view.end + ns }, bounds);
}

/** Returns a view with room around a launch, or the same view if it already shows the launch well. */
export function reveal(view, bounds, start, end) {
  const span = view.end - view.start;
  if (start >= view.start && end <= view.end && end - start > span / 400) return view;
  const wanted = Math.max((end - start) * 24, SHORTEST_VIEW);
  const middle = (start + end) / 2;
  const next = Math.min(span, Math.max(wanted, span / 50, end - start));
  return clamp({ start: middle - next / 2, end: middle + next / 2 }, bounds);
}

export function ticks(view, most) {
  const step = roundStep((view.end - view.start) / Math.max(most, 1));
  const values = [];
  for (let n = Math.ceil(view.start / step - 1e-9); n * step <= view.end; n++) values.push(n * step);
  return { step, values };
}

/** Returns the view to fetch, with a margin on both sides. */
export function windowAround(view, bounds) {
  const margin = (view.end - view.start) / 4;
  return { start: Math.max(view.start - margin, bounds.start), end: Math.min(view.end + margin, bounds.end) };
}

/** Returns the span between two times, in either order, inside the bounds and in whole ns. */
export function spanOf(one, other, bounds) {
  const inside = (ns) => Math.min(Math.max(ns, bounds.start), bounds.end);
  return { start: Math.floor(inside(Math.min(one, other))), end: Math.ceil(inside(Math.max(one, other))) };
}

/** Returns the end of an area that stays where it is if the edge at `ns` is moved, or null if no edge is there. */
export function edgeAt(area, ns, slack) {
  if (!area) return null;
  const [start, end] = [Math.abs(ns - area.start), Math.abs(ns - area.end)];
  if (Math.min(start, end) > slack) return null;
  return start < end ? area.end : area.start;
}
