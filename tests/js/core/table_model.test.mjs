import assert from "node:assert/strict";
import { test } from "node:test";
import { csvOf, matches, numberOf, orderOf, orderWithin, stateOf, stateText, totalsOf } from "../../../static/js/core/table_model.js";

const value = (text) => numberOf(text)?.value ?? null;

test("numbers with units are compared in one unit", () => {
  assert.deepEqual(["850 ns", "4.20 us", "12.3 ms", "1,234 s"].map(value), [850, 4200, 12.3e6, 1234e9]);
  assert.deepEqual(["512 B", "116.8 kB", "1.5 GB"].map(value), [512, 116800, 1.5e9]);
  assert.deepEqual(["12 %", "≥ 3", "-0.5", "1.2e-7", "inf", "-inf"].map(value), [12, 3, -0.5, 1.2e-7, Infinity, -Infinity]);
  assert.deepEqual(["–", "", "not recorded", "buf3"].map(value), [null, null, null, null]);
  assert.equal(numberOf("118 and 3 calls of subgraphs").isAll, false);
  assert.equal(numberOf("3 steps").value, 3);
  assert.equal(numberOf("3 steps").unit, "");
  assert.equal(numberOf("1,234 ns").isAll, true);
});

test("unknown values come last in both directions, and equal rows keep their order", () => {
  assert.deepEqual(orderOf([2, null, 10, 2], true), [2, 0, 3, 1]);
  assert.deepEqual(orderOf([2, null, 10, 2], false), [0, 3, 2, 1]);
  assert.deepEqual(orderOf(["buf10", "buf9", null, "Buf1"], false), [3, 1, 0, 2]);
});

test("rows are sorted within their groups", () => {
  assert.deepEqual(orderWithin([0, 1, 1, 2, 3, 3], [null, 1, 2, null, 5, 9], true), [0, 2, 1, 3, 5, 4]);
});

test("totals leave unknown values out", () => {
  assert.deepEqual(totalsOf([1, null, 3]), { sum: 4, mean: 2, shares: [0.25, null, 0.75] });
  assert.equal(totalsOf([null]), null);
  assert.deepEqual(totalsOf([0, 0]).shares, [null, null]);
});

test("a filter finds all of its words", () => {
  assert.equal(matches("cpp_fused_softmax_3 model.py:5", "softmax model"), true);
  assert.equal(matches("cpp_fused_softmax_3", "Softmax"), true);
  assert.equal(matches("cpp_fused_softmax_3", "softmax mm"), false);
});

test("cells of CSV are quoted where they must be", () => {
  assert.equal(csvOf([["a", "b (ns)"], ['x"y', 1200], ["p, q", null]]), 'a,b (ns)\n"x""y",1200\n"p, q",\n');
});

test("the state of a table survives the address", () => {
  const state = { table: 0, column: 3, isDown: true };
  assert.deepEqual(stateOf(stateText(state)), state);
  assert.equal(stateOf("0.3.sideways"), null);
  assert.equal(stateOf(null), null);
});
