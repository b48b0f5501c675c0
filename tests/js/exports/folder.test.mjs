import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileOf, jumpsTo, keyOf } from "../../../static/js/exports/folder.js";

const { routes, cases } = JSON.parse(readFileSync(new URL("folder_cases.json", import.meta.url), "utf-8"));

for (const [address, key, state] of cases) {
  test(`${address} is the page ${key}`, () => assert.deepEqual(keyOf(routes, address), { key, state, place: "" }));
}

const files = { "/": "index.html", "/steps/3?log=0": "steps.3.log-0.html" };

test("a link of a script leads to a file, with its state and place", () => {
  assert.equal(fileOf({ routes, files }, "/steps/3?launch=7&log=0#main"), "steps.3.log-0.html?launch=7#main");
  assert.equal(fileOf({ routes, files }, "/"), "index.html");
});

test("no file stands for a page that was left out", () => {
  assert.equal(fileOf({ routes, files }, "/steps/4?log=0"), null);
  assert.equal(fileOf({ routes, files }, "/constructor"), null);
  assert.equal(fileOf({ routes, files: {} }, "/__proto__"), null);
});

test("the search box finds pages by their titles and addresses", () => {
  const titles = { "/": "Overview", "/steps/3?log=0": "Step 3" };
  assert.deepEqual(jumpsTo({ files, titles }, "STEP 3").map(({ page }) => page), ["steps.3.log-0.html"]);
  assert.deepEqual(jumpsTo({ files, titles }, "step 4"), []);
});
