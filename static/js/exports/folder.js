// Takes the place of js/core/server.js in a folder of pages: its files answer, and links of scripts lead to them.
import { say } from "#js/core/say.js";

export const HAS_SERVER = false;
export const NO_LAUNCH = "This launch is not in this folder; `stepscope serve TRACE` shows it.";
const NOT_HERE = "This page is not in this folder; `stepscope serve TRACE` shows it.";
const MOST_JUMPS = 12;

let loading = null;

/** Returns what is in the folder; the file is read when it is needed first. */
function contents() {
  loading ??= fetch("folder.json").then((answer) => answer.json());
  return loading;
}

/** Returns the key of an address and the parameters that choose no other page, like viewer/exports/html/addresses.py. */
export function keyOf(routes, address) {
  const url = new URL(address, "folder:/");
  const path = decodeURIComponent(url.pathname);
  const names = routes.find(([pattern]) => new RegExp(`^${pattern}$`).test(path))?.[1] ?? [];
  const asked = [...url.searchParams].filter(([, value]) => value !== "");
  const query = asked.filter(([name]) => names.includes(name)).sort(([one], [other]) => (one < other ? -1 : 1));
  const state = new URLSearchParams(asked.filter(([name]) => !names.includes(name)));
  return { key: path + (query.length ? `?${query.map((pair) => pair.join("=")).join("&")}` : ""), state: String(state), place: url.hash };
}

/** Returns the relative address of the file for an address of the dashboard, or null if the folder has none. */
export function fileOf({ routes, files }, address) {
  const { key, state, place } = keyOf(routes, address);
  const file = Object.hasOwn(files, key) ? files[key] : null;
  return file && `${file}${state && `?${state}`}${place}`;
}

/** Returns the pages whose titles contain all words of a text. */
export function jumpsTo({ files, titles }, text) {
  const words = text.toLowerCase().split(/\s+/);
  const found = Object.entries(titles).filter(([key, title]) => words.every((word) => `${title} ${key}`.toLowerCase().includes(word)));
  return found.slice(0, MOST_JUMPS).map(([key, title]) => ({ kind: "page", label: title, detail: key, page: files[key] }));
}

export async function getJson(address) {
  try {
    const folder = await contents();
    if (address.startsWith("/jump.json?")) return { jumps: jumpsTo(folder, new URLSearchParams(address.split("?")[1]).get("text")) };
    const file = fileOf(folder, address);
    return file && (await (await fetch(file.split("?")[0])).json());
  } catch {
    return null;
  }
}

export async function goTo(address) {
  const file = fileOf(await contents(), address);
  if (file) location.href = file;
  else say(NOT_HERE);
}

/** Leads links that scripts have made to files. */
async function lead() {
  const links = [...document.querySelectorAll('a[href^="/"]')];
  if (!links.length) return;
  const folder = await contents();
  for (const link of links) {
    const file = fileOf(folder, link.getAttribute("href"));
    if (file) link.setAttribute("href", file);
    else {
      link.removeAttribute("href");
      if (!link.hasAttribute("title")) link.setAttribute("title", NOT_HERE);
    }
  }
}

if (globalThis.document) {
  new MutationObserver(lead).observe(document.body, { childList: true, subtree: true });
  const form = document.querySelector("form.search");
  form?.addEventListener("submit", () => form.querySelector(".jumps a")?.click());
}
