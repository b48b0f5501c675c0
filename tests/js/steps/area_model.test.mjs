import assert from "node:assert/strict";
import test from "node:test";
import "../page.mjs";
import { areaText, differences, grouped, parseArea, sumsOf } from "../../../static/js/steps/area_model.js";

const line = (number) => ({ file: "/src/model.py", line: number, function: "forward", code: `y = ${number}` });
const site = (changes) => ({ site: 0, kernel: "mm", kind: "extern", lines: [], launches: 1, timed: 1, duration_ns: 100, device_duration_ns: null, ...changes });

test("an area in the address is read back, cut to the step, and anything else is none", () => {
  const bounds = { start: 0, end: 1_000 };
  assert.deepEqual(parseArea("10-250", bounds), { start: 10, end: 250 });
  assert.deepEqual(parseArea("10-99999", bounds), { start: 10, end: 1_000 });
  assert.equal(areaText(parseArea("10-250", bounds)), "10-250");
  for (const text of [null, undefined, "", "250-10", "5-5", "a-b", "-5-10", "1-2-3", "2000-3000"]) assert.equal(parseArea(text, bounds), null);
});

test("launches are added up by kernel, by kind and by each line that they compute", () => {
  const sites = [
    site({ lines: [line(3)], launches: 2, timed: 2, duration_ns: 300 }),
    site({ site: 1, kernel: "add", kind: "cpp", lines: [line(3), line(4)] }),
    site({ site: 2, kernel: "mm", launches: 1, duration_ns: 100 }),
  ];
  const rows = (by) => grouped(sites, by).rows.map(({ name, launches, duration, mean, share }) => [name, launches, duration, mean, share]);
  assert.deepEqual(rows("kernel"), [["mm", 3, 400, 400 / 3, 0.8], ["add", 1, 100, 100, 0.2]]);
  assert.deepEqual(rows("kind"), [["extern", 3, 400, 400 / 3, 0.8], ["cpp", 1, 100, 100, 0.2]]);
  assert.deepEqual(rows("line"), [["model.py:3", 3, 400, 400 / 3, 0.8], ["model.py:4", 1, 100, 100, 0.2], [null, 1, 100, 100, 0.2]]);
  assert.deepEqual(grouped(sites, "line").total, { launches: 4, timed: 4, duration: 500, device: null });
});

test("a call of a subgraph contains launches that count themselves", () => {
  const { total, rows } = grouped([site(), site({ kernel: "true_graph_0", kind: "subgraph", duration_ns: 900 })], "kernel");
  assert.deepEqual([total.launches, total.duration, rows.length], [1, 100, 1]);
});

test("unknown times stay unknown, and device times are added where they were measured", () => {
  const { total, rows } = grouped([site({ timed: 0, duration_ns: null }), site({ timed: 0, duration_ns: null, device_duration_ns: 7 })], "kernel");
  assert.deepEqual([rows[0].mean, rows[0].share, rows[0].device], [null, null, 7]);
  assert.deepEqual([total.launches, total.timed, total.device], [2, 0, 7]);
  const beside = grouped([site(), site({ kernel: "died", timed: 0, duration_ns: null })], "kernel").rows;
  assert.deepEqual(beside.map(({ name, share }) => [name, share]), [["mm", 1], ["died", null]]);
});

test("sums without a server: launches that lie partly in the area count with that part", () => {
  const launch = (changes) => ({ site: 0, kernel: "mm", kind: "extern", start: 0, end: 100, timed: true, count: 1, ...changes });
  const rows = [launch({}), launch({ start: 150, end: 250 }), launch({ site: 1, start: 260, end: 260, timed: false }), launch({ start: 900, end: 950 })];
  const sums = sumsOf({ launches: new Map([[7, rows]]) }, { start: 50, end: 300 }, (id) => [line(id)]);
  assert.deepEqual(sums.map(({ site: id, launches, timed, duration_ns: ns, lines }) => [id, launches, timed, ns, lines[0].line]), [[0, 2, 2, 150, 0], [1, 1, 0, null, 1]]);
});

test("kernels that changed in the direction of the whole explain it, the most first", () => {
  const own = [site({ duration_ns: 500 }), site({ kernel: "add", duration_ns: 90 }), site({ kernel: "new", duration_ns: 200 }), site({ kernel: "same" })];
  const other = [site({ duration_ns: 100 }), site({ kernel: "add", duration_ns: 140 }), site({ kernel: "same" })];
  const found = differences(own, other);
  assert.deepEqual([found.sum, found.launches], [550, 1]);
  assert.deepEqual(found.named, [{ name: "mm", difference: 400, launches: 0 }, { name: "new", difference: 200, launches: 1 }]);
  assert.deepEqual(differences(own, own), { sum: 0, named: [], launches: 0 });
});
