// Finds the next finding, independent of the DOM.

/** Returns whether `here` shows the page of `link` with all of its parameters. */
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

/** Returns the index of the previous (-1) or next (1) finding, or null; `last` is the index that keys chose before. */
export function nextFinding(links, here, last, direction) {
  const current = links[last] !== undefined && isAt(links[last], here) ? last : links.findIndex((link) => isAt(link, here));
  const index = current < 0 ? (direction > 0 ? 0 : links.length - 1) : current + direction;
  return index >= 0 && index < links.length ? index : null;
}
