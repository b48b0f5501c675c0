import assert from "node:assert/strict";
import test from "node:test";
import "../page.mjs";
import { LEVELS, levelOf, rampOf, rangeOf, rowsOfMap, shortNumber } from "../../../static/js/values/magnitudes_model.js";

test("a scale spans the numbers above zero, at least a factor of ten", () => {
  assert.deepEqual(rangeOf([1, 1000, 0, null]), { low: 1, high: 1000, isCut: false });
  assert.deepEqual(rangeOf([5, 6]), { low: 0.6, high: 6, isCut: false });
  assert.equal(rangeOf([0, null]), null);
});

test("one number far away does not make all others look alike", () => {
  const numbers = [...Array.from({ length: 299 }, (_, place) => 1 + place), 1e30];
  assert.deepEqual(rangeOf(numbers), { low: 4, high: 297, isCut: true });
});

test("levels grow with the logarithm and stay within the scale", () => {
  const range = { low: 1, high: 100 };
  assert.equal(levelOf(1, range), 0);
  assert.equal(levelOf(10, range), LEVELS / 2);
  assert.equal(levelOf(100, range), LEVELS - 1);
  assert.deepEqual([levelOf(0.01, range), levelOf(1e9, range)], [0, LEVELS - 1]);
});

test("a ramp goes from the first stop to the last", () => {
  const ramp = rampOf(["rgb(0, 0, 0)", "rgb(100, 0, 0)", "rgb(100, 200, 0)"]);
  assert.equal(ramp.length, LEVELS);
  assert.deepEqual([ramp[0], ramp.at(-1)], ["rgb(0, 0, 0)", "rgb(100, 200, 0)"]);
});

test("numbers beside a row are short", () => {
  assert.deepEqual([0.01712, 123.4, 0, 1.222e13, 2.3e-5].map(shortNumber), ["0.0171", "123", "0", "1.2e13", "2.3e-5"]);
});

test("only outputs have a heading for each graph", () => {
  const rows = [{ site: 3, name: "a", graph: 0 }, { site: 4, name: "b", graph: 1 }];
  const map = { kind: "outputs", rows, first_row: 6 };
  assert.deepEqual(rowsOfMap(map).graph_of, [0, 1]);
  assert.deepEqual(rowsOfMap({ ...map, kind: "gradients" }).graph_of, [null, null]);
  assert.deepEqual([rowsOfMap(map).kernels, rowsOfMap(map).first_site], [["a", "b"], 6]);
});
