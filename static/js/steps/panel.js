// The side panel of a launch, built from /launches/N.json.
import { codeBlock } from "#js/core/code.js";
import { copy } from "#js/core/copy.js";
import { h, known } from "#js/core/dom.js";
import { basename, exactBytes, formatBytes, formatCount, formatNs, launchText, plural, slugOf } from "#js/core/format.js";
import { sourceLink } from "#js/core/source.js";
import { argumentTable, otherArguments } from "#js/steps/panel_arguments.js";
import { byHealth } from "#js/steps/panel_order.js";

/** Bad tensors that stand above everything else; the line of the model should stay close. */
const MOST_FIRST = 2;

/** `context`: root (the prefix of paths), go(launch), close(). */
export function launchPanel({ launch: row, code_lines: lines, death = null, judged = null, limit = null, operators = [], work = [] }, context) {
  const { site, graph } = row;
  const { bad, rest } = byHealth(site.arguments, row.values);
  const [first, others] = [bad.slice(0, MOST_FIRST), [...bad.slice(MOST_FIRST), ...rest]];
  const left = others.length + (site.scalars ?? []).length;
  return [
    h(
      "header",
      { class: "panel-head" },
      h("h2", { class: "mono" }, h("a", { href: `${context.root}/kernels/${slugOf(site.kernel)}`, title: "All launches of this kernel" }, site.kernel)),
      closeButton(context.close),
      h(
        "p",
        {},
        h("span", { class: `kind kind-${site.kind}` }, site.kind),
        ` ${launchText(row.launch, row.step)}`,
      ),
      neighbours(row, context),
    ),
    ...(death ? [later(import("#js/crash/last_words.js"), ({ lastWords }) => [lastWords(death)])] : []),
    ...(judged ? [section("Judge", later(import("#js/judged/verdict.js"), ({ verdictSection }) => verdictSection(judged)), "what the launch wrote, computed again from what it read")] : []),
    ...(bad.length ? [section("NaN or infinity", argumentTable(row, first, context), `in ${bad.length} of ${plural(site.arguments.length, "tensor")}, the worst first`)] : []),
    facts(row, limit, context),
    section("Model source", modelSource(site.stacks)),
    ...(bad.length && !left ? [] : [section(bad.length ? "Other arguments" : "Arguments", otherArguments(row, others, context), plural(left, "argument"))]),
    ...(work.length ? [section("On the device", workTable(work), "seen by PyTorch's profiler; the start counts from that of the launch on the host")] : []),
    ...(operators.length ? [section("Operators", operatorTable(operators, row.duration_ns), "seen by PyTorch's profiler during this launch")] : []),
    section("FX nodes", fxNodes(site)),
    section("Generated code", generatedCode(row, lines, context), codePlace(row)),
    h(
      "footer",
      { class: "panel-foot" },
      h("button", { type: "button", onclick: (event) => copy(event, link(row)) }, "Copy link"),
      h("button", { type: "button", onclick: (event) => copy(event, JSON.stringify(row, null, 2)) }, "Copy as JSON"),
      h("a", { href: `${context.root}/graphs/${graph.graph}?site=${site.site}#site${site.local_site}` }, `graph ${graph.graph}`),
    ),
  ];
}

export function missingPanel(text, close) {
  return [h("header", { class: "panel-head" }, h("h2", {}, "Launch not available"), closeButton(close)), h("p", { class: "note" }, text)];
}

function closeButton(close) {
  return h("button", { type: "button", class: "icon", title: "Close (Esc)", "aria-label": "Close", onclick: () => close() }, "×");
}

/** Shows what few launches have as soon as its script is there. */
function later(script, shown) {
  const box = h("div", {});
  script.then((module) => box.replaceChildren(...shown(module)));
  return box;
}

function section(title, content, aside = "") {
  return h("section", {}, h("h3", {}, title, aside && h("span", { class: "aside" }, ` ${aside}`)), content);
}

function neighbours({ previous, next }, { go }) {
  const button = (launch, text, title) =>
    h("button", { type: "button", class: "icon", title, "aria-label": title, disabled: launch === null, onclick: () => go(launch) }, text);
  return h("p", { class: "neighbours" }, button(previous, "◀", "Previous launch (←)"), button(next, "▶", "Next launch (→)"));
}

