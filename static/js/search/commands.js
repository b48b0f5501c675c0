// Commands of the search box. Those that have a key do what the key does.
import { say } from "#js/core/say.js";
import { goTo } from "#js/core/server.js";

const press = (key) => dispatchEvent(new KeyboardEvent("keydown", { key }));
const click = (id) => document.getElementById(id)?.click();

/** Copies the address and says so, as no button shows it. */
async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link was copied.");
  } catch {
    say("The browser did not allow the copy.");
  }
}

/** Presses the button of the first table that is shown; the button says what came of it. */
function copyTable() {
  const button = [...document.querySelectorAll("main .table-tools button")].find((one) => one.checkVisibility());
  if (!button) return say("This page has no table to copy.");
  button.scrollIntoView({ block: "nearest" });
  return button.click();
}

export const COMMANDS = [
  { label: "switch between light and dark", words: "theme dark light colours", run: () => click("theme-toggle") },
  { label: "next finding", words: "problem", key: "]", run: () => press("]") },
  { label: "previous finding", words: "problem back", key: "[", run: () => press("[") },
  { label: "next step or page", words: "later", key: ".", run: () => press(".") },
  { label: "previous step or page", words: "earlier", key: ",", run: () => press(",") },
  { label: "copy link", words: "address url share", run: copyLink },
  { label: "copy the first table as CSV", words: "export", run: copyTable },
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
