import assert from "node:assert/strict";
import test from "node:test";
import { isAt, nextFinding } from "../../../static/js/core/finding_keys.js";

const served = (path) => `http://127.0.0.1:8686${path}`;
const links = ["/steps/2?log=0&launch=41", "/graphs/0/buffers/buf3", "/compile/0_0?log=0", "/compile/0_0?log=0"].map(served);

test("a page is that of a finding whatever else its address holds", () => {
  assert.ok(isAt(links[0], served("/steps/2?log=0&launch=41&from=5&to=9")));
  assert.ok(!isAt(links[0], served("/steps/2?log=0&launch=42")));
  assert.ok(!isAt(links[0], served("/steps/2?log=0")));
  assert.ok(isAt("file:///r.html#/steps/2?launch=41", "file:///r.html#/steps/2?launch=41"));
  assert.ok(!isAt("file:///r.html#/steps/2?launch=41", "file:///r.html#/steps/3?launch=41"));
});

test("from a page without a finding the keys lead to the first and the last", () => {
  assert.equal(nextFinding(links, served("/"), -1, 1), 0);
  assert.equal(nextFinding(links, served("/"), -1, -1), 3);
  assert.equal(nextFinding(links, served("/"), 2, 1), 0);
});

test("from a finding to its neighbours, also where two share a page", () => {
  assert.equal(nextFinding(links, links[0], -1, 1), 1);
  assert.equal(nextFinding(links, links[1], -1, -1), 0);
  assert.equal(nextFinding(links, links[2], 2, 1), 3);
  assert.equal(nextFinding(links, links[2], 3, 1), null);
  assert.equal(nextFinding(links, links[0], 0, -1), null);
});
