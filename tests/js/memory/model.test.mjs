import assert from "node:assert/strict";
import test from "node:test";
import { graphPlot, hiddenAtFirst, leakPlot, recomputePlot, runPlot, sharedAxis, shownPlot, stepLabels, valueLines } from "../../../static/js/memory/model.js";

const nodes = {
  snode: ["op0", "op1", "op2"], after_alloc_bytes: [512, 1536, 1088], after_free_bytes: [512, 1024, 1088], measured_bytes: [512, 1536, null],
  measured_base_bytes: [384, 384, 384], allocated_bytes: [null, null, null], reserved_bytes: [8192, 8192, null], site: [7, null, 8], mismatches: [0, 2, 0],
};
const memory = {
  nodes, label: "0/0 forward", call: { call: 0 }, base_bytes: 384,
  estimated_peak: { snode_indices: [1] }, measured_peak: { snode_indices: [1] },
};
const places = { kernels: ["extern_kernels.mm", "cpp_fused_mean_1"], lines: ["model.py:10  x @ w"], sites: { 7: [0, 0], 8: [1, null] } };

test("series that nobody recorded are not there", () => {
  const plot = graphPlot(memory, places);
  assert.deepEqual(plot.series.map(({ key }) => key), ["base", "alloc", "free", "measured", "reserved"]);
  assert.deepEqual(plot.markers.map(({ key, index, sign }) => [key, index, sign === "✖"]), [["alloc", 1, false], ["measured", 1, false], [undefined, 1, true]]);
});

test("a point says its kernel, its line and what went wrong there", () => {
  const { more } = graphPlot(memory, places);
  assert.deepEqual(more(0), [["", "extern_kernels.mm"], ["", "model.py:10  x @ w"]]);
  assert.deepEqual(more(1), [["", "no launch of this node"], ["✖", "2 lifetime mismatches"]]);
});

test("findings are marked at their node, the worst for all of them, and those of no node are not", () => {
  const found = [
    { snode_index: 1, snode: "op1", sign: "▲", severity: "warning", title: "not freed" },
    { snode_index: 1, snode: "op1", sign: "●", severity: "info", title: "over the estimate" },
    { snode_index: null, snode: null, sign: "▲", severity: "warning", title: "somewhere" },
  ];
  const signs = shownPlot(graphPlot(memory, places, found), new Set(["measured"])).markers.filter(({ sign }) => sign);
  assert.deepEqual(signs.map(({ index, name, sign, severity }) => [index, name, sign, severity]), [[1, "not freed, and 1 more finding", "▲", "warning"]]);
});

test("what would press the curves flat begins hidden, and its markers go with it", () => {
  const plot = graphPlot(memory, places);
  assert.deepEqual(hiddenAtFirst(plot.series), ["reserved"]);
  const shown = shownPlot(plot, new Set(["base", "alloc", "reserved"]));
  assert.deepEqual(shown.series.map(({ key }) => key), ["free", "measured"]);
  assert.deepEqual(shown.markers.map(({ name, series, sign }) => [name, series, sign]), [["measured peak", 1, undefined], ["", undefined, "✖"]]);
});

test("the base is stacked below the curves and the legend says so", () => {
  const plot = graphPlot(memory, places);
  const shown = shownPlot(plot, new Set(["reserved"]));
  const of = (key) => shown.series.find((one) => one.key === key);
  assert.deepEqual(of("base").values, [384, 384, 384]);
  assert.deepEqual(of("alloc").values, [896, 1920, 1472]);
  assert.deepEqual(of("measured").values, [896, 1920, null]);
  assert.deepEqual([of("alloc").name, of("measured").name], ["estimated after alloc + base", "measured + base"]);
  assert.equal(shown.from, 0);
  const without = shownPlot(plot, new Set(["base", "reserved"])).series.find(({ key }) => key === "measured");
  assert.deepEqual([without.name, without.values], ["measured", [512, 1536, null]]);
});

test("the values under the cursor are exact, with the sum", () => {
  const shown = shownPlot(graphPlot(memory, places), new Set(["reserved"]));
  const exact = (value) => `${value} B`;
  assert.deepEqual(valueLines(shown, 1, exact).at(-1), ["measured + base", "1536 B + 384 B = 1.9 kB"]);
  assert.deepEqual(valueLines(shown, 2, exact).at(-1), ["measured + base", "– (not recorded)"]);
});

test("an estimate that counts another base stands on its own", () => {
  const other = graphPlot({ ...memory, base_bytes: 1000 }, places);
  const shown = shownPlot(other, new Set());
  assert.deepEqual(shown.series.slice(0, 2).map(({ name }) => name), ["base: inputs and parameters that stay", "estimated after alloc + base of 1.0 kB"]);
  assert.deepEqual(shown.series.slice(0, 2).map(({ values }) => values[0]), [384, 1512]);
});

