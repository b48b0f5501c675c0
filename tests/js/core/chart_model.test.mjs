import assert from "node:assert/strict";
import test from "node:test";
import { clamp, edgeAt, inView, pan, pick, reveal, spanOf, ticks, zoom } from "../../../static/js/core/chart_model.js";

const bounds = { start: 0, end: 10_000 };

test("pick finds what is under the pointer, or the nearest within reach", () => {
  const row = [{ launch: 10, start: 100, end: 600 }, { launch: 11, start: 2_000, end: 3_000 }, { launch: 12, start: 8_000, end: 10_000 }];
  assert.equal(pick(row, 300, 0).launch, 10);
  assert.equal(pick(row, 700, 0), null);
  assert.equal(pick(row, 700, 150).launch, 10);
  assert.equal(pick(row, 1_400, 900).launch, 11);
  assert.equal(pick([], 5, 5), null);
});

test("zoom keeps the time under the pointer and stays inside the step", () => {
  const view = zoom({ start: 2_000, end: 6_000 }, bounds, 0.5, 3_000);
  assert.deepEqual(view, { start: 2_500, end: 4_500 });
  assert.deepEqual(zoom(view, bounds, 1000, 3_000), bounds);
  const closest = zoom(view, bounds, 1e-9, 3_000);
  assert.equal(Math.round(closest.end - closest.start), 200);
});

test("moving stops at the ends", () => {
  assert.deepEqual(pan({ start: 100, end: 1_100 }, bounds, -500), { start: 0, end: 1_000 });
  assert.deepEqual(pan({ start: 100, end: 1_100 }, bounds, 1e9), { start: 9_000, end: 10_000 });
  assert.deepEqual(clamp({ start: -5, end: 1e9 }, bounds), bounds);
});

test("a step shorter than the shortest view can still be shown", () => {
  assert.deepEqual(clamp({ start: 0, end: 50 }, { start: 0, end: 50 }), { start: 0, end: 50 });
});

test("a selected launch in sight moves nothing; a far or tiny one is brought near", () => {
  const view = { start: 0, end: 10_000 };
  assert.equal(reveal(view, bounds, 2_000, 3_000), view);
  const near = reveal({ start: 0, end: 1_000 }, bounds, 8_000, 8_100);
  assert.ok(near.start <= 8_000 && near.end >= 8_100);
  const closer = reveal(view, bounds, 5_000, 5_001);
  assert.ok(closer.end - closer.start < 1_000);
});

test("ticks are round and inside the view", () => {
  const { step, values } = ticks({ start: 130, end: 1_130 }, 5);
  assert.equal(step, 200);
  assert.deepEqual(values, [200, 400, 600, 800, 1_000]);
});

test("intervals in view are those that touch it", () => {
  const row = [{ start: 0, end: 5 }, { start: 10, end: 15 }, { start: 20, end: 25 }, { start: 30, end: 35 }];
  assert.deepEqual(inView(row, { start: 15, end: 20 }), row.slice(1, 3));
  assert.deepEqual(inView(row, { start: 40, end: 50 }), []);
});

test("a drag in either direction is a span of whole ns inside the bounds", () => {
  assert.deepEqual(spanOf(80.6, 20.4, { start: 0, end: 100 }), { start: 20, end: 81 });
  assert.deepEqual(spanOf(-5, 300, { start: 0, end: 100 }), { start: 0, end: 100 });
});

test("at an edge of an area, the other edge stays", () => {
  const area = { start: 100, end: 200 };
  assert.deepEqual([edgeAt(area, 103, 5), edgeAt(area, 196, 5), edgeAt(area, 150, 5), edgeAt(null, 100, 5)], [200, 100, null, null]);
});
