import assert from "node:assert/strict";
import test from "node:test";
import "../page.mjs";
import { HEALTH } from "../../../static/js/core/health.js";
import { ROW, cellWindow, classAt, columnAt, columnEdges, joins, moveCell, rowsOf, runsOf, visibleRows, worstCell, worstOf, zoomWindow } from "../../../static/js/values/heat_model.js";

const heat = {
  graphs: [{ graph: 0, compile_id: "0/0", phase: "forward" }, { graph: 1, compile_id: null, phase: null }],
  sites: [10, 11, 12], kernels: ["a", "b", "c"], graph_of: [0, 0, 1], steps: [3, 4], classes: HEALTH,
  cells: [[5, 0], [-1, 3], [5, 5]], launches: [], total_steps: 2,
  joined_sites: [1, 1, 1], joined_steps: [1, 1], last_steps: [3, 4], first_site: 0, total_sites: 3,
};

test("rows have a heading per graph where there are several", () => {
  assert.deepEqual(rowsOf(heat).map(({ label }) => label), ["graph 0 0/0 forward", "a", "b", "graph 1", "c"]);
  assert.deepEqual(rowsOf({ ...heat, graph_of: [0, 0, 0] }).map(({ label }) => label), ["a", "b", "c"]);
});

test("classes and the worst of a row", () => {
  assert.equal(classAt(heat, 0, 1), "nan");
  assert.equal(classAt(heat, 1, 0), "not_recorded");
  assert.deepEqual([0, 1, 2].map((row) => worstOf(heat, row)), ["nan", "extreme", "finite"]);
});

test("512 columns fill the width without gaps, each at least a device pixel wide", () => {
  const edges = columnEdges(512, 860, 28, 2);
  assert.equal(edges.length, 513);
  assert.equal(edges.at(-1), 860);
  edges.slice(1).forEach((edge, index) => assert.ok(edge - edges[index] >= 0.5));
  for (const column of [0, 1, 255, 511]) {
    assert.equal(columnAt(edges, (edges[column] + edges[column + 1]) / 2), column);
  }
  assert.equal(columnAt(edges, -1), null);
  assert.equal(columnAt(edges, 860), null);
});

test("narrow neighbours of one class are drawn together", () => {
  const wide = { ...heat, steps: [0, 1, 2, 3], cells: [[0, 0, 5, 0]] };
  const names = (width) => runsOf(wide, 0, columnEdges(4, width)).map(({ name, from, to }) => [name, from, to]);
  assert.deepEqual(names(12), [["nan", 0, 2], ["finite", 2, 3], ["nan", 3, 4]]);
  assert.equal(names(100).length, 4);
});

test("few columns stay narrow", () => {
  assert.deepEqual(columnEdges(3, 900, 28), [0, 28, 56, 84]);
});

test("only the rows in sight are drawn", () => {
  assert.deepEqual(visibleRows(2000, 100 * ROW, 500), [100, 100 + Math.ceil(500 / ROW)]);
  assert.deepEqual(visibleRows(3, 0, 500), [0, 3]);
});

test("arrow keys pass over headings and stop at the ends", () => {
  const rows = rowsOf(heat);
  assert.deepEqual(moveCell(rows, 2, { row: 2, column: 0 }, 0, 1), { row: 4, column: 0 });
  assert.deepEqual(moveCell(rows, 2, { row: 4, column: 0 }, 0, 1), { row: 4, column: 0 });
  assert.deepEqual(moveCell(rows, 2, { row: 1, column: 0 }, 0, -1), { row: 1, column: 0 });
  assert.deepEqual(moveCell(rows, 2, { row: 1, column: 1 }, 1, 0), { row: 1, column: 1 });
});

test("a joined cell knows what it stands for and where to look closer", () => {
  const count = 500;
  const large = {
    ...heat, first_site: 40, joined_sites: [2, 3, 1], kernels: ["a", "c", "f"], steps: Array.from({ length: count }, (_, n) => 4 * n),
    last_steps: Array.from({ length: count }, (_, n) => 4 * n + 3), joined_steps: Array(count).fill(4),
  };
  assert.deepEqual(rowsOf({ ...large, graph_of: [0, 0, 0], cells: [[5], [5], [5]] }).map(({ label }) => label), ["a +1", "c +2", "f"]);
  assert.deepEqual(cellWindow(large, 1, 2), { first_site: 42, last_site: 44, first_step: 8, last_step: 11 });
  const closer = zoomWindow(large, 1, 250);
  assert.deepEqual([closer.first_site, closer.last_site], [40, 45]);
  assert.equal(closer.last_step - closer.first_step + 1, 400);
  assert.ok(closer.first_step < 1000 && closer.last_step > 1003);
  assert.deepEqual(zoomWindow(large, 0, 0).first_step, 0);
  assert.deepEqual(zoomWindow({ ...large, joined_steps: Array(count).fill(900) }, 0, 3), { first_site: 40, last_site: 45, first_step: 12, last_step: 15 });
  const cells = [0, 1, 2].map((row) => large.steps.map((_, column) => (row === 1 && column === 2 ? 0 : 5)));
  assert.deepEqual(worstCell({ ...large, cells }, { first_site: 40, last_site: 45, first_step: 4, last_step: 13 }), { row: 1, column: 2 });
  assert.deepEqual(worstCell({ ...large, cells }, { first_site: 45, last_site: 45, first_step: 9, last_step: 9 }), { row: 2, column: 2 });
  assert.equal(worstCell({ ...large, cells }, { first_site: 46, last_site: 46, first_step: 9, last_step: 9 }), null);
  assert.ok(joins(large, 2, 0));
  assert.ok(!joins(heat, 0, 0));
});
