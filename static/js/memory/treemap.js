// A treemap of live storages: arrow keys move between cells, Enter opens the buffer.
import { h, svg } from "#js/core/dom.js";
import { formatBytes, formatCount, slugOf } from "#js/core/format.js";
import { goTo } from "#js/core/server.js";
import { neighbour, nested } from "#js/memory/treemap_model.js";

const GAP = 1, LETTER = 6.6;
const KINDS = { parameter: "parameter", buffer: "buffer of a module", input: "input", unknown: "input or parameter", gradient: "gradient", saved: "saved for backward", temporary: "temporary", output: "output" };
const MOVES = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

const named = ({ program, name }) => (program ? `${program} (${name})` : name);

export function mountTreemap(box, { root = "" } = {}) {
  const cells = JSON.parse(box.dataset.treemap);
  const total = cells.reduce((sum, { bytes }) => sum + bytes, 0);
  const tip = h("div", { class: "tip", hidden: true });
  let width = 0;
  let placed = [];
  let current = 0;

  const open = (cell) => {
    if (!root && cell.graph !== null && !cell.name.includes("[")) goTo(`/graphs/${cell.graph}/buffers/${slugOf(cell.name)}`);
  };

  function draw() {
    if (!box.clientWidth || box.clientWidth === width) return;
    width = box.clientWidth;
    placed = nested(cells, { x: 0, y: 0, width, height: box.clientHeight });
    const picture = svg("svg", { width, height: box.clientHeight, role: "group", "aria-label": `Treemap of ${cells.length} storages. Arrow keys move, Enter opens.` });
    placed.forEach((cell, index) => picture.append(cellOf(cell, index)));
    box.replaceChildren(picture, tip);
  }

  function cellOf(cell, index) {
    const { x, y } = cell;
    const [wide, high] = [Math.max(0.5, cell.width - GAP), Math.max(0.5, cell.height - GAP)];
    const said = `${named(cell)}, ${formatBytes(cell.bytes)}, ${KINDS[cell.kind]}${cell.text ? `, ${cell.text}` : ""}`;
    const group = svg("g", { class: `cell fill-${cell.kind}`, role: "img", tabindex: index === current ? "0" : "-1", "aria-label": said }, svg("rect", { x, y, width: wide, height: high }));
    const lines = [cell.program || cell.name, cell.program && cell.name, formatBytes(cell.bytes), cell.text].filter(Boolean);
    const fits = Math.floor((wide - 8) / LETTER);
    lines.slice(0, Math.floor((high - 4) / 14)).forEach((text, line) => {
      if (fits >= 3) group.append(svg("text", { x: x + 5, y: y + 14 + line * 14 }, text.length > fits ? `${text.slice(0, fits - 1)}…` : text));
    });
    group.addEventListener("click", () => open(cell));
    group.addEventListener("pointerenter", () => point(index));
    group.addEventListener("pointerleave", () => (tip.hidden = true));
    group.addEventListener("focus", () => point(index));
    group.addEventListener("blur", () => (tip.hidden = true));
    return group;
  }

  function point(index) {
    const cell = placed[index];
    tip.replaceChildren(
      h("strong", {}, named(cell)),
      h("div", {}, `${formatCount(cell.bytes)} B · ${((100 * cell.bytes) / total).toFixed(1)} % · ${KINDS[cell.kind]}`),
      ...(cell.text ? [h("div", {}, cell.text)] : []),
    );
    tip.hidden = false;
    const left = Math.min(cell.x + 12, width - tip.offsetWidth - 4);
    const below = cell.y + Math.min(cell.height, 60) + 6;
    const top = below + tip.offsetHeight > box.clientHeight ? Math.max(0, cell.y - tip.offsetHeight - 4) : below;
    tip.style.transform = `translate(${Math.max(0, left)}px, ${top}px)`;
  }

  box.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (event.key === "Enter" && placed[current]) open(placed[current]);
    else if (move && placed.length) {
      const parts = box.querySelectorAll(".cell");
      parts[current].setAttribute("tabindex", "-1");
      current = neighbour(placed, current, ...move);
      parts[current].setAttribute("tabindex", "0");
      parts[current].focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  new ResizeObserver(draw).observe(box);
  draw();
}
