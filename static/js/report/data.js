// Addresses of pages in a report, independent of the DOM.

/** Parses "#/steps/3?launch=7#L12" to a page, a launch and a place in the page. */
export function parseRoute(hash) {
  const [address, place = null] = hash.replace(/^#/, "").split("#");
  const [path, query = ""] = address.split("?");
  const asked = new URLSearchParams(query);
  const launch = asked.get("launch");
  return {
    page: pageOf(path, asked),
    launch: launch === null ? null : Number(launch),
    place: place ?? (asked.has("site") ? `site${asked.get("site")}` : null),
  };
}

const NAMED_BY = {
  "/curves": ["site", "argument", "item", "part", "moment"],
  "/magnitudes": ["log", "of", "statistic"],
  "/ranks/difference": ["aspect", "left", "right"],
};

/** Returns the address of a page without parameters that only change its state. */
function pageOf(path, asked) {
  const names = NAMED_BY[path];
  if (names) return `${path}?${new URLSearchParams(names.filter((name) => asked.has(name)).map((name) => [name, asked.get(name)]))}`;
  return path === "/values" || /^\/(steps|compile)\/./.test(path) ? `${path}?log=${asked.get("log") ?? 0}` : path || "/";
}
