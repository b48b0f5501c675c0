// The model of the timeline, independent of the DOM. All times are ns from the start of the step.
import { firstAt, inView, windowAround } from "#js/core/chart_model.js";
import { HEALTH } from "#js/core/health.js";
import { VERDICTS } from "#js/judged/badge.js";

/** Converts the server's timeline to intervals per lane, sorted by start. */
export function prepare(timeline) {
  const origin = timeline.start_ns;
  const spans = timeline.spans.map((span) => interval(span, span.start_ns - origin, span.duration_ns));
  const calls = timeline.calls.map((call) => interval(call, call.start_ns - origin, call.duration_ns));
  const byStart = (a, b) => a.start - b.start;
  const columns = timeline.launches;
  const offset = timeline.window_start_ns - origin;
  const end = timeline.end_ns - origin;
  const rows = new Map(timeline.threads.map((thread) => [thread, []]));
  const add = (to, { launch: ids, site: sites, thread, start_ns: starts, duration_ns: durations, count, health, verdict }, nameOf) => ids.forEach((launch, index) => {
    const start = offset + starts[index];
    const duration = durations[index];
    const site = sites[index];
    const { kernel, kind } = nameOf[site];
    const [returned, timed] = [duration !== -1, duration >= 0];
    to.get(thread[index])?.push({
      launch, site, kernel, kind, start, returned, timed, count: count[index],
      end: timed ? start + duration : returned ? start + 1 : end,
      health: HEALTH[health?.[index]] ?? "not_recorded",
      verdict: VERDICTS[verdict?.[index]] ?? null,
    });
  });
  const streams = new Map((timeline.streams ?? []).map((_, index) => [index, []]));
  add(rows, columns, timeline.sites);
  if (timeline.work) add(streams, timeline.work, timeline.work_names);
  for (const row of streams.values()) row.sort(byStart);
  for (const row of rows.values()) row.sort(byStart);
  return {
    start: offset,
    end: timeline.window_end_ns - origin,
    spans: spans.sort(byStart),
    calls: calls.sort(byStart),
    launches: rows,
    streams,
    untimed: isUntimed(timeline),
    binned: [columns, timeline.work].some((one) => one?.count.some((count) => count > 1)),
  };
}

/** Returns whether launches have an order but no times, as in a log of printed text. */
export function isUntimed({ launches }) {
  return launches.duration_ns.length > 0 && launches.duration_ns.every((duration) => duration === -2);
}

function interval(item, start, duration) {
  return { item, start, end: start + Math.max(duration, 0) };
}

export function intervalsOf(data, lane) {
  if (lane.kind === "memory") return [];
  if (["launches", "health", "judge"].includes(lane.kind)) return data.launches.get(lane.thread) ?? [];
  if (lane.kind === "stream") return data.streams.get(lane.thread) ?? [];
  if (lane.kind === "spans") return data.spans.filter(({ item }) => item.depth === lane.depth);
  return data.calls.filter(({ item }) => item.depth === lane.depth && item.thread === lane.thread);
}

/**
 * Returns the parts of a strip for `intervals` in view: each lasts until it ends or the next one starts, and intervals
 * that share a pixel become the worst of them. `kind` is the field of their class, `classes` names these from worst to best,
 * and `at(ns)`, `left` and `right` are positions in pixels.
 */
export function stripParts(intervals, view, at, left, right, kind = "health", classes = HEALTH) {
  const worst = (a, b) => (classes.includes(b) && (!classes.includes(a) || classes.indexOf(b) < classes.indexOf(a)) ? b : a);
  const parts = [];
  for (let index = Math.max(0, firstAt(intervals, view.start) - 1); index < intervals.length; index++) {
    const { start, end, [kind]: name } = intervals[index];
    if (start > view.end) break;
    const until = Math.min(end, Math.max(intervals[index + 1]?.start ?? end, start));
    const [from, to] = [Math.max(left, Math.floor(at(start))), Math.min(right, Math.floor(at(until)))];
    if (to < left) continue;
    const last = parts.at(-1);
    if (last && from < last.from + 1) Object.assign(last, { [kind]: worst(last[kind], name), to: Math.max(last.to, to) });
    else parts.push({ from, to: Math.max(to, from + 1), [kind]: name });
  }
  return parts;
}

/** Returns the window to fetch if `data` has bins in this view that a narrower window would resolve, else null. */
export function missingWindow(data, view, bounds) {
  const covered = data.start <= view.start && data.end >= view.end;
  if (covered && !(data.binned && hasBins(data, view))) return null;
  if (covered && view.end - view.start > (data.end - data.start) / 2) return null;
  return windowAround(view, bounds);
}

function hasBins(data, view) {
  for (const row of [...data.launches.values(), ...data.streams.values()]) {
    if (inView(row, view).some(({ count }) => count > 1)) return true;
  }
  return false;
}

/**
 * Returns the marks in view as groups that share a place, with their positions and the worst finding first. `marks` are
 * ordered by severity; `at(ns)` returns a position in pixels.
 */
export function marksIn(marks, view, at, room = 14) {
  const groups = [];
  for (const mark of marks.filter(({ start }) => start >= view.start && start <= view.end)) {
    const x = at(mark.start);
    const near = groups.find((group) => group.thread === mark.thread && Math.abs(group.x - x) < room);
    if (near) near.marks.push(mark);
    else groups.push({ x, thread: mark.thread, marks: [mark] });
  }
  return groups;
}

/** Returns a matcher of kernel names that contain all words of a filter; `*` is a wildcard. */
export function kernelMatcher(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  const patterns = words.map((word) => new RegExp(word.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*")));
  return (kernel) => patterns.every((pattern) => pattern.test(kernel.toLowerCase()));
}

/** Returns at most `most` launches in view in time order, and the number of all launches, including those in bins. */
export function launchesIn(data, view, matches, most) {
  const rows = [];
  let total = 0;
  for (const row of data.launches.values()) {
    for (const launch of inView(row, view)) {
      if (matches && !matches(launch.kernel)) continue;
      total += launch.count;
      rows.push(launch);
    }
  }
  rows.sort((a, b) => a.start - b.start);
  return { rows: rows.slice(0, most), total, left: rows.slice(most).reduce((sum, { count }) => sum + count, 0) };
}
