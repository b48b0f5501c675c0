import assert from "node:assert/strict";
import test from "node:test";
import "../page.mjs";
import { OtherStep } from "../../../static/js/steps/other_step.js";
import { prepare } from "../../../static/js/steps/timeline_model.js";

function timeline(step, origin, starts, count = 1) {
  return {
    step, start_ns: origin, end_ns: origin + 10_000, window_start_ns: origin, window_end_ns: origin + 10_000, threads: [7], spans: [], calls: [],
    launches: {
      launch: starts.map((_, index) => 10 * step + index), site: starts.map(() => 0), thread: starts.map(() => 7),
      start_ns: starts, duration_ns: starts.map(() => 100), count: starts.map(() => count),
    },
    sites: { 0: { kernel: "mm", kind: "extern" } },
  };
}

const own = prepare(timeline(3, 50_000, [2_000, 2_500]));

test("the first launches of both steps stand below each other", () => {
  const other = new OtherStep(timeline(1, 5_000, [100, 900]), own, 50_000);
  assert.deepEqual(other.whole.launches.get(7).map(({ start, end }) => [start, end]), [[2_000, 2_100], [2_800, 2_900]]);
  assert.equal(50_000 + 2_000 + other.offset, 5_000 + 100);
});

test("a launch has the launch of the same site and position in this step as partner", () => {
  const other = new OtherStep(timeline(1, 5_000, [100, 900, 1_500]), own, 50_000);
  assert.deepEqual([10, 11, 12].map((launch) => other.partner(launch, own)?.launch ?? null), [30, 31, null]);
});

test("joined launches are asked for in a narrower view, and have no partners", () => {
  const other = new OtherStep(timeline(1, 5_000, [100, 900], 40), own, 50_000);
  assert.equal(other.partner(10, own), null);
  assert.equal(other.missing({ start: 0, end: 10_000 }), null);
  assert.deepEqual(other.missing({ start: 2_000, end: 3_000 }), { start: 1_900, end: 3_250 });
  assert.equal(new OtherStep(timeline(1, 5_000, [100]), own, 50_000).missing({ start: 2_000, end: 3_000 }), null);
  other.show({ ...timeline(1, 5_000, [100, 150]), window_start_ns: 5_000, window_end_ns: 6_350 });
  assert.equal(other.in({ start: 2_000, end: 3_000 }).launches.get(7)[1].start, 2_050);
  assert.equal(other.in({ start: 0, end: 10_000 }), other.whole);
});
