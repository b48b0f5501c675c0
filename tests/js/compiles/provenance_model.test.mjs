import assert from "node:assert/strict";
import { test } from "node:test";
import { across, firstOf, groupAt, linkedLines, nameOf, parseLine, step } from "../../../static/js/compiles/provenance_model.js";

// A pre-grad line 3 that became post-grad lines 5 and 9; kernel 0 is defined in lines 20-22 and launched in line 40.
const kernels = [{ kernel: "triton_poi_fused_add_0:1", line: 40 }];
const all = { pre: [3], post: [5, 9], code: [20, 21, 22, 40], kernels: [0] };
const alone = { pre: [], post: [7], code: [], kernels: [] };
const map = {
  groups: [all, alone],
  pre: { 3: 0 },
  post: { 5: 0, 7: 1, 9: 0 },
  code: { 20: 0, 21: 0, 22: 0, 40: 0 },
};

test("a line of an address", () => {
  assert.deepEqual(parseLine("code-12"), { pane: "code", line: 12 });
  assert.equal(nameOf(parseLine("pre-3")), "pre-3");
  for (const text of ["12", "code-", "else-3", "code-1x", "", null, undefined]) assert.equal(parseLine(text), null);
});

test("lines know their group", () => {
  assert.equal(groupAt(map, { pane: "post", line: 9 }), all);
  assert.equal(groupAt(map, { pane: "post", line: 6 }), null);
  assert.equal(groupAt(map, { pane: "nothing", line: 6 }), null);
  assert.deepEqual(linkedLines(map, "code"), [20, 21, 22, 40]);
});

test("steps go from linked line to linked line and stop at the ends", () => {
  assert.deepEqual(step(map, { pane: "post", line: 5 }, 1), { pane: "post", line: 7 });
  assert.deepEqual(step(map, { pane: "post", line: 9 }, 1), { pane: "post", line: 9 });
  assert.deepEqual(step(map, { pane: "post", line: 7 }, -1), { pane: "post", line: 5 });
  assert.deepEqual(step(map, { pane: "post", line: 0 }, 1), { pane: "post", line: 5 });
});

test("across goes to the launch, not to the kernel's definition", () => {
  assert.deepEqual(across(map, kernels, { pane: "post", line: 9 }, 1), { pane: "code", line: 40 });
  assert.deepEqual(across(map, kernels, { pane: "code", line: 21 }, -1), { pane: "post", line: 5 });
  assert.deepEqual(across(map, kernels, { pane: "post", line: 5 }, -1), { pane: "pre", line: 3 });
  assert.deepEqual(across(map, kernels, { pane: "post", line: 7 }, 1), { pane: "post", line: 7 });
  assert.deepEqual(across(map, kernels, { pane: "pre", line: 3 }, -1), { pane: "pre", line: 3 });
  assert.equal(firstOf(alone, kernels, "code"), null);
});
