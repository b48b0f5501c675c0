// The state of a page in its address, and addresses that scripts make.

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
