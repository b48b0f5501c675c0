// The search box in the header lists matching places and commands; Enter without a chosen one starts a search.
import { debounce, h } from "#js/core/dom.js";
import { getJson } from "#js/core/server.js";
import { commandsFor } from "#js/search/commands.js";

const WAIT_MS = 120;

const input = document.getElementById("search");
if (input?.form) mount(input, input.form);

function mount(input, form) {
  const list = h("ul", { class: "jumps", id: "jumps", role: "listbox", "aria-label": "Places and commands", hidden: true });
  form.append(list);
  for (const [name, value] of Object.entries({ role: "combobox", "aria-expanded": "false", "aria-controls": "jumps", "aria-autocomplete": "list" })) {
    input.setAttribute(name, value);
  }
  let chosen = -1;
  let asked = 0;

  const show = (jumps, commands = []) => {
    chosen = -1;
    list.replaceChildren(...jumps.map(option), ...commands.map((command, index) => commandOption(command, jumps.length + index, () => run(command))));
    list.hidden = !list.childElementCount;
    input.setAttribute("aria-expanded", String(!list.hidden));
    input.removeAttribute("aria-activedescendant");
  };
  const run = (command) => {
    show([]);
    input.value = "";
    input.blur();
    command.run();
  };
  const choose = (index) => {
    const options = [...list.children];
    if (!options.length) return;
    chosen = (index + options.length + 1) % (options.length + 1);
    if (chosen === options.length) chosen = -1; // the typed text, between the last and the first place
    options.forEach((one, place) => one.setAttribute("aria-selected", String(place === chosen)));
    if (chosen < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", options[chosen].id);
    options[chosen].scrollIntoView({ block: "nearest" });
  };
  const look = debounce(async () => {
    const text = input.value.trim();
    const turn = ++asked;
    const answer = text && !text.startsWith(">") && (await getJson(`/jump.json?${new URLSearchParams({ text })}`));
    if (turn === asked && document.activeElement === input) show(answer ? answer.jumps : [], commandsFor(text)); // Enter reports a missing server.
  }, WAIT_MS);

  input.addEventListener("input", look);
  input.addEventListener("focus", look);
  input.addEventListener("blur", () => setTimeout(() => show([]), 150)); // waits for a click on a place
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen < 0 ? list.children.length - 1 : chosen - 1);
    else if (event.key === "Enter" && chosen >= 0) list.children[chosen].firstElementChild.click();
    else return;
    event.preventDefault();
  });
  form.addEventListener("submit", (event) => {
    if (!input.value.trim()) event.preventDefault();
  });
}

function commandOption(command, index, run) {
  const button = h("a", { href: "#", tabindex: "-1", onclick: (event) => (event.preventDefault(), run()) },
    h("span", { class: "jump-kind" }, "command"), h("span", { class: "jump-label" }, command.label), command.key && h("span", { class: "jump-detail" }, h("kbd", {}, command.key)));
  return h("li", { id: `jump-${index}`, role: "option", "aria-selected": "false" }, button);
}

function option(jump, index) {
  const link = h("a", { href: jump.page, tabindex: "-1" },
    h("span", { class: "jump-kind" }, jump.kind), h("span", { class: "jump-label" }, jump.label),
    jump.detail && h("span", { class: "jump-detail" }, jump.detail));
  return h("li", { id: `jump-${index}`, role: "option", "aria-selected": "false" }, link);
}