function facts(row, limit, { root }) {
  const { site, graph } = row;
  const label = [graph.compile_id, graph.phase].filter(Boolean).join(" ") || `graph ${graph.graph}`;
  const entries = [
    ["host time", row.duration_ns === null ? row.returned ? known(null, "not recorded") : h("span", { class: "critical-text" }, "✖ did not return") : formatNs(row.duration_ns), row.duration_ns === null ? null : `${formatCount(row.duration_ns)} ns`],
    ["device time", known(row.device_duration_ns, "not measured", formatNs)],
    ...bytesOf(row),
    ...limitOf(limit),
    ["at", row.returned && row.duration_ns === null ? null : formatNs(row.step_offset_ns), `${formatCount(row.step_offset_ns)} ns after the start of step ${row.step}`],
    ["graph", h("a", { href: `${root}/graphs/${graph.graph}` }, label)],
    ["compile", isReport || !graph.compile_id ? null : h("a", { href: `/compile/${slugOf(graph.compile_id.replace("/", "_"))}?log=${row.log}` }, graph.compile_id)],
    ["scheduler nodes", site.snodes?.length ? named(site.snodes) : known(null, "not recorded: the graph was cached without its sidecar file")],
    ["operator", site.operator && sitesLink(site.operator)],
    ["configuration", Object.entries(row.config).map(([name, value]) => `${name} ${value}`).join(", ") || null],
    ["function", site.function === "call" ? null : site.function],
    ["rank", row.rank],
  ];
  return h(
    "dl",
    { class: "facts" },
    ...entries
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value, title]) => h("div", {}, h("dt", {}, name), h("dd", { title }, value))),
  );
}

const OF_ARGUMENTS = "These are the sizes of its tensor arguments. A kernel may read less of them, or read a part several times.";

/** Returns the bytes of the arguments, and what moving them once in this time needs. */
function bytesOf({ read_bytes: read = null, written_bytes: written = null, duration_ns: host, device_duration_ns: device, site }) {
  if (read === null || written === null || !(read + written)) return [];
  const isOnHost = site.arguments.every(({ tensors }) => tensors.every((tensor) => tensor.device?.startsWith("cpu") ?? false));
  const ns = device ?? (isOnHost ? host : null);
  return [
    ["bytes", `reads ${formatBytes(read)}, writes ${formatBytes(written)}`, `${OF_ARGUMENTS} Reads ${exactBytes(read)}, writes ${exactBytes(written)}.`],
    ["bandwidth", ns ? `${formatBytes(Math.round(((read + written) * 1e9) / ns))}/s` : null, `These bytes, each moved once, in the ${device === null ? "host" : "device"} time.`],
  ];
}

/** Returns the operators that ran during a launch, those that another one called behind it. */
function operatorTable(operators, whole) {
  const line = ({ name, duration_ns: ns, depth }) => h("tr", {}, h("td", { class: "mono" }, `${"\u2003".repeat(depth)}${name}`), h("td", { class: "num" }, formatNs(ns)), h("td", { class: "num" }, whole ? `${Math.round((100 * ns) / whole)} %` : "–"));
  return h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "operator"), h("th", { class: "num" }, "time"), h("th", { class: "num", title: "Part of the host time of the launch" }, "share"))), h("tbody", {}, ...operators.map(line)));
}

/** Returns the kernels, copies and fills that a launch ran on devices. */
function workTable(work) {
  const line = ({ name, device, stream, start_ns: start, duration_ns: ns }) =>
    h("tr", {}, h("td", { class: "mono" }, name), h("td", { class: "num", title: `device ${device}` }, stream), h("td", { class: "num" }, formatNs(start)), h("td", { class: "num" }, formatNs(ns)));
  const head = ["stream", "start", "time"].map((text) => h("th", { class: "num" }, text));
  return h("table", { class: "device-work" }, h("thead", {}, h("tr", {}, h("th", {}, "kernel"), ...head)), h("tbody", {}, ...work.map(line)));
}

