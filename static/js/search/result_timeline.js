// The result of a statement as lanes of a timeline.
import { CHART_COLOURS, barOf, drawChart, drawName } from "#js/core/chart_draw.js";
import { inView, pick } from "#js/core/chart_model.js";
import { ChartView } from "#js/core/chart_view.js";
import { formatNs, thousands } from "#js/core/format.js";
import { lanesOf } from "#js/search/result_model.js";

export class ResultTimeline extends ChartView {
  constructor(box, timeline, options) {
    super(box, options, CHART_COLOURS, `Timeline of ${timeline.start.length} rows. The table below has the same rows.`);
    const { rows, height, end } = lanesOf(timeline);
    Object.assign(this, { rows, rowsHeight: height, bounds: { start: 0, end } });
    this.data = this.whole = { start: 0, end, rows };
    this.view = { start: 0, end };
    this.start();
  }

  picture(ctx) {
    const strips = this.rows.length ? [{ y: 3, height: 4, intervals: this.rows[0].intervals, colour: () => "span" }] : [];
    drawChart(ctx, this, strips, (row) => {
      for (const one of inView(row.intervals, this.view)) {
        const { left, size } = barOf(one, this);
        ctx.fillStyle = this.colours.call;
        ctx.fillRect(left, row.y + 1, size, row.height - 2);
        drawName(ctx, one.name, left, size, row, this.colours);
      }
    });
  }

  missing() {
    return null;
  }

  found(row, ns, slack) {
    return pick(row.intervals, ns, slack);
  }

  opens() {
    return true;
  }

  lines({ name, start, end }) {
    return [name || "row", ["duration", `${formatNs(end - start)} (${thousands(end - start)} ns)`], ["at", formatNs(start)]];
  }
}
