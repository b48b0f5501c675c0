import assert from "node:assert/strict";
import test from "node:test";
import { byOwner } from "../../../static/js/values/owners.js";

test("a line ends where another buffer takes over the memory", () => {
  const series = byOwner([1, 2, 3, 4], ["buf3", "buf3", "buf7", "buf3"]);
  assert.deepEqual(series.map(({ name, values }) => [name, values]), [["buf3", [1, 2, null, 4]], ["buf7", [null, null, 3, null]]]);
  assert.notEqual(series[0].colour, series[1].colour);
});
