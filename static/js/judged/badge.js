// The verdicts of the judge: their order, signs and names.
import { h } from "#js/core/dom.js";
import { vocabulary } from "#js/core/vocabulary.js";

/** From worst to best. */
export const VERDICTS = vocabulary.verdicts.map(({ name }) => name);
const NAMED = Object.fromEntries(vocabulary.verdicts.map((one) => [one.name, one]));

export const signOf = (verdict) => NAMED[verdict].sign;
export const nameOf = (verdict) => NAMED[verdict].label;

/** Returns the sign and the name of a verdict. */
export function verdictBadge(verdict) {
  return h("span", { class: `judged judged-${verdict}`, "data-sort": VERDICTS.indexOf(verdict) }, h("span", { class: "sign", "aria-hidden": "true" }, signOf(verdict)), ` ${nameOf(verdict)}`);
}
