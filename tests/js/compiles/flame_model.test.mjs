import assert from "node:assert/strict";
import test from "node:test";
import { gapAt, inPart, partsOf, spent } from "../../../static/js/compiles/flame_model.js";

const gaps = [{ at_ns: 100, shown_ns: 10, length_ns: 5000 }, { at_ns: 300, shown_ns: 10, length_ns: 9000 }];

test("each part between gaps counts time from its own start", () => {
  const parts = partsOf({ gaps });
  assert.deepEqual(parts, [{ start: 0, end: 100 }, { start: 110, end: 300 }, { start: 310, end: Infinity }]);
  assert.deepEqual([0, 99, 110, 250, 310, 1000].map((ns) => inPart(parts, ns)), [0, 99, 0, 140, 0, 690]);
  assert.deepEqual(partsOf({ gaps: [] }), [{ start: 0, end: Infinity }]);
});

test("a place in a gap is in no part's spans", () => {
  assert.equal(gapAt(gaps, 105), gaps[0]);
  assert.deepEqual([99, 100, 110, 299, 310].map((ns) => gapAt(gaps, ns)), [null, null, null, null, null]);
});

test("what is in view is counted without folded stretches", () => {
  assert.equal(spent(gaps, { start: 0, end: 400 }), 380);
  assert.equal(spent(gaps, { start: 105, end: 305 }), 190);
  assert.equal(spent([], { start: 105, end: 305 }), 200);
});