/** Returns how near a launch came to what `stepscope measure` found for its machine. */
function limitOf(limit) {
  if (!limit) return [];
  const isMemory = limit.bound === "memory";
  const rate = isMemory ? `${formatBytes(Math.round(limit.rate))}/s of the memory` : `${formatCount(Math.round(limit.rate / 1e9))} Gop/s of matrix products`;
  const share = `${Math.round(100 * limit.share)} % · ${limit.bound}`;
  const title = `The least time is ${formatNs(limit.least_ns)} at ${rate}, as it was measured on this machine. Data in a cache can be faster.`;
  return [
    ["operations", limit.operations === null ? null : formatCount(limit.operations), "Multiplications and additions of the matrix product, from the sizes of its factors."],
    ["of the limit", share, title],
  ];
}

// A large fused kernel has dozens of lines; its arguments should stay close.
const MOST_LINES = 3;

function modelSource(stacks) {
  // Several FX nodes of one kernel often come from the same line.
  const distinct = new Map(stacks.filter((stack) => stack.length).map((stack) => [JSON.stringify(stack), stack]));
  if (!distinct.size) return h("p", { class: "note" }, "No model source is recorded for this kernel.");
  const items = [...distinct.values()].map((stack) => h("li", {}, stackOf(stack)));
  const list = (rows) => h("ul", { class: "sources" }, ...rows);
  if (items.length <= MOST_LINES + 1) return list(items);
  const rest = h("details", { class: "more-sources" }, h("summary", {}, plural(items.length - MOST_LINES, "more line")), list(items.slice(MOST_LINES)));
  return h("div", {}, list(items.slice(0, MOST_LINES)), rest);
}

function stackOf(stack) {
  const line = ({ file, line, function: name, code, as_compiled: asCompiled = null }) => [
    h("div", { class: "place", title: `${file}:${line}` }, sitesLink(`${file}:${line}`, `${basename(file)}:${line}`), sourceLink(file, line), h("span", { class: "dim" }, ` ${name}`)),
    asCompiled === null ? null : h("div", { class: "as-compiled" }, asCompiled),
    h("code", {}, code),
  ];
  const last = line(stack.at(-1));
  if (stack.length === 1) return last;
  return [...last, h("details", {}, h("summary", {}, plural(stack.length - 1, "caller")), ...stack.slice(0, -1).reverse().flatMap(line))];
}

const isReport = document.body.classList.contains("report");

/** Returns the name of what launch sites compute, with a link to all of these in the dashboard. */
function sitesLink(name, text = name) {
  return isReport ? text : h("a", { class: "named", href: `/sites?${new URLSearchParams({ name })}` }, text);
}

function named(names) {
  return names.flatMap((name, index) => [index ? ", " : "", sitesLink(name)]);
}

function fxNodes({ fx_nodes: postGrad, source_nodes: source = [], aten = [] }) {
  const rows = [["post-grad nodes", postGrad], ["source nodes", source], ["ATen operators", aten]].filter(([, names]) => names.length);
  if (!rows.length) return h("p", { class: "note" }, "No FX node is recorded for this kernel.");
  return h("dl", { class: "facts" }, ...rows.map(([title, names]) => h("div", {}, h("dt", {}, title), h("dd", { class: "mono names" }, ...names.flatMap((name) => [sitesLink(name), "  "])))));
}

function codePlace({ code_first_line: first }) {
  return first === null ? "" : `wrapper from line ${formatCount(first)}`;
}

function generatedCode(row, lines, { root }) {
  if (!lines.length) return h("p", { class: "note" }, "The wrapper's source is not in this log.");
  const href = `${root}/graphs/${row.graph.graph}#L${row.site.line}`;
  return h(
    "div",
    {},
    codeBlock(lines, { mark: row.site.line }),
    h("p", {}, h("a", { href }, `line ${formatCount(row.site.line)} in the wrapper`)),
    NO_KERNEL.has(row.site.kind) ? null : reproCommand(row.launch),
  );
}

const NO_KERNEL = new Set(["subgraph", "collective"]);

function reproCommand(launch) {
  const text = `stepscope repro TRACE --launch ${launch} -o repro.py`;
  const button = h("button", { type: "button", class: "small", onclick: (event) => copy(event, text) }, "Copy");
  return h("p", {}, "Reproduce this launch:", h("br"), h("code", {}, text), " ", button);
}

function link(row) {
  const url = new URL(location.href);
  if (url.protocol !== "file:") url.search = `?log=${row.log}&launch=${row.launch}`;
  return url.href;
}
