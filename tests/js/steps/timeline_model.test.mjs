import assert from "node:assert/strict";
import test from "node:test";
import "../page.mjs";
import { AXIS, GAP, MINIMAP, SPAN } from "../../../static/js/core/chart_model.js";
import { CALL, LAUNCH, OTHER, STREAM, STRIP, layout } from "../../../static/js/steps/timeline_lanes.js";
import {
  intervalsOf, stripParts, kernelMatcher, launchesIn, marksIn, missingWindow, prepare,
} from "../../../static/js/steps/timeline_model.js";
import { VERDICTS } from "../../../static/js/judged/badge.js";

const ORIGIN = 5_000_000_000;

function timeline({ count = [1, 1, 1], threads = [7], spans = [] } = {}) {
  return {
    start_ns: ORIGIN, end_ns: ORIGIN + 10_000, window_start_ns: ORIGIN, window_end_ns: ORIGIN + 10_000,
    threads, spans, calls: [{ thread: 7, depth: 0, start_ns: ORIGIN + 50, duration_ns: 9_000, graph_label: "0/0 forward" }],
    launches: {
      launch: [10, 11, 12], site: [0, 1, 0], thread: [7, 7, 7], start_ns: [100, 2_000, 8_000], duration_ns: [500, 1_000, -1], count,
    },
    sites: { 0: { kernel: "triton_poi_fused_add_0", kind: "triton" }, 1: { kernel: "extern_kernels.mm", kind: "extern" } },
    total_launches: 3,
  };
}
const bounds = { start: 0, end: 10_000 };

test("lanes stand below each other and add up", () => {
  const spans = [{ depth: 2, start_ns: ORIGIN, duration_ns: 5 }, { depth: 3, start_ns: ORIGIN, duration_ns: 2 }];
  const { lanes, height } = layout(timeline({ spans, threads: [7, 9] }));
  assert.deepEqual(lanes.map(({ kind }) => kind), ["spans", "spans", "calls", "launches", "launches"]);
  assert.equal(height, AXIS + MINIMAP + GAP + 2 * SPAN + GAP + CALL + LAUNCH + GAP + LAUNCH + GAP);
  lanes.slice(1).forEach((lane, index) => assert.ok(lane.y >= lanes[index].y + lanes[index].height));
});

test("streams of a profiled step have lanes below the threads, in their order", () => {
  const plain = timeline();
  const work = { launch: [11, -1, 10], site: [0, 1, 0], thread: [0, 0, 1], start_ns: [3_000, 2_500, 2_600], duration_ns: [100, 50, 900], count: [1, 1, 1] };
  const profiled = {
    ...plain, work, work_names: [{ kernel: "mm", kind: "extern" }, { kernel: "Memset (Device)", kind: "fill" }],
    streams: [{ device: 0, stream: 7 }, { device: 0, stream: 13 }],
  };
  const { lanes, height } = layout(profiled);
  assert.deepEqual(lanes.slice(-2).map(({ kind, name, thread }) => [kind, name, thread]), [["stream", "stream 7", 0], ["stream", "stream 13", 1]]);
  assert.equal(height, layout(plain).height + 2 * STREAM + GAP);
  const data = prepare(profiled);
  const of = (thread) => intervalsOf(data, { kind: "stream", thread }).map(({ launch, kernel, start, end }) => [launch, kernel, start, end]);
  assert.deepEqual(of(0), [[-1, "Memset (Device)", 2_500, 2_550], [11, "mm", 3_000, 3_100]]);
  assert.deepEqual(of(1), [[10, "mm", 2_600, 3_500]]);
  assert.equal(data.binned, false);
  assert.equal(prepare({ ...profiled, work: { ...work, count: [1, 1, 4] } }).binned, true);
  const two = layout({ ...profiled, streams: [{ device: 0, stream: 7 }, { device: 1, stream: 7 }] });
  assert.deepEqual(two.lanes.slice(-2).map(({ name }) => name), ["0 stream 7", "1 stream 7"]);
});

test("spans out of view take no room, and pinned rows come first", () => {
  const spans = [{ depth: 2, start_ns: ORIGIN, duration_ns: 5 }, { depth: 5, start_ns: ORIGIN, duration_ns: 2 }];
  const whole = layout(timeline({ spans }));
  assert.equal(whole.lanes.filter(({ kind }) => kind === "spans").length, 4);
  assert.equal(layout(timeline({ spans }), { spans: spans.slice(0, 1) }).height, whole.height - 3 * SPAN);
  assert.equal(layout(timeline({ spans }), { spans: [] }).height, whole.height - 4 * SPAN - GAP);
  const pinned = layout(timeline({ spans }), { hasMemory: true, pins: ["memory", "cpu0", "gone"] });
  assert.deepEqual(pinned.lanes.map(({ key }) => key), ["memory", "cpu0", "compile", "compile", "compile", "compile", "graph0"]);
  assert.deepEqual(pinned.lanes.filter((lane) => lane.pinned).map(({ key }) => key), ["memory", "cpu0"]);
  pinned.lanes.slice(1).forEach((lane, index) => assert.ok(lane.y >= pinned.lanes[index].y + pinned.lanes[index].height));
});

test("another step has a row for each of its threads below those of this step", () => {
  const { lanes, height } = layout(timeline(), { other: { step: 4, threads: [7, 9] } });
  assert.deepEqual(lanes.map(({ kind, name }) => [kind, name]), [["calls", "graph"], ["launches", "cpu"], ["other", "step 4"], ["other", "step 4"]]);
  assert.equal(height, layout(timeline()).height + 2 * OTHER + GAP);
});

