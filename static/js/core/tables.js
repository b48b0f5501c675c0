// Sorts, filters, sums and copies every table that has a head and several rows, on served pages and in reports.
import { setState } from "#js/core/address.js";
import { copy } from "#js/core/copy.js";
import { debounce, h } from "#js/core/dom.js";
import { formatBytes, formatNs, formatValue, plural, thousands } from "#js/core/format.js";
import { columnOf, textOf } from "#js/core/table_cells.js";
import { csvOf, matches, orderWithin, stateOf, stateText, totalsOf } from "#js/core/table_model.js";

const FILTERED_FROM = 9;
/** Maximum height of a heading of one line. */
const LINE_PX = 34;
/** Width of a window from which on a table that is too wide scrolls, and does not stack its cells. */
const NARROW_PX = 1000;
const FORMATS = { ns: formatNs, bytes: formatBytes, "%": (value) => `${formatValue(value)} %` };
const EXACT = { ns: " ns", bytes: " bytes" };
const isReport = document.body.classList.contains("report");
const known = new WeakMap();

class Table {
  sorted = null;
  wanted = "";

  constructor(table, number) {
    Object.assign(this, { table, number, body: table.tBodies[0] });
    this.box = table.parentElement.classList.contains("scroll") ? table.parentElement : table;
    this.heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    const isSortedElsewhere = this.heads.some((head) => head.querySelector("a"));
    if (!isSortedElsewhere) this.heads.forEach((head, column) => this.makeSortable(head, column));
    this.tools = h("div", { class: "table-tools" });
    this.box.before(this.tools);
    this.box.addEventListener("scroll", () => this.box.classList.toggle("scrolled", this.box.scrollLeft > 0), { passive: true });
    this.observer = new MutationObserver(() => this.take());
    this.observer.observe(this.body, { childList: true });
    this.take();
  }

  /** Takes the rows as they are now, which scripts may have replaced. Those of the class `under` belong to the row above. */
  take() {
    this.parts = new Map();
    let parts = [];
    for (const row of this.body.rows) {
      if (!isUnder(row)) this.parts.set(row, (parts = []));
      parts.push(row);
    }
    this.rows = [...this.parts.keys()];
    let group = 0;
    this.groups = this.rows.map((row) => (row.classList.contains("group") ? ++group : group));
    this.makeTools();
    if (this.sorted || this.wanted) this.apply();
    else this.addTotals();
    this.fit();
  }

  /** Stacks the cells of each row in a narrow window if the table is wider than its box. */
  fit() {
    const { box, table } = this;
    table.classList.remove("stacked");
    if (innerWidth > NARROW_PX || box === table || box.scrollWidth <= box.clientWidth + 1) return;
    const names = this.heads.map((head) => textOf(head).replace(/ [▲▼]$/, ""));
    for (const row of [...this.rows, ...(table.tFoot?.rows ?? [])]) {
      let column = 0;
      for (const cell of row.cells) {
        const isBlank = !cell.textContent.trim() && !cell.childElementCount;
        const isTitle = row.parentNode === table.tFoot && column === 0;
        cell.classList.toggle("blank", isBlank);
        if (names[column] && cell.colSpan === 1 && !isTitle && !isBlank) cell.dataset.label = names[column];
        column += cell.colSpan;
      }
    }
    table.classList.add("stacked");
  }

  get plainRows() {
    return this.rows.filter((row) => !row.classList.contains("group"));
  }

  column(index, rows = this.plainRows) {
    return columnOf(this.heads[index], rows.map((row) => row.cells[index] ?? null));
  }

  makeSortable(head, column) {
    const term = [...head.querySelectorAll(".term, .term-text")];
    const label = [...head.childNodes].filter((node) => !term.includes(node));
    if (!textOf(head) || head.querySelector("button:not(.term), input, .visually-hidden") || head.colSpan > 1) return;
    head.setAttribute("aria-sort", "none");
    head.classList.toggle("one-word", !textOf(head).includes(" ")); // its "?" stays beside it
    head.replaceChildren(h("button", { type: "button", class: "sort", onclick: () => this.turn(column) }, ...label), ...term);
  }

