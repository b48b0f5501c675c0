// A heat map of the magnitudes of tensors by steps, on a logarithmic scale of colours.
import { h } from "#js/core/dom.js";
import { formatValue } from "#js/core/format.js";
import { NAMES, NONFINITE } from "#js/core/health.js";
import { drawClass } from "#js/core/health_draw.js";
import { STATISTICS } from "#js/core/vocabulary.js";
import { HeatMap } from "#js/values/heat.js";
import { ROW, classAt } from "#js/values/heat_model.js";
import { STOPS, levelOf, rampOf, rangeOf, rowsOfMap, shortNumber } from "#js/values/magnitudes_model.js";

export class MagnitudeMap extends HeatMap {
  summary = "largest";
  summaryWidth = 56;

  constructor(box, map, actions) {
    super(box, rowsOfMap(map), { ...actions, what: map.kind, colours: STOPS });
  }

  start() {
    this.setScale(false);
    super.start();
  }

  recolour() {
    super.recolour();
    this.ramp = rampOf(STOPS.map((name) => this.colours[name]));
  }

  /** Colours all rows on one scale, or each row on its own. */
  setScale(isByRow) {
    const { numbers } = this.heat;
    const all = isByRow ? null : rangeOf(numbers.flat());
    this.ranges = numbers.map((row) => all ?? rangeOf(row));
    this.draw();
    return all;
  }

  drawCells(ctx, { index }, y) {
    const { colours, edges, gutter, heat, ramp, ranges } = this;
    for (const { name, level, from, to } of this.runsIn(index)) {
      const [x, wide] = [gutter + edges[from], edges[to] - edges[from]];
      const width = wide - (wide > 4 ? 1 : 0);
      if (level === null) drawClass(ctx, name, x, y + 1, width, ROW - 2, colours);
      else {
        ctx.fillStyle = ramp[level];
        ctx.fillRect(x, y + 1, width, ROW - 2);
      }
      if (name === "zero") {
        ctx.fillStyle = colours["v-sign-dark"];
        ctx.fillRect(x, y + ROW / 2 - 0.5, width, 1);
      }
    }
    const most = ranges[index] && Math.max(...heat.numbers[index].filter((number) => number !== null));
    ctx.fillStyle = colours.muted;
    ctx.fillText(most === null ? "–" : shortNumber(most), gutter + edges.at(-1) + 8, y + ROW / 2);
  }

  /** Returns the drawn cells of a row. Neighbours that look alike are joined, so that a sign has room. */
  runsIn(index) {
    const { edges, heat, ranges } = this;
    const runs = [];
    for (let column = 0; column + 1 < edges.length; column++) {
      const name = classAt(heat, index, column);
      const number = heat.numbers[index][column];
      const level = NONFINITE.includes(name) || !number ? null : levelOf(number, ranges[index]);
      const last = runs.at(-1);
      if (last?.name === name && last.level === level && edges[column + 1] - edges[column] < 9) last.to = column + 1;
      else runs.push({ name, level, from: column, to: column + 1 });
    }
    return runs;
  }

  /** Selects the cell of a row in the step `step`, or in the last one. */
  goToRow(index, step) {
    const { steps, last_steps: last } = this.heat;
    const row = this.rows.findIndex((one) => one.index === index);
    const column = steps.findIndex((first, place) => first <= step && step <= last[place]);
    this.scroll.scrollTop = row * ROW - this.height / 2;
    this.choose({ row, column: column < 0 ? steps.length - 1 : column });
  }

  lines() {
    const [row, column] = this.at;
    const { heat } = this;
    const { label, title } = STATISTICS[heat.statistic];
    const found = classAt(heat, row, column);
    const number = heat.numbers[row][column];
    const rest = NONFINITE.includes(found) ? "of its finite elements " : "";
    return [
      heat.kernels[row],
      `${this.where()}${number === null || NONFINITE.includes(found) ? ` · ${NAMES[found]}` : ""}`,
      ...(number === null ? [] : [[`${title || label} ${rest}`.trim(), formatValue(number)]]),
      ["kernel", heat.rows[row].kernel],
      this.howToOpen(),
    ];
  }
}

/** Returns the legend of the colours, whose method `show` names the ends of the scale. */
export function scaleLegend() {
  const [low, high] = [h("span", {}), h("span", {})];
  const legend = h("span", { class: "heat-scale" }, low, h("span", { class: "heat-ramp", "aria-hidden": "true" }), high);
  const show = (range) => {
    low.textContent = range ? `${range.isCut ? "≤ " : ""}${formatValue(range.low)}` : "smallest of the row";
    high.textContent = range ? `${range.isCut ? "≥ " : ""}${formatValue(range.high)}` : "largest of the row";
  };
  return { legend, show };
}
