// Three panes side by side: a click on a line highlights its related lines in all of them.
import { PANES, across, firstOf, groupAt, linkedLines, nameOf, parseLine, step } from "#js/compiles/provenance_model.js";
import { h, isTyping } from "#js/core/dom.js";
import { plural, slugOf } from "#js/core/format.js";
import { setState } from "#js/core/address.js";

const { map, kernels, line: wanted } = JSON.parse(document.getElementById("provenance-data").textContent);
const related = document.getElementById("related");
const empty = related.firstElementChild;
const panes = new Map(
  PANES.map((name) => [name, document.querySelector(`.pane[data-pane="${name}"] .code`)]).filter(([, code]) => code),
);
let current = null;

for (const [pane, code] of panes) {
  for (const line of linkedLines(map, pane)) document.getElementById(nameOf({ pane, line }))?.classList.add("linked");
  code.addEventListener("click", (event) => {
    const at = parseLine(event.target.closest(".line")?.id);
    if (!at || String(getSelection()) !== "") return;
    event.preventDefault();
    choose(at, { from: at.pane });
  });
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
  if (event.key === "Escape" && current) choose(null);
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") move(event.key === "ArrowDown" ? 1 : -1);
  else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
    if (!current) return;
    choose(across(map, kernels, current, event.key === "ArrowRight" ? 1 : -1));
  } else return;
  event.preventDefault();
});

function move(direction) {
  const pane = current?.pane ?? [...panes.keys()].find((name) => linkedLines(map, name).length);
  if (pane) choose(step(map, current ?? { pane, line: 0 }, direction));
}

/** Chooses a line and scrolls all panes to its group, except `from`, the pane that was clicked. */
function choose(at, { from = null } = {}) {
  current = at;
  for (const line of document.querySelectorAll(".pane .lit, .pane .current")) line.classList.remove("lit", "current");
  const group = at && groupAt(map, at);
  if (at) document.getElementById(nameOf(at))?.classList.add("current");
  for (const pane of group ? panes.keys() : []) {
    for (const line of group[pane]) document.getElementById(nameOf({ pane, line }))?.classList.add("lit");
    if (pane !== from) show(pane, pane === at.pane ? at.line : firstOf(group, kernels, pane));
  }
  if (at && !group && from === null) show(at.pane, at.line);
  describe(at, group);
  setState({ line: at ? nameOf(at) : null });
}

function show(pane, line) {
  const code = panes.get(pane);
  const row = line === null ? null : document.getElementById(nameOf({ pane, line }));
  if (!row) return;
  // Scrolls only the pane, as scrollIntoView would move the page too.
  const place = row.getBoundingClientRect().top - code.getBoundingClientRect().top + code.scrollTop;
  code.scrollTop = place - code.clientHeight / 2;
}

function describe(at, group) {
  if (!group) {
    related.replaceChildren(at ? h("span", { class: "dim" }, `No related lines are known for line ${at.line}.`) : empty);
    return;
  }
  const rows = group.kernels.map((number) => kernelRow(kernels[number]));
  const counts = [plural(group.pre.length, "pre-grad line"), plural(group.post.length, "post-grad line")];
  related.replaceChildren(
    h("span", { class: "dim" }, [...counts, plural(rows.length, "launch site")].join(", ")),
    h("ul", {}, ...rows),
  );
}

function kernelRow(kernel) {
  const row = h("li", {}, h("a", { href: `#code-${kernel.line}`, onclick: (event) => goTo(event, kernel) }, kernel.kernel));
  if (kernel.site !== null) {
    const name = kernel.kernel.replace(/:\d+$/, "");
    row.append(
      " · ",
      h("a", { href: `/graphs/${kernel.graph}?site=${kernel.site}#site${kernel.local_site}` }, `launch site ${kernel.local_site}`),
      ` · ${plural(kernel.launches, "launch")} · `,
      h("a", { href: `/kernels/${slugOf(name)}` }, "kernel"),
    );
  } else row.append(h("span", { class: "dim", title: "this log contains no launches of it" }, " · launches –"));
  for (const { file, line, code, as_compiled: asCompiled } of kernel.sources) {
    const place = `${file.replaceAll("\\", "/").split("/").at(-1)}:${line}`;
    const mark = asCompiled ? [h("span", { class: "as-compiled" }, asCompiled), " "] : [];
    row.append(" ", h("span", { class: "source", title: `${file}:${line}` }, h("span", { class: "place" }, place), " ", ...mark, h("code", {}, code)));
  }
  return row;
}

function goTo(event, kernel) {
  event.preventDefault();
  choose({ pane: "code", line: kernel.line });
}

const first = parseLine(wanted);
if (first && panes.has(first.pane)) choose(first);
