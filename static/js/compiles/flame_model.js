// The model of the chart of compile-time spans, independent of the DOM. Times are ns from the start of the chart.
import { AXIS, GAP, MINIMAP, SPAN, pick, windowAround } from "#js/core/chart_model.js";

export const MARKS = 14;
const UNFINISHED_PX = 48;
const ROOM = 1.04;

/** Returns the end of the chart, with room for unfinished spans, which are often the last in a log. */
export function endOf(flame) {
  return flame.marks.some(({ kind }) => kind === "unfinished") ? Math.ceil(flame.end_ns * ROOM) : flame.end_ns;
}

/** Returns the parts between gaps, each of which counts time from its own start. */
export function partsOf(flame) {
  const starts = [0, ...flame.gaps.map((gap) => gap.at_ns + gap.shown_ns)];
  return starts.map((start, index) => ({ start, end: flame.gaps[index]?.at_ns ?? Infinity }));
}

/** Returns the time at a position of the chart, counted from the start of its part. */
export function inPart(parts, ns) {
  return ns - (parts.findLast(({ start }) => start <= ns) ?? parts[0]).start;
}

export function gapAt(gaps, ns) {
  return gaps.find((gap) => gap.at_ns < ns && ns < gap.at_ns + gap.shown_ns) ?? null;
}

/** Returns the time in view without shortened gaps. */
export function spent(gaps, view) {
  const folded = gaps.map((gap) => Math.min(view.end, gap.at_ns + gap.shown_ns) - Math.max(view.start, gap.at_ns));
  return view.end - view.start - folded.reduce((sum, size) => sum + Math.max(0, size), 0);
}

/** Returns rows from top to bottom; `flame_height` in viewer/compiles/filters.py adds up the same heights. */
export function layout(flame) {
  const rows = [];
  let y = MINIMAP + AXIS + GAP;
  flame.lanes.forEach((lane, index) => {
    const label = flame.lanes.length === 1 ? "spans" : lane.rank === null ? `log ${lane.log}` : `rank ${lane.rank}`;
    const name = lane.thread ? `${label} · ${lane.thread}` : label;
    for (let depth = 0; depth <= lane.depth; depth++, y += SPAN) {
      rows.push({ lane: index, depth, y, height: SPAN, label: depth ? "" : name });
    }
    rows.push({ lane: index, depth: -1, y, height: MARKS, label: "" });
    y += MARKS + GAP;
  });
  return { rows, height: y };
}

/** Converts the server's columns to intervals per row, sorted by start, and marks. */
export function prepare(flame) {
  const byRow = new Map();
  const { lane, depth, name, compile, start_ns: starts, duration_ns: durations, count } = flame.spans;
  starts.forEach((start, index) => {
    const key = `${lane[index]}/${depth[index]}`;
    if (!byRow.has(key)) byRow.set(key, []);
    byRow.get(key).push({
      start, end: start + durations[index], name: flame.names[name[index]], count: count[index], depth: depth[index],
      compile: compile[index] < 0 ? null : flame.compiles[compile[index]], log: flame.lanes[lane[index]].log,
    });
  });
  const marks = flame.marks.map((mark) => ({ ...mark, compile: mark.compile_id, log: flame.lanes[mark.lane].log }));
  const end = flame.window_end_ns < flame.end_ns ? flame.window_end_ns : endOf(flame);
  return { start: flame.window_start_ns, end, byRow, marks, binned: flame.binned };
}

export function spansOf(data, row) {
  return data.byRow.get(`${row.lane}/${row.depth}`) ?? [];
}

export function marksOf(data, row) {
  if (row.depth < 0) return data.marks.filter(({ kind, lane }) => kind === "instant" && lane === row.lane);
  return data.marks.filter(({ kind, lane, depth }) => kind === "unfinished" && lane === row.lane && depth === row.depth);
}

/** Returns the span at `ns` of a row, else the nearest mark or span within `slack`. */
export function found(data, row, ns, slack) {
  const span = pick(spansOf(data, row), ns, slack);
  if (span && span.start <= ns && ns <= span.end) return span;
  const reach = row.depth < 0 ? slack * 2 : slack * (UNFINISHED_PX / 4);
  const marks = marksOf(data, row).filter((mark) => (row.depth < 0 ? Math.abs(mark.ns - ns) <= reach : mark.ns <= ns && ns - mark.ns <= reach));
  marks.sort((a, b) => Math.abs(a.ns - ns) - Math.abs(b.ns - ns));
  return marks[0] ?? span;
}

/** Returns the window to fetch if it would show more than `data` in this view, else null. */
export function missing(data, view, bounds) {
  const covered = data.start <= view.start && data.end >= view.end;
  if (covered && (!data.binned || view.end - view.start > (data.end - data.start) / 2)) return null;
  return windowAround(view, bounds);
}

/** Returns the spans of the outermost row of each lane, for the minimap. */
export function outermost(data) {
  return [...data.byRow].filter(([key]) => key.endsWith("/0")).map(([, spans]) => spans);
}
