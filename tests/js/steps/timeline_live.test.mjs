import assert from "node:assert/strict";
import test from "node:test";
import { BANDS, LiveLane, indexAt } from "../../../static/js/steps/timeline_live.js";

const curve = (changes) => ({
  window_start_ns: 1000, window_end_ns: 2000, start_ns: 1000, end_ns: 2000, at_ns: [0, 400, 800], low_bytes: [1, 4, 2], high_bytes: [1, 9, 2], made_bytes: [0, 7, 1], saved_bytes: [0, 2, 1], kept_bytes: [0, 1, 0],
  merged: true, ...changes,
});
const lane = () => new LiveLane(curve(), 1000, { start: 0, end: 1000 });

test("a place reads the last point before it", () => {
  assert.deepEqual([indexAt([0, 400], -1), indexAt([0, 400], 399), indexAt([0, 400], 400)], [-1, 0, 1]);
  assert.equal(lane().lines(500)[0], "4 B to 9 B");
  assert.equal(lane().lines(900)[0], "2 B");
  assert.deepEqual(lane().lines(-5), ["no compiled call has seen a storage yet"]);
});

test("the bands of a point add up to its live bytes", () => {
  const { bands, high } = lane().whole;
  assert.deepEqual(BANDS.map(({ name }) => bands[name][1]), [2, 2, 1, 4]);
  high.forEach((bytes, index) => assert.equal(BANDS.reduce((sum, { name }) => sum + bands[name][index], 0), bytes));
  assert.deepEqual(lane().lines(900).slice(2), [["saved for a backward call:", "1 B"], ["inputs and parameters:", "1 B"]]);
});

test("only a narrower view of joined points asks for more", () => {
  assert.equal(lane().missing({ start: 0, end: 1000 }), null);
  assert.deepEqual(lane().missing({ start: 400, end: 600 }), { start: 350, end: 650 });
  const exact = new LiveLane(curve({ merged: false }), 1000, { start: 0, end: 1000 });
  assert.equal(exact.missing({ start: 400, end: 600 }), null);
});

test("finer points serve the view they cover, the whole ones any other", () => {
  const live = lane();
  live.show(curve({ window_start_ns: 1350, window_end_ns: 1650, at_ns: [0, 50], low_bytes: [1, 4], high_bytes: [1, 9], made_bytes: [0, 3], saved_bytes: [0, 0], kept_bytes: [0, 3], merged: false }));
  assert.deepEqual(live.points({ start: 400, end: 600 }).at, [350, 400]);
  assert.deepEqual(live.points({ start: 0, end: 1000 }).at, [0, 400, 800]);
  assert.equal(live.missing({ start: 420, end: 440 }), null);
});
