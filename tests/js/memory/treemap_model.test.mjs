import assert from "node:assert/strict";
import test from "node:test";
import { neighbour, nested, squarify } from "../../../static/js/memory/treemap_model.js";

const area = ({ width, height }) => width * height;

test("areas are in proportion and fill the box", () => {
  const sizes = [6, 6, 4, 3, 2, 2, 1];
  const cells = squarify(sizes, { x: 0, y: 0, width: 6, height: 4 });
  cells.forEach((cell, index) => assert.ok(Math.abs(area(cell) - sizes[index]) < 1e-9));
  assert.ok(cells.every(({ x, y, width, height }) => x >= 0 && y >= 0 && x + width <= 6 + 1e-9 && y + height <= 4 + 1e-9));
  assert.ok(cells.every(({ width, height }) => Math.max(width / height, height / width) < 4));
});

test("nothing and very small things", () => {
  assert.deepEqual(squarify([], { x: 0, y: 0, width: 5, height: 5 }), []);
  assert.deepEqual(squarify([0, 0], { x: 0, y: 0, width: 5, height: 5 }), []);
  const cells = squarify([1e12, 1], { x: 0, y: 0, width: 500, height: 200 });
  assert.ok(cells.every((cell) => Object.values(cell).every(Number.isFinite)));
});

test("each kind has a place of its own, the largest first", () => {
  const cells = [{ kind: "input", bytes: 1 }, { kind: "saved", bytes: 3 }, { kind: "input", bytes: 2 }, { kind: "saved", bytes: 4 }];
  const placed = nested(cells, { x: 0, y: 0, width: 100, height: 10 });
  assert.deepEqual(placed.map(({ kind, bytes }) => [kind, bytes]), [["saved", 4], ["saved", 3], ["input", 2], ["input", 1]]);
  assert.ok(placed[1].x + placed[1].width <= placed[2].x + 1e-9);
});

test("arrow keys go to the nearest cell of their direction", () => {
  const cells = [{ x: 0, y: 0, width: 10, height: 10 }, { x: 10, y: 0, width: 10, height: 10 }, { x: 0, y: 10, width: 20, height: 10 }];
  assert.equal(neighbour(cells, 0, 1, 0), 1);
  assert.equal(neighbour(cells, 0, 0, 1), 2);
  assert.equal(neighbour(cells, 2, 0, -1), 0);
  assert.equal(neighbour(cells, 1, 1, 0), 1);
});
