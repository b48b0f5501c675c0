// Builds elements from data. Text is inserted as text nodes only, so nothing from a log is parsed as HTML.

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Returns a value, or a dash whose tooltip gives the reason. */
export function known(value, reason = "not recorded", show = String) {
  if (value !== null && value !== undefined && value !== "") return document.createTextNode(show(value));
  return h("span", { class: "unknown", title: reason, "aria-label": `unknown: ${reason}` }, "–");
}

/** Shortens a long name in the middle like the macro of this name; the text holds the whole name. */
export function middle(text, most = 44) {
  return text.length > most ? h("span", { class: "middle" }, h("span", {}, text.slice(0, -14)), text.slice(-14)) : text;
}

/** Returns whether keys go to an input. */
export function isTyping(event) {
  return event.target instanceof Element && event.target.closest("input, select, textarea, dialog[open]") !== null;
}

/**
 * `acts` maps key names to actions, which apply while `isOn()` holds and no input has the focus, before those of core/page.js.
 * An action that returns false leaves the key to others.
 */
export function onKeys(acts, isOn = () => true) {
  const onKey = (event) => {
    const act = acts[event.key.toLowerCase()];
    if (!act || event.ctrlKey || event.metaKey || event.altKey || isTyping(event) || !isOn()) return;
    if (act() !== false) event.preventDefault();
  };
  addEventListener("keydown", onKey, true);
}

export function debounce(call, ms) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), ms);
  };
}
