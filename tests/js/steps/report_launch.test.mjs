import assert from "node:assert/strict";
import test from "node:test";
import { launchOf, linesOf } from "../../../static/js/steps/report_launch.js";

const panels = [[
  { launch: { launch: 4, device_duration_ns: 9, written_by: {}, read_by: { 0: [5] }, site: "a" }, code_lines: [] },
  { launch: { launch: 5, device_duration_ns: 9, written_by: { 0: 4, 1: null }, read_by: {}, site: "b" }, code_lines: [] },
]];
const data = { panels, calls: [[0, [4, 5]], [0, [14, 16]]] };
const timeline = {
  log: 0, step: 2, start_ns: 1_000, window_start_ns: 1_000, total_launches: 3,
  launches: { launch: [14, 15, 16], thread: [3, 4, 3], start_ns: [100, 200, 300], duration_ns: [50, 60, -1], site: [0, 1, 0] },
  sites: { 0: { kernel: "mm" }, 1: { kernel: "add" } },
};

test("a launch takes the description of the same launch in an equal call", () => {
  const { launch } = launchOf(data, timeline, 16);
  assert.deepEqual(launch.written_by, { 0: 14, 1: null });
  assert.deepEqual([launch.site, launch.step, launch.ordinal, launch.of], ["b", 2, 3, 3]);
  assert.deepEqual([launch.step_offset_ns, launch.duration_ns, launch.device_duration_ns], [300, null, null]);
  assert.deepEqual([launch.previous, launch.next], [15, null]);
  assert.deepEqual([launch.previous_same, launch.next_same], [14, null]);
  assert.deepEqual(launchOf(data, timeline, 14).launch.read_by, { 0: [16] });
});

test("values are those of the launch itself, never of the one that it shares a description with", () => {
  const values = { 14: ["of 14"] };
  assert.deepEqual(launchOf({ ...data, values }, timeline, 14).launch.values, ["of 14"]);
  assert.equal(launchOf({ ...data, values }, timeline, 16).launch.values, null);
  assert.deepEqual(launchOf({ ...data, values: null }, timeline, 14).launch.values, []);
});

test("a launch that was left out has no description", () => {
  assert.equal(launchOf(data, timeline, 99), null);
  assert.equal(launchOf({ panels: [panels[0].slice(0, 1)], calls: data.calls }, timeline, 16), null);
});

test("a launch of another step has no description in this one", () => {
  assert.equal(launchOf(data, timeline, 4), null);
});

test("the lines of a site are those of its panel, each once", () => {
  const line = (number) => [{ file: "caller.py", line: 1 }, { file: "model.py", line: number }];
  const panel = { launch: { site: { site: 7, stacks: [line(3), line(5), line(3), []] } } };
  const of = linesOf({ panels: [[panel, null]] });
  assert.deepEqual(of(7).map((one) => one.line), [3, 5]);
  assert.deepEqual(of(8), []);
});

test("the verdict of the judge is that of the launch, not of the panel it shares", () => {
  const judged = { 16: "wrong" };
  assert.equal(launchOf({ ...data, judged }, timeline, 16).judged, "wrong");
  assert.equal(launchOf({ ...data, judged }, timeline, 14).judged, null);
});

test("lines that the wrapper contains are taken from it", () => {
  const wrappers = { 7: [["k", "import", "", " torch"], ["", "mm(x)"]] };
  const own = [null, [["", "…"]]];
  const code_lines = [[2, null], own, [1, null]];
  const [first, second] = panels[0];
  const of = [[first, { ...second, launch: { ...second.launch, graph: { graph: 7 } }, code_lines }]];
  const found = launchOf({ ...data, panels: of, wrappers }, timeline, 16);
  assert.deepEqual(found.code_lines, [[2, [["", "mm(x)"]]], own, [1, [["k", "import"], ["", " torch"]]]]);
  assert.equal(found.launch.code, "mm(x)\n…\nimport torch");
});
