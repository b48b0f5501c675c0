// Values of one argument before and after a launch: a strip of value classes, statistics and links.
import { copy } from "#js/core/copy.js";
import { h, known } from "#js/core/dom.js";
import { formatBytes, formatShape, formatValue } from "#js/core/format.js";
import { NAMES, SIGNS, classOf, countsText, remarks, segments } from "#js/core/health.js";
import { STATISTICS } from "#js/core/vocabulary.js";

export const RECORD_VALUES = "stepscope run --level values -- python train.py";
/** Statistics that the strip of value classes does not show. */
const NUMBERS = Object.entries(STATISTICS).filter(([, { health }]) => health === null);

/** Returns the sign and the name of a value class. */
export function healthBadge(name) {
  return h("span", { class: "health", "data-sort": -Object.keys(NAMES).indexOf(name) }, h("span", { class: `swatch ${classOf(name)}`, "aria-hidden": "true" }, SIGNS[name]), NAMES[name]);
}

/** Returns a bar of value classes in proportion; every class with an element stays visible. */
export function strip(row) {
  const parts = segments(row).map(({ name, count, share }) => {
    const part = h("span", { class: `part ${classOf(name)}` }, SIGNS[name]);
    part.style.flexGrow = share;
    part.dataset.count = count;
    return part;
  });
  const text = countsText(row);
  return h("div", { class: "value-strip", role: "img", "aria-label": text, title: text }, ...parts);
}

function bare(kind, text, title) {
  return h("div", { class: `value-strip ${kind}`, title }, h("span", {}, text));
}

/** Returns all lines of an argument. `values` is its ArgumentValues; `root` precedes paths. */
export function valueLines(argument, values, launch, root) {
  const { role, held } = argument;
  const lines = [];
  if (held === "uninitialised" && !values?.before.length) {
    lines.push(line("before", bare("uninitialised", "uninitialised", "Nothing has been written to this new allocation yet.")));
  } else if (role !== "out" || values?.before.length || held !== null) {
    lines.push(...moment("before", values?.before ?? [], launch, root));
  }
  if (role !== "in") lines.push(...moment("after", values?.after ?? [], launch, root));
  for (const saved of values?.saved ?? []) lines.push(savedTensor(saved));
  return lines;
}

function moment(when, rows, launch, root) {
  if (!rows.length) return [line(when, bare("missing", "not recorded", `This value was not read. To record it, run ${RECORD_VALUES}`))];
  return rows.map((row) => valueLine(when, row, launch, root));
}

function line(when, content, aside = null, title = null) {
  return h("div", { class: "value-line" }, h("span", { class: "when", title }, when), content, aside);
}

function valueLine(when, row, launch, root) {
  const which = [row.item === null ? null : `item ${row.item}`, row.part].filter(Boolean).join(" · ");
  const title = row.launch === launch ? null : "Value after the launch that wrote it";
  const curve = h("a", { class: "curve-link", href: curveHref(row, root), title: "This value over all launches" }, "curve");
  const content = row.skipped ? bare("missing", "not read", row.skipped) : strip(row);
  return h(
    "div",
    { class: "value" },
    which && h("p", { class: "which" }, which),
    line(when, content, curve, title),
    row.skipped ? h("p", { class: "dim" }, row.skipped) : numbers(row),
    row.elements && elements(row),
    sameBits(row, root),
    h("p", { class: "remarks" }, ...remarks(row).map((text) => h("span", {}, text))),
  );
}

/** Says which readings had the same bits. */
function sameBits({ unchanged_since: since, equal_to: equal }, root) {
  const link = ({ log, step, launch }) => h("a", { href: `${root}/steps/${step}?log=${log}&launch=${launch}` }, `step ${step} · launch ${launch}`);
  const found = [];
  if (since) found.push(h("span", {}, "unchanged since ", link(since)));
  if (equal) found.push(h("span", {}, "equal to ", h("code", {}, equal.name), " at ", link(equal)));
  return found.length ? h("p", { class: "same-bits" }, ...found.flatMap((one, place) => (place ? ["; ", one] : [one]))) : null;
}

export function curveHref(row, root) {
  const asked = Object.entries({ site: row.site, argument: row.argument, item: row.item, part: row.part, moment: row.moment });
  return `${root}/curves?${new URLSearchParams(asked.filter(([, value]) => value !== null))}`;
}

function numbers(row) {
  if (row.largest === null) return h("p", { class: "dim" }, row.at_least ? "minimum and maximum unknown" : "no finite element");
  return h(
    "dl",
    { class: "numbers" },
    ...NUMBERS.map(([key, { label }]) => h("div", {}, h("dt", {}, label), h("dd", { title: row[key] }, known(row[key], "no finite element", formatValue)))),
  );
}

/** Lists all elements of a small tensor in row-major order. */
function elements({ elements: found }) {
  return h("p", { class: "elements mono", title: "All elements in row-major order" }, `[${found.map(String).join(", ")}]`);
}

function savedTensor(row) {
  const command = `stepscope tensor TRACE ${row.tensor} -o x.pt`;
  return h(
    "div",
    { class: "saved" },
    h("span", { class: "when" }, "saved"),
    h(
      "div",
      {},
      h("div", {}, h("code", {}, row.file), ` ${row.moment} · ${row.dtype} `, h("span", { class: "mono" }, formatShape(row.size)), ` · ${formatBytes(row.tensor_bytes)}`),
      h("div", {}, h("code", {}, command), " ", h("button", { type: "button", class: "small", onclick: (event) => copy(event, command) }, "Copy")),
    ),
  );
}
