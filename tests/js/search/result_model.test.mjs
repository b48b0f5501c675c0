import assert from "node:assert/strict";
import { test } from "node:test";
import { lanesOf, linesOf } from "../../../static/js/search/result_model.js";

test("rows that overlap are drawn below each other, in lanes of their own", () => {
  const { rows, end } = lanesOf({ start: [0, 5, 10, 12], duration: [20, 3, 2, 9], name: ["a", "b", "c", "d"], lane: ["1", "1", "1", "2"], row: [0, 1, 2, 3] });
  assert.deepEqual(rows.map(({ label, intervals }) => [label, intervals.map(({ name }) => name)]), [["1", ["a"]], ["", ["b", "c"]], ["2", ["d"]]]);
  assert.equal(end, 21);
  assert.ok(rows[0].y < rows[1].y && rows[1].y < rows[2].y);
});

test("a result of empty intervals has a length", () => assert.equal(lanesOf({ start: [0], duration: [0], name: [""], lane: [""], row: [0] }).end, 1));

test("a result with ranks is one line for each rank over the same places", () => {
  const { x, names, rows, valuesOf } = linesOf({ x: [0, 1, 2, 0, 2], series: { bytes: [1, 2, 3, 10, 30] }, row: [4, 3, 2, 1, 0], lines: ["rank 10", "rank 10", "rank 10", "rank 2", "rank 2"] });
  assert.deepEqual(x, [0, 1, 2]);
  assert.deepEqual(names, ["rank 2", "rank 10"]);
  assert.deepEqual(valuesOf("bytes"), [[10, null, 30], [1, 2, 3]]);
  assert.deepEqual(rows, [4, 3, 2]);
});

test("a result without ranks is one line", () => {
  const { x, rows, valuesOf } = linesOf({ x: [1, 3], series: { bytes: [2, 1] }, row: [5, 2], lines: null });
  assert.deepEqual([x, rows, valuesOf("bytes")], [[1, 3], [5, 2], [[2, 1]]]);
});
