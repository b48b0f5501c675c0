// The heat map without a screen: its rows, where its cells stand, what is under a point.
import { HEALTH } from "#js/health.js";

export const ROW = 18, HEAD = 22;

/** Rows as drawn: a heading where another graph begins, then its launch sites; `index` is the row of the data. */
export function rowsOf(heat) {
  const rows = [];
  const several = new Set(heat.graph_of).size > 1;
  heat.sites.forEach((site, index) => {
    const graph = heat.graph_of[index];
    if (several && graph !== heat.graph_of[index - 1]) rows.push({ graph, label: graphLabel(heat, graph), index: null });
    rows.push({ graph, label: heat.kernels[index], index, worst: worstOf(heat, index) });
  });
  return rows;
}

function graphLabel({ graphs }, graph) {
  const row = graphs.find((found) => found.graph === graph);
  return [`graph ${graph}`, row?.compile_id, row?.phase].filter(Boolean).join(" ");
}

export function classAt(heat, index, column) {
  const cell = heat.cells[index][column];
  return cell < 0 ? "not_recorded" : heat.classes[cell];
}

export function worstOf(heat, index) {
  const names = heat.cells[index].map((_, column) => classAt(heat, index, column));
  return HEALTH.find((name) => names.includes(name)) ?? "not_recorded";
}

/** Columns fill the width, on whole device pixels, as far as a cell of `most` pixels goes. */
export function columnEdges(count, width, most = 28, ratio = 1) {
  const size = Math.min(most, width / count);
  return Array.from({ length: count + 1 }, (_, column) => Math.round(column * size * ratio) / ratio);
}

const ROOM_OF_ITS_OWN = 9;

/** The cells of a row as they are drawn: one by one, or neighbours of a class together where a cell has no room for a sign. */
export function runsOf(heat, index, edges) {
  const runs = [];
  for (let column = 0; column + 1 < edges.length; column++) {
    const name = classAt(heat, index, column);
    const last = runs.at(-1);
    if (last?.name === name && edges[column + 1] - edges[column] < ROOM_OF_ITS_OWN) last.to = column + 1;
    else runs.push({ name, from: column, to: column + 1 });
  }
  return runs;
}

export function columnAt(edges, x) {
  if (x < 0 || x >= edges.at(-1)) return null;
  let [low, high] = [0, edges.length - 2];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (edges[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** First and last row that a window of `height` pixels shows. */
export function visibleRows(count, scroll, height) {
  return [Math.max(0, Math.floor(scroll / ROW)), Math.min(count, Math.ceil((scroll + height) / ROW))];
}

/** The next cell in a direction; headings are passed over. */
export function moveCell(rows, columns, cell, dx, dy) {
  const column = Math.min(columns - 1, Math.max(0, cell.column + dx));
  let row = cell.row;
  for (let next = row + dy; dy && next >= 0 && next < rows.length; next += dy) {
    if (rows[next].index !== null) {
      row = next;
      break;
    }
  }
  return { row, column };
}