  /** Sorts by a column: numbers from the largest on, texts from the first; then the other way round; then as it was. */
  turn(column) {
    const first = this.column(column).isNumber;
    const now = this.sorted?.column === column ? this.sorted.isDown : null;
    this.sort(now === null ? { column, isDown: first } : now === first ? { column, isDown: !first } : null);
    if (!isReport && this.number !== null) setState({ table: this.sorted && stateText({ table: this.number, ...this.sorted }) });
  }

  sort(sorted) {
    this.sorted = sorted;
    this.heads.forEach((head, column) => {
      if (head.hasAttribute("aria-sort") && !head.querySelector("a")) head.setAttribute("aria-sort", sorted?.column !== column ? "none" : sorted.isDown ? "descending" : "ascending");
    });
    this.apply();
  }

  apply() {
    const { sorted, rows, groups } = this;
    let order = rows.map((row, index) => index);
    if (sorted) {
      const { keys } = columnOf(this.heads[sorted.column], rows.map((row) => row.cells[sorted.column] ?? null));
      const heads = rows.map((row) => row.classList.contains("group"));
      order = orderWithin(groups.map((group, index) => group * 2 + !heads[index]), keys, sorted.isDown);
    }
    const shown = rows.map((row) => row.classList.contains("group") || !this.wanted || matches(this.parts.get(row).map(textOf).join(" "), this.wanted));
    const filled = new Set(groups.filter((group, index) => shown[index] && !rows[index].classList.contains("group")));
    rows.forEach((row, index) => {
      const isHidden = !shown[index] || (row.classList.contains("group") && this.wanted !== "" && !filled.has(groups[index]));
      for (const part of this.parts.get(row)) part.hidden = isHidden;
    });
    this.body.append(...order.flatMap((index) => this.parts.get(rows[index])));
    this.observer.takeRecords();
    this.addTotals();
    this.say();
  }

  get shown() {
    return this.plainRows.filter((row) => !row.hidden);
  }

  makeTools() {
    const count = this.plainRows.length;
    this.tools.hidden = count < 2;
    const hasFilter = count >= FILTERED_FROM && !isFiltered(this.table);
    if (this.tools.childElementCount && hasFilter === Boolean(this.filter)) return this.say();
    this.filter = hasFilter ? h("input", { type: "search", class: "table-filter", "aria-label": "Filter the rows of this table", placeholder: "Filter rows", autocomplete: "off", spellcheck: "false" }) : null;
    this.filter?.addEventListener("input", debounce(() => {
      this.wanted = this.filter.value.trim();
      this.apply();
    }, 80));
    this.said = h("span", { class: "table-said", role: "status" });
    const csv = h("button", { type: "button", class: "small", title: "Copies the rows shown as CSV, with raw numbers", onclick: (event) => copy(event, this.csv()) }, "copy CSV");
    this.tools.replaceChildren(...[this.said, this.filter, csv].filter(Boolean));
    this.say();
    this.place();
  }

  /** Moves the tools into the line of the heading above if there is room. */
  place() {
    this.tools.classList.remove("beside");
    const heading = this.tools.previousElementSibling;
    if (!heading?.matches("h1, h2, h3") || this.tools.hidden) return;
    const range = document.createRange();
    range.selectNodeContents(heading);
    const text = range.getBoundingClientRect();
    const free = heading.getBoundingClientRect().right - text.right;
    this.tools.classList.toggle("beside", text.height < LINE_PX && free > this.tools.offsetWidth + 16);
  }

  say() {
    const [all, now] = [this.plainRows.length, this.shown.length];
    const pager = this.box.nextElementSibling?.matches(".pager") && this.box.nextElementSibling.querySelector("span");
    const page = pager ? `this page: ${pager.textContent.trim()}` : "";
    this.said.textContent = [now < all ? `${thousands(now)} of ${plural(all, "row")}` : "", page].filter(Boolean).join("; ");
  }

