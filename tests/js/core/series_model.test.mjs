import assert from "node:assert/strict";
import test from "node:test";
import { clampView, labelled, placeX, pointAt, rangeInView, zoomed } from "../../../static/js/core/series_model.js";

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
