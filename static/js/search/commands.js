// Commands of the search box. Those that have a key do what the key does.
import { goTo } from "#js/core/server.js";

const press = (key) => dispatchEvent(new KeyboardEvent("keydown", { key }));
const click = (id) => document.getElementById(id)?.click();

export const COMMANDS = [
  { label: "switch between light and dark", words: "theme dark light colours", run: () => click("theme-toggle") },
  { label: "next finding", words: "problem", key: "]", run: () => press("]") },
  { label: "previous finding", words: "problem back", key: "[", run: () => press("[") },
  { label: "next step or page", words: "later", key: ".", run: () => press(".") },
  { label: "previous step or page", words: "earlier", key: ",", run: () => press(",") },
  { label: "copy link", words: "address url share", run: () => navigator.clipboard?.writeText(location.href) },
  { label: "copy the first table as CSV", words: "export", run: () => document.querySelector("main .table-tools button")?.click() },
  { label: "open SQL", words: "query statement", run: () => goTo("/sql") },
  { label: "download tables", words: "csv parquet export", run: () => goTo("/tables") },
  { label: "show keys", words: "help shortcuts", key: "?", run: () => click("keys-toggle") },
];

/** Returns the commands that fit a text; all after ">". */
export function commandsFor(text) {
  const wanted = text.replace(/^>/, "").trim().toLowerCase();
  if (!wanted) return text.startsWith(">") ? COMMANDS : [];
  if (wanted.length < 3 && !text.startsWith(">")) return [];
  return COMMANDS.filter(({ label, words }) => wanted.split(/\s+/).every((word) => ` ${label} ${words}`.toLowerCase().includes(` ${word}`)));
}
