import assert from "node:assert/strict";
import test from "node:test";
import { graphPlot, hiddenAtFirst, recomputePlot, runPlot, shownPlot, stepLabels } from "../../../static/js/memory/model.js";

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
  assert.deepEqual(plot.markers.map(({ key, index, wrong }) => [key, index, Boolean(wrong)]), [["alloc", 1, false], ["measured", 1, false], ["measured", 1, true]]);
});

test("a point says its kernel, its line and what went wrong there", () => {
  const { more } = graphPlot(memory, places);
  assert.deepEqual(more(0), [["", "extern_kernels.mm"], ["", "model.py:10  x @ w"]]);
  assert.deepEqual(more(1), [["", "no launch of this node"], ["✖", "2 lifetime mismatches"]]);
});

test("what would press the curves flat begins hidden, and its markers go with it", () => {
  const plot = graphPlot(memory, places);
  assert.deepEqual(hiddenAtFirst(plot.series), ["reserved"]);
  const shown = shownPlot(plot, new Set(["base", "alloc", "reserved"]));
  assert.deepEqual(shown.series.map(({ key }) => key), ["free", "measured"]);
  assert.deepEqual(shown.markers.map(({ series }) => series), [1, 1]);
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

test("labels of steps thin out", () => {
  assert.deepEqual(stepLabels([0, 9], 100, 50, (point) => Math.floor(point / 2)), [0, 6]);
});
