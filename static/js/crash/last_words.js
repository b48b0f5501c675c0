// The role of a launch in a crash of its process, for the launch panel.
import { h } from "#js/core/dom.js";

const PARTS = { died: "", in_flight: "In flight on the device: ", last_finished: "The last launch that its stream had finished: " };

export function lastWords({ part, title, sentences }) {
  const head = h("p", { class: part === "last_finished" ? "" : "critical-text" }, `${part === "last_finished" ? "●" : "✖"} ${PARTS[part]}${title}`);
  return h("section", { class: "last-words" }, head, sentences.length ? h("ul", { class: "plain" }, ...sentences.map((text) => h("li", {}, text))) : null);
}
