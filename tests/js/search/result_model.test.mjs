import assert from "node:assert/strict";
import { test } from "node:test";
import { lanesOf } from "../../../static/js/search/result_model.js";

test("rows that overlap are drawn below each other, in lanes of their own", () => {
  const { rows, end } = lanesOf({ start: [0, 5, 10, 12], duration: [20, 3, 2, 9], name: ["a", "b", "c", "d"], lane: ["1", "1", "1", "2"], row: [0, 1, 2, 3] });
  assert.deepEqual(rows.map(({ label, intervals }) => [label, intervals.map(({ name }) => name)]), [["1", ["a"]], ["", ["b", "c"]], ["2", ["d"]]]);
  assert.equal(end, 21);
  assert.ok(rows[0].y < rows[1].y && rows[1].y < rows[2].y);
});

test("a result of empty intervals has a length", () => assert.equal(lanesOf({ start: [0], duration: [0], name: [""], lane: [""], row: [0] }).end, 1));
