// The models of a result's timeline and curve, independent of the DOM.
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

/**
 * Returns the lines of a curve over all its places: {x, names, rows, valuesOf(column)}. `rows` has the first row of the
 * result at each place; a line has null where it has no row.
 */
export function linesOf({ x, series, row, lines }) {
  if (!lines) return { x, names: [""], rows: row, valuesOf: (column) => [series[column]] };
  const names = [...new Set(lines)].sort(order);
  const places = [...new Set(x)].sort(order);
  const placeOf = new Map(places.map((value, place) => [value, place]));
  const rows = places.map(() => null);
  x.forEach((value, point) => (rows[placeOf.get(value)] ??= row[point]));
  const valuesOf = (column) => {
    const found = new Map(names.map((name) => [name, places.map(() => null)]));
    x.forEach((value, point) => (found.get(lines[point])[placeOf.get(value)] ??= series[column][point]));
    return [...found.values()];
  };
  return { x: places, names, rows, valuesOf };
}

const texts = new Intl.Collator("en", { numeric: true });
const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : texts.compare(String(a), String(b)));
