// The model of the heat map, independent of the DOM: rows, cells and hit tests.
import { HEALTH } from "#js/core/health.js";
import { firstWhere } from "#js/core/numbers.js";

export const ROW = 18, HEAD = 22;

/** Returns the drawn rows: a heading for each graph if there are several, then its launch sites. `index` is the row of the data. */
export function rowsOf(heat) {
  const rows = [];
  const several = new Set(heat.graph_of).size > 1;
  heat.sites.forEach((site, index) => {
    const graph = heat.graph_of[index];
    if (several && graph !== heat.graph_of[index - 1]) rows.push({ graph, label: graphLabel(heat, graph), index: null });
    const others = heat.joined_sites[index] - 1;
    rows.push({ graph, label: heat.kernels[index] + (others ? ` +${others}` : ""), index, worst: worstOf(heat, index) });
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

/** Returns the window of a cell for its address: positions of launch sites in order, and steps. */
export function cellWindow(heat, row, column) {
  return windowOf(heat, row, row + 1, column, column + 1);
}

function windowOf(heat, row, endRow, column, endColumn) {
  const before = (count) => heat.joined_sites.slice(0, count).reduce((sum, sites) => sum + sites, heat.first_site);
  return { first_site: before(row), last_site: before(endRow) - 1, first_step: heat.steps[column], last_step: heat.last_steps[endColumn - 1] };
}

export const joins = ({ joined_sites: sites, joined_steps: steps }, row, column) => sites[row] > 1 || steps[column] > 1;

/** Returns the first of the worst cells in a window, or null. */
export function worstCell(heat, window) {
  let found = null;
  let end = heat.first_site;
  heat.joined_sites.forEach((sites, row) => {
    const start = end;
    end += sites;
    if (start > window.last_site || end <= window.first_site) return;
    heat.steps.forEach((step, column) => {
      if (step > window.last_step || heat.last_steps[column] < window.first_step) return;
      const order = HEALTH.indexOf(classAt(heat, row, column));
      if (!found || order < found.order) found = { row, column, order };
    });
  });
  return found && { row: found.row, column: found.column };
}

const MOST_ROWS = 600, MOST_COLUMNS = 400;

/** Returns a window around a cell in which, if possible, each launch site and step has its own cell. */
export function zoomWindow(heat, row, column) {
  return windowOf(heat, ...around(heat.joined_sites, row, MOST_ROWS), ...around(heat.joined_steps, column, MOST_COLUMNS));
}

function around(joined, place, most) {
  let [first, end, held] = [place, place + 1, joined[place]];
  for (let grown = true; grown; ) {
    grown = false;
    if (end < joined.length && held + joined[end] <= most) [held, end, grown] = [held + joined[end], end + 1, true];
    if (first > 0 && held + joined[first - 1] <= most) [held, first, grown] = [held + joined[first - 1], first - 1, true];
  }
  return [first, end];
}

/** Returns the edges of columns, on whole device pixels, which fill the width unless a cell would exceed `most` pixels. */
export function columnEdges(count, width, most = 28, ratio = 1) {
  const size = Math.min(most, width / count);
  return Array.from({ length: count + 1 }, (_, column) => Math.round(column * size * ratio) / ratio);
}

const ROOM_OF_ITS_OWN = 9;

/** Returns the drawn cells of a row. Neighbours of a class are joined if a cell has no room for a sign. */
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
  return firstWhere(edges.length, (column) => edges[column] > x) - 1;
}

/** Returns the first row that a window of `height` pixels shows, and the end of the shown rows. */
export function visibleRows(count, scroll, height) {
  return [Math.max(0, Math.floor(scroll / ROW)), Math.min(count, Math.ceil((scroll + height) / ROW))];
}

/** Returns the next cell in a direction and skips headings. */
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
