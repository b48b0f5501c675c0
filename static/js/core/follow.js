// Follows a growing trace: reports new records; the page changes only on request.
import { h } from "#js/core/dom.js";
import { formatCount } from "#js/core/format.js";
import { getJson } from "#js/core/server.js";

const EVERY_MS = 2_000;
const PLACE = "stepscope-place";

const box = document.getElementById("following");
const main = document.getElementById("main");
const shown = { logs: Number(box.dataset.logs), records: Number(box.dataset.records) };
let said = "";

restore();
setInterval(look, EVERY_MS);

async function look() {
  if (document.hidden) return;
  const news = await getJson("/news.json");
  const text = news === null ? "no response from the server" : textOf(news);
  if (text === said) return;
  said = text;
  if (!news || !text) return box.replaceChildren(text || "following");
  box.replaceChildren(`updated, ${text} `, h("button", { type: "button", onclick: show }, "show"));
}

/** Describes what is new; empty if nothing is. */
function textOf({ logs, records }) {
  const parts = [[logs - shown.logs, "log"], [records - shown.records, "record"]];
  if (parts.every(([more]) => more === 0)) return "";
  if (parts.some(([more]) => more < 0)) return "the logs have changed";
  return parts.filter(([more]) => more > 0).map(([more, noun]) => `${formatCount(more)} new ${noun}${more === 1 ? "" : "s"}`).join(", ");
}

function show() {
  try {
    sessionStorage.setItem(PLACE, JSON.stringify([location.href, main.scrollLeft, main.scrollTop]));
  } catch {
    // Storage is blocked, so the page starts at its top.
  }
  location.reload();
}

function restore() {
  try {
    const [href, left, top] = JSON.parse(sessionStorage.getItem(PLACE) ?? "[]");
    sessionStorage.removeItem(PLACE);
    if (href === location.href) main.scrollTo(left, top);
  } catch {
    // Storage is blocked, so the page starts at its top.
  }
}
