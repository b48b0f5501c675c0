import assert from "node:assert/strict";
import test from "node:test";
import "../page.mjs";
import { byHealth } from "../../../static/js/steps/panel_order.js";

const argument = (number, role) => ({ argument: number, role });
const row = (counts) => ({ looked_at: 8, numel: 8, skipped: null, at_least: false, ...counts });
const values = (number, before, after) => ({ argument: number, before: before.map(row), after: after.map(row) });

test("the worst tensor comes first, outputs before inputs, and healthy ones stay in their order", () => {
  const rows = [argument(0, "in"), argument(1, "in"), argument(2, "inout"), argument(3, "out"), argument(4, "out"), argument(5, "out")];
  const known = [
    values(0, [{}], []), values(1, [{ nan: 1 }], []), values(2, [{ positive_infinity: 2 }], [{}]), values(3, [], [{ zero: 8 }]),
    values(4, [], [{ nan: 3, positive_infinity: 1 }]), values(5, [], [{ negative_infinity: 1 }]),
  ];
  const { bad, rest } = byHealth(rows, known);
  assert.deepEqual(bad.map(({ argument: number }) => number), [4, 1, 2, 5]);
  assert.deepEqual(rest.map(({ argument: number }) => number), [0, 3]);
});

test("without values, or where a value was not read, arguments stay in their order", () => {
  const rows = [argument(0, "in"), argument(1, "out")];
  for (const known of [null, [], [values(1, [], [{ skipped: "too large", nan: null }])]]) {
    assert.deepEqual(byHealth(rows, known), { bad: [], rest: rows });
  }
});
