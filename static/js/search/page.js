// Continues a search piece by piece until the page is full, the logs end or the user stops it.
import { compileHref } from "#js/core/address.js";
import { h, known } from "#js/core/dom.js";
import { formatBytes, formatCount } from "#js/core/format.js";
import { getJson } from "#js/core/server.js";

const MOST_HITS = 100;

const progress = document.getElementById("search-progress");
if (progress?.dataset.next) lookOn();

async function lookOn() {
  const stop = progress.querySelector(".search-stop");
  const on = progress.querySelector(".search-on");
  const leaving = new AbortController();
  stop.addEventListener("click", () => leaving.abort());
  stop.hidden = false;
  on.hidden = true;
  let hits = Number(progress.dataset.hits);
  let next = Number(progress.dataset.next);
  while (next !== null && hits < MOST_HITS) {
    const answer = await getJson(addressOf("/search.json", next), { signal: leaving.signal });
    if (answer === null) break; // Stopped, or the server ended; the hits stay.
    const { piece } = answer;
    for (const hit of piece.hits) addHit(hit);
    hits += piece.hits.length;
    next = piece.next_offset;
    say(hits, piece);
  }
  stop.hidden = true;
  on.hidden = next === null;
  if (next !== null) on.href = addressOf("/search", next);
  document.querySelector(".no-hits").hidden = hits > 0 || next !== null;
}

function addressOf(path, offset) {
  const query = new URLSearchParams(location.search);
  query.set("offset", offset);
  return `${path}?${query}`;
}

function say(hits, piece) {
  const bar = progress.querySelector("progress");
  bar.max = piece.total_bytes;
  bar.value = piece.looked_bytes;
  const lines = `${formatCount(hits)} line${hits === 1 ? "" : "s"}`;
  progress.querySelector(".search-said").textContent =
    `${lines}; searched ${formatBytes(piece.looked_bytes)} of ${formatBytes(piece.total_bytes)}.`;
}

function addHit(hit) {
  const table = document.getElementById("hits");
  table.parentElement.hidden = false;
  const none = () => known(null, "this line belongs to no record");
  const compile = hit.compile_id && compileHref(hit.compile_id, hit.log);
  const cells = [
    h("td", { class: "mono clip", title: hit.name ?? hit.event ?? "" }, ...(hit.record === null ? [none()] : record(hit))),
    h("td", {}, compile ? h("a", { href: compile }, hit.compile_id) : known(null, "outside a compile")),
    table.tHead.rows[0].cells.length > 4 && h("td", { class: "dim" }, runName(hit.log)),
    h("td", { class: "num" }, place(hit, none)),
    h("td", { class: "hit" }, h("code", {}, hit.before, h("mark", {}, hit.match), hit.after)),
  ];
  table.tBodies[0].append(h("tr", {}, ...cells));
}

/** Returns the name of a log as in the log selector. */
function runName(log) {
  return document.querySelector(`select[name="log"] option[value="${log}"]`)?.text.split(" · ", 1)[0] ?? `log ${log}`;
}

function record(hit) {
  const name = hit.event === "artifact" && hit.name ? hit.name : hit.event;
  const href = `/records/${hit.record}${hit.line ? `?line=${hit.line}#payload-${hit.line}` : ""}`;
  return [h("a", { href }, name), " ", h("span", { class: "dim" }, hit.record)];
}

function place(hit, none) {
  if (hit.line) return formatCount(hit.line);
  return hit.record === null ? none() : h("span", { class: "dim" }, "header");
}
