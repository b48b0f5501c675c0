import assert from "node:assert/strict";
import { test } from "node:test";
import { COMMANDS, commandsFor } from "../../../static/js/search/commands.js";

const labels = (text) => commandsFor(text).map(({ label }) => label);

test("commands are found by the beginnings of their words", () => {
  assert.deepEqual(labels("theme"), ["switch between light and dark"]);
  assert.deepEqual(labels("next find"), ["next finding"]);
  assert.deepEqual(labels("open sql"), ["open SQL"]);
  assert.deepEqual(labels("softmax"), []);
  assert.deepEqual(labels("ne"), []);
  assert.deepEqual(labels(">ne"), ["next finding", "next step or page"]);
  assert.equal(labels(">").length, COMMANDS.length);
  assert.deepEqual(labels(""), []);
});