test("marks that would cover each other are one, with the worst finding first", () => {
  const marks = [{ start: 500, thread: 7, title: "worst" }, { start: 505, thread: 7, title: "next" }, { start: 505, thread: 9 }, { start: 9_999, thread: 7 }];
  const groups = marksIn(marks, { start: 0, end: 1_000 }, (ns) => ns / 10);
  assert.deepEqual(groups.map(({ x, thread, marks: found }) => [x, thread, found.length]), [[50, 7, 2], [50.5, 9, 1]]);
  assert.equal(groups[0].marks[0].title, "worst");
  assert.equal(marksIn(marks, { start: 400, end: 600 }, (ns) => ns * 10).length, 3);
});

test("the health strip stands below the launches, and only where values were recorded", () => {
  const recorded = timeline();
  recorded.launches.health = [5, 0, -1];
  const { lanes, height } = layout(recorded);
  assert.deepEqual(lanes.map(({ kind }) => kind), ["calls", "launches", "health"]);
  assert.equal(height, layout(timeline()).height + STRIP);
  assert.deepEqual(prepare(recorded).launches.get(7).map(({ health }) => health), ["finite", "nan", "not_recorded"]);
});

test("launches that share a pixel show the worst of them", () => {
  const row = [
    { start: 0, end: 40, health: "finite" }, { start: 50, end: 90, health: "nan" }, { start: 95, end: 99, health: "finite" },
    { start: 500, end: 900, health: "zero" }, { start: 600, end: 650, health: "extreme" },
  ];
  const parts = stripParts(row, bounds, (ns) => ns / 100, 0, 100);
  assert.deepEqual(parts.map(({ from, health }) => [from, health]), [[0, "nan"], [5, "zero"], [6, "extreme"]]);
  assert.ok(parts.every(({ from, to }) => to > from));
  assert.deepEqual(stripParts(row, { start: 400, end: 450 }, (ns) => ns - 400, 0, 100), []);
});

test("verdicts of the judge are a row below the health of the launches", () => {
  const judged = timeline();
  judged.launches.health = [5, 0, -1];
  judged.launches.verdict = [2, 0, -1];
  const { lanes, height } = layout(judged);
  assert.deepEqual(lanes.map(({ kind }) => kind), ["calls", "launches", "health", "judge"]);
  assert.equal(height, layout(timeline()).height + 2 * STRIP);
  assert.deepEqual(prepare(judged).launches.get(7).map(({ verdict }) => verdict), ["ok", "wrong", null]);
  assert.deepEqual(prepare(timeline()).launches.get(7).map(({ verdict }) => verdict), [null, null, null]);
});

test("verdicts that share a pixel become the worst of them, and no verdict hides none", () => {
  const row = [{ start: 0, end: 9, verdict: "ok" }, { start: 10, end: 19, verdict: "wrong" }, { start: 20, end: 29, verdict: "unjudged" }, { start: 30, end: 39, verdict: null }];
  const parts = (scale) => stripParts(row, bounds, (ns) => ns / scale, 0, 100, "verdict", VERDICTS).map(({ verdict }) => verdict);
  assert.deepEqual(parts(100), ["wrong"]);
  assert.deepEqual(parts(1), ["ok", "wrong", "unjudged", null]);
});

test("a launch that did not return lasts to the end of the step", () => {
  const [first, , last] = prepare(timeline()).launches.get(7);
  assert.deepEqual([first.start, first.end, first.returned], [100, 600, true]);
  assert.deepEqual([last.end, last.returned], [10_000, false]);
});

test("a launch that returned nobody knows when is drawn at its place, without a time", () => {
  const some = timeline();
  some.launches.duration_ns = [500, -2, -2];
  const [first, , last] = prepare(some).launches.get(7);
  assert.deepEqual([first.timed, last.timed, last.returned, last.end], [true, false, true, 8_001]);
  assert.equal(prepare(some).untimed, false);
  some.launches.duration_ns = [-2, -2, -2];
  assert.equal(prepare(some).untimed, true);
});

test("finer data is asked for only where bins are in view", () => {
  const sharp = prepare(timeline());
  const binned = prepare(timeline({ count: [1, 40, 1] }));
  assert.equal(missingWindow(sharp, { start: 2_000, end: 3_000 }, bounds), null);
  assert.equal(missingWindow(binned, bounds, bounds), null);
  assert.equal(missingWindow(binned, { start: 0, end: 700 }, bounds), null);
  assert.deepEqual(missingWindow(binned, { start: 2_000, end: 3_000 }, bounds), { start: 1_750, end: 3_250 });
});

test("kernel filter: all words, any case, with wildcards; signs are no patterns", () => {
  assert.equal(kernelMatcher("  "), null);
  assert.ok(kernelMatcher("FUSED add")("triton_poi_fused_add_0"));
  assert.ok(kernelMatcher("triton*add")("triton_poi_fused_add_0"));
  assert.ok(!kernelMatcher("kernels.mm")("kernelsxmm"));
  assert.ok(!kernelMatcher("(")("triton"));
});

test("list of launches: in time order, filtered, cut with what is left", () => {
  const data = prepare(timeline({ count: [1, 5, 1] }));
  assert.deepEqual(launchesIn(data, bounds, null, 10).rows.map(({ launch }) => launch), [10, 11, 12]);
  assert.equal(launchesIn(data, bounds, null, 10).total, 7);
  assert.equal(launchesIn(data, bounds, null, 1).left, 6);
  assert.deepEqual(launchesIn(data, bounds, kernelMatcher("mm"), 10).rows.map(({ launch }) => launch), [11]);
  assert.equal(launchesIn(data, { start: 700, end: 1_900 }, null, 10).total, 0);
});
