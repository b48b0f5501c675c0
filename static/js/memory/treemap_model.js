// The layout of a squarified treemap, independent of the DOM.

/** Returns [{x, y, width, height}] that fill the box, in the order of `sizes`, which are sorted in descending order. */
export function squarify(sizes, box) {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const found = [];
  if (!total) return found;
  const scale = (box.width * box.height) / total;
  let rest = { ...box };
  let row = [];
  for (const size of sizes) {
    const area = size * scale;
    const side = Math.min(rest.width, rest.height);
    if (row.length && worst([...row, area], side) > worst(row, side)) {
      rest = place(row, rest, found);
      row = [];
    }
    row.push(area);
  }
  place(row, rest, found);
  return found;
}

function worst(areas, side) {
  const sum = areas.reduce((total, area) => total + area, 0);
  if (!sum || !side) return Infinity;
  const [most, least] = [Math.max(...areas), Math.min(...areas)];
  return Math.max((side * side * most) / (sum * sum), (sum * sum) / (side * side * least));
}

/** Lays a row along the shorter side and returns the rest of the box. */
function place(areas, { x, y, width, height }, found) {
  const sum = areas.reduce((total, area) => total + area, 0);
  const upright = width >= height;
  const side = upright ? height : width;
  const deep = side ? sum / side : 0;
  let at = upright ? y : x;
  for (const area of areas) {
    const long = deep ? area / deep : 0;
    found.push(upright ? { x, y: at, width: deep, height: long } : { x: at, y, width: long, height: deep });
    at += long;
  }
  return upright ? { x: x + deep, y, width: width - deep, height } : { x, y: y + deep, width, height: height - deep };
}

/** Returns cells nested by kind; `cells` are {kind, bytes, ...}. */
export function nested(cells, box) {
  const kinds = new Map();
  for (const cell of cells) {
    if (!kinds.has(cell.kind)) kinds.set(cell.kind, []);
    kinds.get(cell.kind).push(cell);
  }
  const sum = (group) => group.reduce((total, { bytes }) => total + bytes, 0);
  const groups = [...kinds.values()].sort((a, b) => sum(b) - sum(a));
  const areas = squarify(groups.map(sum), box);
  return groups.flatMap((group, index) => {
    const sorted = [...group].sort((a, b) => b.bytes - a.bytes);
    const inside = squarify(sorted.map(({ bytes }) => bytes), areas[index]);
    return sorted.map((cell, place) => ({ ...cell, ...inside[place] }));
  });
}

/** Returns the index of the nearest cell in the direction (dx, dy) from the centre of cell `from`. */
export function neighbour(cells, from, dx, dy) {
  const middle = ({ x, y, width, height }) => [x + width / 2, y + height / 2];
  const [cx, cy] = middle(cells[from]);
  let [best, least] = [from, Infinity];
  cells.forEach((cell, index) => {
    const [x, y] = middle(cell);
    const along = (x - cx) * dx + (y - cy) * dy;
    const across = Math.abs((x - cx) * dy) + Math.abs((y - cy) * dx);
    if (index === from || along <= 0.5) return;
    const away = along + 2 * across;
    if (away < least) [best, least] = [index, away];
  });
  return best;
}
