import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { formatBytes, formatCount, formatLong, formatNs, formatShape, formatShare, formatTick, formatValue, launchText, plural, slugOf } from "../../../static/js/core/format.js";

const cases = JSON.parse(readFileSync(new URL("./format_cases.json", import.meta.url), "utf8"));

const formats = [
  ["ns", formatNs], ["long", formatLong], ["bytes", formatBytes], ["count", formatCount],
  ["shape", formatShape], ["value", formatValue], ["slug", slugOf],
];

for (const [name, format] of formats) {
  test(`${name} as in Python`, () => {
    for (const [value, expected] of cases[name]) assert.equal(format(value), expected);
  });
}

test("plurals as in Python", () => {
  for (const [value, noun, expected] of cases.plural) assert.equal(plural(value, noun), expected);
});

test("launches as in Python", () => {
  for (const [place, expected] of cases.launch) assert.equal(launchText(...place), expected);
});

test("neighbouring ticks differ", () => {
  assert.deepEqual([0, 500, 1000, 1500].map((ns) => formatTick(ns, 500)), ["0", "500 ns", "1.0 us", "1.5 us"]);
  assert.equal(formatTick(12_300_000, 100_000), "12.3 ms");
  assert.equal(formatTick(12_300_020, 20), "12.30002 ms");
});

test("shares have one decimal, and a small one is not zero", () => {
  assert.deepEqual([0, 0.0001, 0.0451, 0.9999, 1, 12.345].map(formatShare), ["0.0 %", "< 0.1 %", "4.5 %", "100 %", "100 %", "1,235 %"]);
});
