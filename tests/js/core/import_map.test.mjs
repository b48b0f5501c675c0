import assert from "node:assert/strict";
import test from "node:test";

// package.json stands in for the page's import map: the same specifiers, the same files.
test("modules name each other by the specifiers of the import map", async () => {
  const model = await import("../../../static/js/core/chart_model.js");
  const drawing = await import("../../../static/js/core/chart_draw.js");
  const view = { start: 0, end: 1_000 };
  assert.equal(drawing.nsOf(drawing.xOf(250, view, 900), view, 900), 250);
  assert.ok(model.AXIS > 0);
});
