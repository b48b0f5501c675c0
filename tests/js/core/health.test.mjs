import assert from "node:assert/strict";
import test from "node:test";
import "../page.mjs";
import { HEALTH, NAMES, SIGNS, countsText, remarks, segments } from "../../../static/js/core/health.js";

const healthy = {
  skipped: null, numel: 100, looked_at: 100, nan: 0, positive_infinity: 0, negative_infinity: 0, zero: 0, near_overflow: 0, subnormal: 0,
  first_bad: null, first_bad_index: null,
};

test("every class has a name and a sign of its own, or a pattern", () => {
  assert.deepEqual(Object.keys(NAMES).sort(), [...HEALTH].sort());
  const signs = HEALTH.map((name) => SIGNS[name]).filter(Boolean);
  assert.equal(new Set(signs).size, signs.length);
});

test("the parts of a strip add up to what was looked at", () => {
  const row = { ...healthy, nan: 4, positive_infinity: 1, zero: 20, near_overflow: 2, subnormal: 3 };
  const parts = segments(row);
  assert.deepEqual(parts.map(({ name }) => name), ["finite", "zero", "extreme", "positive_infinity", "nan"]);
  assert.equal(parts.reduce((sum, { count }) => sum + count, 0), 100);
  assert.equal(parts.find(({ name }) => name === "extreme").count, 5);
  assert.deepEqual(segments(healthy), [{ name: "finite", count: 100, share: 1 }]);
});

test("counts that are lower bounds say so, and nothing of the other elements", () => {
  const row = { ...healthy, nan: 1, positive_infinity: 1, zero: null, near_overflow: null, subnormal: null, at_least: true };
  assert.deepEqual(segments(row).map(({ name, share }) => [name, share]), [["positive_infinity", 0.5], ["nan", 0.5]]);
  assert.equal(countsText(row), "+inf ≥ 1 · NaN ≥ 1");
  assert.equal(countsText({ ...row, at_least: false }), "finite 98 · +inf 1 · NaN 1");
});

test("one element among billions keeps its part", () => {
  const parts = segments({ ...healthy, numel: 4e9, looked_at: 4e9, nan: 1 });
  assert.equal(parts.at(-1).name, "nan");
  assert.ok(parts.at(-1).share > 0);
});

test("dtypes without some classes, and values that were not read", () => {
  assert.deepEqual(segments({ ...healthy, nan: null, near_overflow: null, subnormal: null }).length, 1);
  assert.deepEqual(segments({ ...healthy, skipped: "sparse" }), []);
  assert.deepEqual(remarks({ ...healthy, skipped: "sparse" }), []);
});

test("what is said of a row", () => {
  const row = { ...healthy, numel: 5000, nan: 4, subnormal: 3, first_bad: 17, first_bad_index: [0, 0, 3, 17] };
  assert.deepEqual(remarks(row), ["subnormal 3", "NaN 4", "sample of 100 in 5,000", "first at [0, 0, 3, 17]"]);
  assert.deepEqual(remarks({ ...row, numel: 100, first_bad_index: null }), ["subnormal 3", "NaN 4", "of 100", "first at element 17"]);
  assert.deepEqual(remarks(healthy), []);
  assert.equal(countsText(row), "finite 93 · subnormal 3 · NaN 4");
});
