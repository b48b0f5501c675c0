// What the cells of a table say: texts without signs, and raw numbers behind formatted ones.
import { numberOf } from "#js/core/table_model.js";

const RAW = "[data-ns], [data-bytes], [data-value]";
const BLOCKS = new Set(["DIV", "LI", "P", "UL", "BR"]);

/** Returns the text of a cell without decoration, folded parts and dashes for unknown values. */
export function textOf(cell) {
  return pieces(cell).join("").replace(/\s+/g, " ").trim();
}

function pieces(node) {
  return [...node.childNodes].flatMap((child) => {
    if (child.nodeType === Node.TEXT_NODE) return [child.data];
    if (!(child instanceof HTMLElement)) return [];
    if (child.matches('[aria-hidden="true"], .unknown, details > :not(summary), .open-source, .term, .term-text')) return [];
    return BLOCKS.has(child.tagName) ? [" ", ...pieces(child), " "] : pieces(child);
  });
}

/** Returns {value, unit, isAll} of a cell, or null. */
export function cellNumber(cell) {
  const text = textOf(cell);
  const raw = cell.matches(RAW) ? cell : cell.querySelector(RAW);
  if (!raw) return numberOf(text);
  const [unit, value] = ["ns", "bytes", "value"].map((name) => [name, raw.dataset[name]]).find(([, held]) => held !== undefined);
  const found = numberOf(value);
  return found && { value: found.value, unit: unit === "value" ? "" : unit, isAll: raw === cell || textOf(raw) === text };
}

/** Returns a column as {isNumber, unit, keys, values}: sort keys, and raw numbers or texts for CSV. */
export function columnOf(head, cells) {
  const sorts = cells.map((cell) => cell && (cell.matches("[data-sort]") ? cell : cell.querySelector("[data-sort]")));
  const texts = cells.map((cell) => (cell ? textOf(cell) : ""));
  const numbers = cells.map((cell) => (cell ? cellNumber(cell) : null));
  const isNumber = numbers.some(Boolean) && (head.classList.contains("num") || numbers.every((one, row) => (one ? one.isAll : !texts[row])));
  const values = isNumber ? numbers.map((one) => one?.value ?? null) : texts;
  const keys = sorts.some(Boolean) ? sorts.map((one) => (one ? Number(one.dataset.sort) : null)) : isNumber ? values : texts.map((text) => text || null);
  return { isNumber: isNumber || sorts.some(Boolean), unit: (isNumber && numbers.find(Boolean)?.unit) || "", keys, values };
}
