import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";

const root = new URL("../../../static/js/", import.meta.url);
const files = readdirSync(root, { recursive: true }).filter((name) => name.endsWith(".js")).map((name) => name.replaceAll("\\", "/"));
const imports = new Map(files.map((name) => [name, [...readFileSync(new URL(name, root), "utf8").matchAll(/^import .*?"#js\/([^"]+)"/gm)].map((found) => found[1])]));
const folder = (name) => name.split("/")[0];

test("core imports no capability, and nothing imports the report", () => {
  assert.ok(files.length > 40);
  for (const [name, named] of imports) {
    for (const other of named) {
      if (folder(name) === "core") assert.equal(folder(other), "core", name);
      if (folder(name) !== "report") assert.notEqual(folder(other), "report", name);
    }
  }
});

test("imports run one way, between modules and between folders", () => {
  const below = new Map();
  for (const [name, named] of imports) below.set(folder(name), [...(below.get(folder(name)) ?? []), ...named.map(folder).filter((other) => other !== folder(name))]);
  for (const graph of [imports, below]) {
    const done = new Set();
    const visit = (name, path) => {
      assert.ok(!path.includes(name), [...path, name].join(" -> "));
      if (done.has(name)) return;
      for (const other of graph.get(name) ?? []) visit(other, [...path, name]);
      done.add(name);
    };
    for (const name of graph.keys()) visit(name, []);
  }
});
