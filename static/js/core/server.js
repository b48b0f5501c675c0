// What scripts of served pages share: asking the server, and state that stands in the address.

/** The answer to a GET; null where there is none: the server was ended, and what is on the page stays. */
export async function getJson(url, options = {}) {
  try {
    const answer = await fetch(url, options);
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

/** Changes parts of the address; null takes one out. */
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
