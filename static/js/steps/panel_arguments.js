// The table of arguments in the launch panel: metadata, values, writers and readers.
import { h, known } from "#js/core/dom.js";
import { formatShape, slugOf } from "#js/core/format.js";
import { RECORD_VALUES, valueLines } from "#js/values/lines.js";

/** Returns the table of some tensor arguments. */
export function argumentTable(row, rows, context) {
  const head = ["role", "name", "dtype, shape, stride, device"].map((name) => h("th", {}, name));
  const bodies = rows.map((argument) => argumentBody(row, argument, context));
  return h("div", { class: "scroll" }, h("table", { class: "arguments" }, h("thead", {}, h("tr", {}, ...head)), ...bodies));
}

/** Returns the arguments that are not in the table of bad tensors, `rows`, and those that are not tensors. */
export function otherArguments(row, rows, context) {
  const scalars = scalarTable(row.site.scalars ?? []);
  if (!row.site.arguments.length) return h("div", {}, h("p", { class: "note" }, "This launch has no tensor arguments."), scalars);
  return h("div", {}, rows.length ? argumentTable(row, rows, context) : null, scalars, noValues(row));
}

/** Returns the table of scalar arguments: sizes, strides, factors, flags. */
function scalarTable(scalars) {
  if (!scalars.length) return null;
  const head = ["argument", "value", "type", "computed as"].map((name) => h("th", {}, name));
  const rows = scalars.map(({ name, position, expression, type, value }) =>
    h(
      "tr",
      {},
      h("td", {}, name === null ? h("span", { class: "dim" }, position === null ? "unnamed" : `argument ${position}`) : h("code", {}, name)),
      h("td", { class: "mono wrap" }, value ?? known(null, "The log does not contain the operands of this expression.")),
      h("td", { class: "mono" }, known(type, "The generated code does not give the type.")),
      h("td", { class: "mono wrap" }, expression === value ? null : expression),
    ),
  );
  return h("div", { class: "scroll more-arguments" }, h("table", { class: "scalars" }, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows)));
}

/** Says why there are no values; they are null if a report left them out, and empty if none were recorded. */
function noValues({ values }) {
  if (values === null) return h("p", { class: "note" }, "Values of this launch are in the trace but left out to keep the report small.");
  if (values?.length) return null;
  return h("p", { class: "note no-values" }, h("span", { class: "swatch v-not-recorded", "aria-hidden": "true" }), "Values were not recorded. To record them, run ", h("code", {}, RECORD_VALUES));
}

function argumentBody(row, argument, context) {
  const tensors = argument.tensors.map((tensor) =>
    h(
      "div",
      {},
      known(tensor.dtype),
      h("span", { class: "mono" }, ` ${formatShape(tensor.size)}`),
      h("span", { class: "dim" }, h("span", { class: "mono", title: "stride" }, ` ${formatShape(tensor.stride)}`), ` ${tensor.device ?? ""}`),
    ),
  );
  const meta = h(
    "tr",
    {},
    h("td", {}, h("span", { class: `role role-${argument.role}` }, argument.role)),
    h("td", {}, nameOf(row, argument, context), argument.program_name && h("div", {}, argument.program_name), argument.parameter && h("div", { class: "dim" }, argument.parameter)),
    h("td", {}, ...(tensors.length ? tensors : [h("span", { class: "dim" }, argument.unseen ?? "not seen at run time")]), flow(row, argument, context)),
  );
  if (!row.values?.length) return h("tbody", {}, meta);
  const values = row.values.find((found) => found.argument === argument.argument);
  const lines = valueLines(argument, values, row.launch, context.root);
  return h("tbody", {}, meta, h("tr", { class: "values" }, h("td", { colspan: "3" }, ...lines)));
}

function nameOf(row, { buffer, name }, { root }) {
  if (buffer === null) return h("code", { title: name }, name);
  return h("a", { href: `${root}/graphs/${row.graph.graph}/buffers/${slugOf(buffer)}` }, h("code", { title: name }, buffer));
}

/** Links to the launch that wrote an input and to those that read an output. */
function flow(row, { argument, role }, context) {
  const to = (launch, text = "") => {
    const href = `${context.root}/steps/${row.step}?log=${row.log}&launch=${launch}`;
    const onclick = (event) => {
      event.preventDefault();
      context.go(launch);
    };
    return h("a", { href, onclick }, `${text}${launch}`);
  };
  const found = [];
  if (role !== "out") {
    const writer = row.written_by[argument] ?? null;
    if (writer === null) found.push(h("span", { class: "dim" }, "no writer in this call"));
    else found.push(to(writer, "written by ▸ launch "));
  }
  if (role !== "in") {
    const [first, ...others] = row.read_by[argument] ?? [];
    if (first === undefined) found.push(h("span", { class: "dim" }, "no later reader in this call"));
    else found.push(to(first, "read by ▸ launch "), ...others.slice(0, 8).map((reader) => to(reader)));
    if (others.length > 8) found.push(h("span", { class: "dim" }, `+${others.length - 8}`));
  }
  return h("div", { class: "links" }, ...found);
}
