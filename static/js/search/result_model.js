// The model of a result's timeline, independent of the DOM.
import { AXIS, GAP, MINIMAP, SPAN } from "#js/core/chart_model.js";

/** Returns rows of intervals that do not overlap: one or several for each lane, in order of time. */
export function lanesOf({ start, duration, name, lane, row }) {
  const lanes = new Map();
  start.forEach((begin, index) => {
    const rows = lanes.get(lane[index]) ?? [];
    lanes.set(lane[index], rows);
    const end = begin + duration[index];
    let free = rows.find((intervals) => intervals.at(-1).end <= begin);
    if (!free) rows.push((free = []));
    free.push({ start: begin, end, name: name[index], row: row[index] });
  });
  let y = MINIMAP + AXIS + GAP;
  const found = [...lanes].flatMap(([label, rows]) => {
    const placed = rows.map((intervals, depth) => ({ label: depth ? "" : label, intervals, y: y + depth * SPAN, height: SPAN }));
    y += rows.length * SPAN + GAP;
    return placed;
  });
  return { rows: found, height: y, end: Math.max(1, ...start.map((begin, index) => begin + duration[index])) };
}
