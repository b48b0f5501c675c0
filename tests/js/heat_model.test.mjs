import assert from "node:assert/strict";
import test from "node:test";
import { HEALTH } from "../../static/js/health.js";
import { ROW, classAt, columnAt, columnEdges, moveCell, rowsOf, runsOf, visibleRows, worstOf } from "../../static/js/heat_model.js";

const heat = {
  graphs: [{ graph: 0, compile_id: "0/0", phase: "forward" }, { graph: 1, compile_id: null, phase: null }],
  sites: [10, 11, 12], kernels: ["a", "b", "c"], graph_of: [0, 0, 1], steps: [3, 4], classes: HEALTH,
  cells: [[5, 0], [-1, 3], [5, 5]], launches: [[1, 2], [-1, 3], [4, 5]], total_steps: 2,
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
