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

/** Returns a line of the wrapper of a graph in a report, which is one list of classes and texts in turn. */
export function lineOfWrapper(flat, index) {
  const pieces = Array.from({ length: flat.length / 2 }, (_, place) => flat.slice(2 * place, 2 * place + 2));
  return [index + 1, pieces];
}
