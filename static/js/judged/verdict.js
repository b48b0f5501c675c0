// The verdict of the judge on a launch, for the launch panel.
import { h, known } from "#js/core/dom.js";
import { formatCount } from "#js/core/format.js";
import { vocabulary } from "#js/core/vocabulary.js";
import { verdictBadge } from "#js/judged/badge.js";

const HOW = vocabulary.verdict_how;

export function verdictSection({ buffers, clobbered }) {
  return [...clobbered.map(clobberedInput), ...buffers.map(judgedBuffer)];
}

function clobberedInput({ buffer, is_written: isWritten, is_result: isResult }) {
  const unwritten = isResult ? "is returned and was never written." : "was never written.";
  return h("p", { class: "critical-text" }, `✖ ${buffer} ${isWritten ? "is not what its producer wrote." : unwritten}`);
}

function judgedBuffer({ buffer, node, verdict, how, of_limit: ofLimit, reason, details }) {
  const error = ofLimit ? `the largest error is ${formatCount(Number(Number(ofLimit).toPrecision(2)))} times the limit` : null;
  const told = [reason ?? HOW[how] ?? how, error].filter(Boolean).join(", ");
  const head = h("p", {}, verdictBadge(verdict), " ", h("code", {}, buffer), node ? [" = ", h("code", {}, node)] : null, told ? h("span", { class: "dim" }, ` ${told}`) : null);
  return h("div", { class: "judged-one" }, head, details ? threeValues(details) : null);
}

function threeValues(row) {
  const digits = (value) => known(value, "not finite, or unknown", (number) => String(Number(Number(number).toPrecision(9))));
  const cells = [["compiled", row.compiled], ["eager", row.eager], ["float64", row.float64], ["allowed error", row.allowed]];
  const lines = [...row.inputs, ...row.fragment].join("\n");
  return [
    h("table", { class: "three-values" }, h("thead", {}, h("tr", {}, ...cells.map(([name]) => h("th", { class: "num" }, name)))), h("tbody", {}, h("tr", {}, ...cells.map(([, value]) => h("td", { class: "num mono" }, digits(value)))))),
    h("p", { class: "note" }, `Worst element [${row.index.join(", ")}]; ${formatCount(row.bad)} elements are beyond the limit.`),
    h("details", { class: "fold" }, h("summary", {}, "What was recomputed"), h("pre", { class: "code", tabindex: "0" }, lines)),
  ];
}
