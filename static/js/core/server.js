// Functions shared by served pages: requests and state in the address.

/** Returns the response to a GET, or null if there is none; the page then stays as it is. */
export async function getJson(url, options = {}) {
  try {
    const answer = await fetch(url, options);
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

/** Changes parameters of the address; null removes one. */
export function setState(changes, push = false) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  if (url.href !== location.href) history[push ? "pushState" : "replaceState"](null, "", url);
}

export function compileHref(compile, log) {
  return `/compile/${encodeURIComponent(compile.replaceAll("/", "_"))}?log=${log}`;
}
