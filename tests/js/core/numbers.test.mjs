import assert from "node:assert/strict";
import test from "node:test";
import { firstWhere, roundStep } from "../../../static/js/core/numbers.js";

test("the first index is found, also before all and behind all", () => {
  const values = [1, 3, 3, 7];
  assert.deepEqual([0, 1, 2, 3, 7, 8].map((least) => firstWhere(values.length, (index) => values[index] >= least)), [0, 0, 1, 1, 3, 4]);
  assert.equal(firstWhere(0, () => true), 0);
});

test("steps are round and not less than asked", () => {
  assert.deepEqual([0.03, 0.2, 1, 1.1, 3, 7, 13, 100].map(roundStep), [0.05, 0.2, 1, 2, 5, 10, 20, 100]);
});