test("the axis starts in a base that would press the curves flat", () => {
  const high = graphPlot({ ...memory, base_bytes: 3_200_000, nodes: { ...nodes, measured_base_bytes: [3_200_000, 3_200_000, 3_200_000] } }, places);
  const { from } = shownPlot(high, new Set());
  assert.ok(from > 3_195_000 && from < 3_200_000 && from % 500 === 0);
  assert.equal(shownPlot(high, new Set(["base"])).from, 0);
  assert.deepEqual(sharedAxis([high, graphPlot(memory, places)], new Set()), { from: 0, least: 3_201_536 });
});

test("without a schedule the launches are the axis", () => {
  const positions = { live_bytes: [5, 9, 4], base_bytes: [1, 1, 1], launch: [61, 62, null], site: [7, 8, null], allocator_position: [1], allocated_bytes: [40], reserved_bytes: [80] };
  const plot = graphPlot({ ...memory, nodes: null, positions, measured_peak: { position: 1 } }, places);
  assert.deepEqual(plot.names, ["launch 61", "launch 62", "end"]);
  assert.deepEqual(plot.series.find(({ key }) => key === "allocated").values, [null, 40, null]);
  assert.deepEqual(plot.more(2), [["", "the end of the call"]]);
});

test("a recompute mismatch marks every node at the peak", () => {
  const column = [1, 2, 2];
  const detail = {
    snode: ["a", "b", "c"], differs: [1], before_after_alloc_bytes: [null, null, null], carried_after_alloc_bytes: column, carried_after_free_bytes: column,
    recomputed_after_alloc_bytes: column, recomputed_after_free_bytes: column, row: { peak_snodes: [1, 2], candidate: "b", group: ["c"] },
  };
  const plot = recomputePlot(detail);
  assert.equal(plot.series.some(({ key }) => key === "before"), false);
  assert.deepEqual(plot.markers.map(({ index }) => index), [1, 2]);
  assert.deepEqual(plot.more(1), [["", "moved node"], ["✖", "the figures differ here"]]);
});

test("points of a run know their step and how far into it they are", () => {
  const curve = { steps: [4, 5], start_ns: [1000, 3000], end_ns: 4000, high_bytes: [1, 2, 3, 9, 5, 6], low_bytes: [1, 1, 1, 1, 1, 1], made_bytes: [0, 0, 0, 0, 0, 0] };
  const plot = runPlot(curve);
  assert.deepEqual(plot.names.slice(0, 4), ["step 4 +0 ns", "step 4 +667 ns", "step 4 +1.33 us", "step 5 +0 ns"]);
  assert.deepEqual([plot.stepAt(2), plot.stepAt(3)], [4, 5]);
  assert.equal(plot.markers[0].index, 3);
  assert.deepEqual(plot.labelsIn([0, 5], 500, 76), [0, 3]);
});

test("findings are marked at the first point of their step, and those out of view are not", () => {
  const curve = { steps: [4, 5], start_ns: [1000, 3000], end_ns: 4000, high_bytes: [1, 2, 3, 9], low_bytes: [1, 1, 1, 1], made_bytes: [0, 0, 0, 0] };
  const marks = [{ step: 5, severity: "warning", sign: "▲", title: "Memory grows" }, { step: 9, severity: "info", sign: "●", title: "later" }];
  const [, ...found] = shownPlot(runPlot(curve, marks), new Set()).markers;
  assert.deepEqual(found.map(({ index, name, sign, severity }) => [index, name, sign, severity]), [[2, "Memory grows", "▲", "warning"]]);
});

test("labels of steps thin out", () => {
  assert.deepEqual(stepLabels([0, 9], 100, 50, (point) => Math.floor(point / 2)), [0, 6]);
});

test("a leak is a staircase with a mark at each step that left something", () => {
  const plot = leakPlot({ steps: [3, 4, 5], live_bytes: [100, 164, 228], held_bytes: [0, 64, 128], left_bytes: [0, 64, 64] });
  assert.deepEqual(plot.names, ["end of step 3", "end of step 4", "end of step 5"]);
  assert.deepEqual(plot.markers.map(({ index, name }) => [index, name]), [[1, "64 B left by this step"], [2, "64 B left by this step"]]);
  assert.deepEqual(shownPlot(plot, new Set()).markers.map(({ series }) => series), [2, 2]);
  assert.deepEqual(leakPlot({ steps: [3], live_bytes: [null], held_bytes: [8], left_bytes: [8] }).series.map(({ key }) => key), ["held", "held line"]);
});
