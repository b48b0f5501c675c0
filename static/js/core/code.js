// Highlighted source text, from lines of [class, text] pieces as viewer/text/highlight.py returns them.
import { h } from "#js/core/dom.js";

/** `lines`: [number or null, pieces] pairs; `mark` is the number of the highlighted line. */
export function codeBlock(lines, { mark = null, prefix = "" } = {}) {
  const rows = lines.map(([number, pieces]) => {
    const place = prefix && number !== null && `${prefix}${number}`;
    const text = pieces.map(([name, value]) => (name ? h("i", { class: name }, value) : value));
    return h(
      "span",
      { class: number === mark ? "line marked" : "line", id: place || null },
      place ? h("a", { class: "number", href: `#${place}` }, number) : h("span", { class: "number" }, number ?? ""),
      h("code", {}, ...text, "\n"),
    );
  });
  return h("pre", { class: "code", tabindex: "0" }, ...rows);
}
