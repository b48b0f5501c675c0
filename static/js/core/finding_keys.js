// Finds the next finding, independent of the DOM.

/** Says whether `here` shows the page of `link` with all of its parameters. */
export function isAt(link, here) {
  const [there, now] = [parts(link), parts(here)];
  return there.path === now.path && [...there.asked].every(([name, value]) => now.asked.get(name) === value);
}

/** Returns the page of a served address or of a report's fragment. */
function parts(href) {
  const url = new URL(href);
  const [path, query = ""] = url.hash.startsWith("#/") ? url.hash.slice(1).split("#")[0].split("?") : [url.pathname, url.search];
  return { path, asked: new URLSearchParams(query) };
}

/** Index of the finding before (-1) or after (1) the one shown; `last` is where the keys led before; null: no more. */
export function nextFinding(links, here, last, direction) {
  const current = links[last] !== undefined && isAt(links[last], here) ? last : links.findIndex((link) => isAt(link, here));
  const index = current < 0 ? (direction > 0 ? 0 : links.length - 1) : current + direction;
  return index >= 0 && index < links.length ? index : null;
}
