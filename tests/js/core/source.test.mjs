import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { sourceHref } from "../../../static/js/core/source.js";

const cases = JSON.parse(readFileSync(new URL("source_link_cases.json", import.meta.url), "utf-8"));

for (const [template, folder, file, line, href] of cases) {
  test(`${file} opens as ${href}`, () => assert.equal(sourceHref(template, folder, file, line), href));
}
