// The served memory pages: they contain the curves, fetch the live storages of a node and keep their state in the address.
import { setState } from "#js/core/address.js";
import { HAS_SERVER, getJson, goTo } from "#js/core/server.js";
import { mountGraphMemory, mountLeaks, mountRecompute, mountRun } from "#js/memory/plots.js";
import { mountTreemap } from "#js/memory/treemap.js";

const data = JSON.parse(document.getElementById("page-data").textContent);
const main = document.getElementById("main");
const asked = new URL(location.href).searchParams;
/** Parameters that links on the page keep. */
const KEPT = ["from", "to", "hide"];

function withState(address) {
  const url = new URL(address, location.href);
  const now = new URL(location.href).searchParams;
  for (const name of KEPT) if (now.has(name)) url.searchParams.set(name, now.get(name));
  return url;
}

function remember({ view, hide }) {
  if (view !== undefined) setState({ from: view ? view[0] : null, to: view ? view[1] : null });
  if (hide !== undefined) setState({ hide: hide.join(",") || "none" });
}

function mountTreemaps() {
  for (const box of main.querySelectorAll(".treemap:empty")) mountTreemap(box);
}

let swaps = 0;

/** Replaces the section of live storages; the curves and their zoom stay. */
async function swap(url, push) {
  const ticket = ++swaps;
  let text;
  try {
    const address = new URL(url);
    address.searchParams.set("only", "alive");
    const answer = await fetch(address);
    if (!answer.ok) throw new Error(String(answer.status));
    text = await answer.text();
  } catch {
    location.href = url;
    return;
  }
  if (ticket !== swaps) return;
  const found = new DOMParser().parseFromString(text, "text/html").querySelector(".node-memory");
  const here = main.querySelector(".node-memory");
  if (!found || !here) {
    location.href = url;
    return;
  }
  const place = [...here.querySelectorAll("a[data-swap]")].indexOf(document.activeElement);
  here.replaceWith(document.adoptNode(found));
  if (place >= 0) found.querySelectorAll("a[data-swap]")[place]?.focus({ preventScroll: true });
  if (push) history.pushState(null, "", url);
  mountTreemaps();
  markNode();
}

let plots = [];

function markNode() {
  const snode = main.querySelector(".node-memory")?.dataset.snode;
  if (plots[0] && data.left?.nodes) plots[0].mark(snode === undefined ? null : Number(snode));
}

function nodeAddress(index) {
  const url = new URL(location.href);
  url.searchParams.set("snode", index);
  return url;
}

if (data.left) {
  const view = asked.has("from") && asked.has("to") ? [Number(asked.get("from")), Number(asked.get("to"))] : null;
  const hide = asked.has("hide") ? asked.get("hide").split(",") : null;
  const boxes = [...main.querySelectorAll("[data-memory]")];
  plots = mountGraphMemory(boxes, data, { view, hide, remember, open: HAS_SERVER ? (index) => swap(nodeAddress(index), true) : null });
  markNode();
}
if (data.left && HAS_SERVER) {
  main.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-swap]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    swap(withState(link.href), true);
  });
  addEventListener("popstate", () => swap(new URL(location.href), false));
  for (const select of main.querySelectorAll(".memory-filters select")) select.addEventListener("change", () => select.form.requestSubmit());
}
if (data.recompute) mountRecompute(main.querySelector("[data-recompute]"), data.recompute);
if (data.leaks) mountLeaks(main.querySelectorAll("[data-leak]"), data.leaks, (step, log) => goTo(`/steps/${step}?log=${log}`));
if (data.run) {
  const log = data.run.log;
  mountRun(main.querySelector("[data-run-memory]"), data.run, {
    marks: data.marks,
    open: (step) => goTo(`/steps/${step}?log=${log}`),
    fetch(first, last) {
      const query = new URLSearchParams({ log, device: data.run.device });
      if (first !== null) query.set("first_step", first);
      if (last !== null) query.set("last_step", last);
      return getJson(`/memory/steps.json?${query}`);
    },
    remember: ({ steps }) => setState({ first_step: steps ? steps[0] : null, last_step: steps ? steps[1] : null }),
  });
}
mountTreemaps();