  /**
   * Adds the sum and the mean of columns whose head has `data-total`, and the share of each cell, without rows that contain
   * others; if it is `sum` or `mean`, only the one or the other.
   */
  addTotals() {
    const columns = this.heads.flatMap((head, index) => (head.hasAttribute("data-total") ? [index] : []));
    const rows = this.shown.filter((row) => !row.hasAttribute("data-contains"));
    if (!columns.length || (this.table.tFoot && !this.foot)) return;
    this.foot?.remove();
    this.foot = null;
    const found = new Map();
    for (const index of columns) {
      const { values, unit, isNumber } = this.column(index, rows);
      const totals = isNumber && rows.length > 1 ? totalsOf(values) : null;
      const { total } = this.heads[index].dataset;
      const addsUp = total !== "mean";
      if (addsUp) rows.forEach((row, place) => share(row.cells[index], totals?.shares[place] ?? null));
      if (totals) found.set(index, { ...totals, unit, sum: addsUp ? totals.sum : null, mean: total !== "sum" ? totals.mean : null });
    }
    if (!found.size) return;
    const label = Math.min(2, Math.max(1, columns[0])); // columns of the label; the first may hold narrow numbers
    const line = (name, key) => h("tr", {}, h("th", { scope: "row", colspan: label }, name), ...this.heads.slice(label).map((head, place) => {
      const index = place + label;
      const totals = found.get(index);
      return (totals?.[key] ?? null) !== null ? h("td", { class: "num", title: `${formatValue(totals[key])}${EXACT[totals.unit] ?? ""}` }, format(totals[key], totals.unit)) : h("td");
    }));
    const means = [...found.values()].some(({ mean }) => mean !== null) ? line("mean", "mean") : null;
    this.foot = h("tfoot", { class: "totals" }, line(`sum of ${plural(rows.length, "row")}`, "sum"), means);
    this.table.append(this.foot);
  }

  csv() {
    const columns = this.heads.map((head, index) => ({ ...this.column(index, this.rowsInOrder()), name: textOf(head).replace(/ [▲▼]$/, "") }));
    const names = columns.map(({ name, unit }) => (unit ? `${name} (${unit})` : name));
    return csvOf([names, ...this.rowsInOrder().map((row, place) => columns.map(({ values }) => values[place]))]);
  }

  rowsInOrder() {
    return [...this.body.rows].filter((row) => !row.hidden && !row.classList.contains("group") && !isUnder(row));
  }
}

const isUnder = (row) => row.classList.contains("under");
/** Returns whether something else filters a table: a script, or a form with the field that its attribute names. */
function isFiltered(table) {
  const field = table.dataset.filtered;
  return field === "" || (field !== undefined && document.querySelector(`form.filters [name="${field}"]`) !== null);
}

function format(value, unit) {
  const whole = unit === "ns" || unit === "bytes" ? Math.round(value) : value;
  return (FORMATS[unit] ?? formatValue)(whole);
}

function share(cell, part) {
  if (!cell) return;
  cell.classList.toggle("share", part !== null);
  cell.style.setProperty("--share", `${(100 * (part ?? 0)).toFixed(1)}%`);
  if (part !== null) cell.title = `${(100 * part).toFixed(1)} % of the sum`;
}

/** Returns whether a table is a list of rows, and not a form of layout or a comparison side by side. */
function isList(table) {
  return Boolean(table.tHead) && table.tBodies.length === 1 && !table.matches("[data-plain]") && !table.closest("dialog, td")
    && !table.querySelector("tbody [rowspan]") && (table.closest(".page")?.classList.contains("shown") ?? true);
}

function lookForTables() {
  const tables = [...document.querySelectorAll("main table")];
  const asked = isReport ? null : stateOf(new URL(location.href).searchParams.get("table"));
  tables.forEach((table, number) => {
    if (known.has(table) || !isList(table)) return;
    known.set(table, new Table(table, number));
    if (asked?.table === number && table.tHead.rows[0].cells[asked.column]?.hasAttribute("aria-sort")) known.get(table).sort(asked);
  });
  for (const table of document.querySelectorAll("#panel table")) if (!known.has(table) && isList(table)) known.set(table, new Table(table, null));
}

let waiting = 0;

function lookSoon() {
  waiting ||= requestAnimationFrame(() => {
    waiting = 0;
    lookForTables();
  });
}

lookForTables();
if (isReport) lookSoon(); // its first page is shown after this
new MutationObserver(lookSoon).observe(document.body, { childList: true, subtree: true });
addEventListener("hashchange", () => setTimeout(lookForTables));
addEventListener("resize", debounce(() => {
  for (const table of document.querySelectorAll("main table, #panel table")) {
    known.get(table)?.place();
    known.get(table)?.fit();
  }
}, 150));
