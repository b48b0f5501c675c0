import assert from "node:assert/strict";
import test from "node:test";
import {
  axisStart, clampView, labelled, linearTicks, logFits, logTicks, placeX, pointAt, rangeInView, rangeOf, roundUp, scaleOf, stepLabels, thinned, zoomed,
} from "../../../static/js/core/plot_model.js";

test("ticks are round and inside", () => {
  assert.deepEqual(linearTicks(0, 10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(linearTicks(-0.3, 0.3, 3), [-0.2, 0, 0.2]);
  assert.deepEqual(logTicks(1, 1000, 8), [1, 10, 100, 1000]);
  assert.deepEqual(logTicks(0.9, 25, 8), [1, 2, 5, 10, 20]);
});

test("a wide logarithmic axis has few ticks", () => {
  const ticks = logTicks(1e-40, 1e38, 8);
  assert.ok(ticks.length <= 10 && ticks.length >= 4);
  assert.ok(ticks.every((value) => Number.isInteger(Math.round(Math.log10(value)))));
});

test("a limit that is near is drawn, one that is far is named", () => {
  const near = rangeOf([10, 60_000], { log: true, limit: 65_504 });
  assert.ok(near.high >= 65_504 && !near.limitAbove);
  const far = rangeOf([1e-3, 10], { log: true, limit: 3.4e38 });
  assert.ok(far.high < 100 && far.limitAbove);
  assert.ok(rangeOf([1, 2], { limit: 65_504 }).limitAbove);
});

test("ranges of nothing, of one value and of the largest there is", () => {
  for (const log of [false, true]) {
    for (const values of [[], [null], [0], [5], [-5, -5], [1.7976931348623157e308]]) {
      const { low, high } = rangeOf(values, { log });
      assert.ok(Number.isFinite(low) && Number.isFinite(high) && low < high, `${values} ${log}`);
    }
  }
});

test("places on both kinds of axis", () => {
  const linear = scaleOf({ low: 0, high: 10 }, 200, false);
  assert.deepEqual([linear.at(0), linear.at(5), linear.at(10)], [200, 100, 0]);
  const log = scaleOf({ low: 1, high: 100 }, 200, true);
  assert.deepEqual([log.at(1), log.at(10), log.at(100), log.at(0)], [200, 100, 0, 200]);
});

test("when a logarithmic axis can and should be used", () => {
  assert.deepEqual(logFits([1, 2, null]), { can: true, better: false });
  assert.deepEqual(logFits([1e-3, 10]), { can: true, better: true });
  assert.deepEqual(logFits([0, 5, 9]), { can: true, better: false });
  assert.equal(logFits([-1, 100]).can, false);
  assert.equal(logFits([0, null]).can, false);
});

test("the point under the pointer, also beyond the ends", () => {
  assert.equal(placeX(3, [0, 6], 600), 300);
  assert.equal(pointAt(290, [0, 6], 600), 3);
  assert.deepEqual([pointAt(-50, [0, 6], 600), pointAt(9999, [0, 6], 600), pointAt(10, [0, 0], 600)], [0, 6, 0]);
});

test("labels stand at the first point of a step, of round steps where there are many", () => {
  const steps = [0, 0, 1, 2, 2];
  assert.deepEqual(stepLabels(steps, 400, 64).map(({ index }) => index), [0, 2, 3]);
  const many = Array.from({ length: 3000 }, (_, index) => Math.floor(index / 2));
  assert.deepEqual(stepLabels(many, 1000, 68).map(({ step }) => step), [0, 200, 400, 600, 800, 1000, 1200, 1400]);
  assert.deepEqual(stepLabels([7, 93, 1001], 400, 64).map(({ step }) => step), [7, 93, 1001]);
  assert.deepEqual(stepLabels([], 400, 64), []);
  assert.deepEqual([0.2, 1, 1.1, 3, 7, 13].map(roundUp), [1, 1, 2, 5, 10, 20]);
});

test("of signs that overlap the worst is kept", () => {
  const marks = [{ index: 0, name: "positive_infinity" }, { index: 1, name: "nan" }, { index: 90, name: "nan" }];
  const found = thinned(marks, [0, 99], 500, 12, ["nan", "positive_infinity"]);
  assert.deepEqual(found.map(({ name, index }) => [name, index]), [["nan", 1], ["nan", 90]]);
});

test("a view stays inside and holds at least two points", () => {
  assert.deepEqual(clampView(null, 10), [0, 9]);
  assert.deepEqual(clampView([7, 3], 10), [3, 7]);
  assert.deepEqual(clampView([-5, 50], 10), [0, 9]);
  assert.deepEqual(clampView([4, 4], 10), [3, 5]);
  assert.deepEqual([clampView(null, 0), clampView([3, 4], 1)], [[0, 0], [0, 0]]);
});

test("zooming keeps the point under the cursor and comes back", () => {
  assert.deepEqual(zoomed([0, 100], 0.5, 50, 101), [25, 75]);
  assert.deepEqual(zoomed([25, 75], 2, 50, 101), [0, 100]);
  assert.deepEqual(zoomed([0, 100], 0.5, 0, 101), [0, 50]);
});

test("the range is of what is in view and of known values", () => {
  const series = [{ values: [1, null, 100, 5] }, { values: [2, 3, NaN, 50] }];
  assert.equal(rangeInView(series, [0, 1]).high, 3 * 1.06);
  assert.deepEqual(rangeInView([{ values: [null] }], [0, 0]), { low: 0, high: 1.06 });
  assert.equal(rangeInView([{ values: [-4, 4] }], [0, 1]).low, -4);
});

test("points are found where they were put", () => {
  for (const index of [10, 11, 15, 20]) assert.equal(pointAt(placeX(index, [10, 20], 400), [10, 20], 400), index);
  assert.equal(pointAt(-50, [10, 20], 400), 10);
  assert.equal(pointAt(900, [10, 20], 400), 20);
});

test("labels have room", () => {
  assert.deepEqual(labelled([0, 4], 400, 76), [0, 1, 2, 3, 4]);
  const many = labelled([0, 5000], 800, 76);
  assert.ok(many.length <= 12 && many[0] === 0);
});

test("an axis that leaves out zero says so", () => {
  const format = (value) => `${value} MB`;
  assert.equal(axisStart({ low: 3.2, high: 5 }, format), "The axis starts at 3.2 MB.");
  assert.equal(axisStart({ low: 0, high: 5 }, format), null);
  assert.equal(axisStart({ low: -2, high: 5 }, format), null);
  assert.equal(axisStart({ low: -5, high: -2 }, format), "The axis ends at -2 MB.");
  assert.equal(rangeInView([{ values: [7, 9] }], [0, 1], null, 6).low, 6);
});
