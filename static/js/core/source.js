// Links to lines of model source, by the same rules as viewer/text/source_links.py, tested with the same cases.
import { h } from "#js/core/dom.js";
import { basename } from "#js/core/format.js";

/** Returns the address of a line, or null if the file is in no place that the template reaches. */
export function sourceHref(template, folder, file, line) {
  let path = (file ?? "").replaceAll("\\", "/");
  if (!template || !(path.startsWith("/") || /^[A-Za-z]:\//.test(path)) || line === null) return null;
  if (template.toLowerCase().startsWith("http")) {
    if (!folder || !path.startsWith(folder)) return null;
    path = path.slice(folder.length);
  }
  const before = template.split("{path}", 1)[0];
  if (before.endsWith("/")) path = path.replace(/^\/+/, "");
  else if (path[1] === ":") path = `/${path}`;
  const quoted = encodeURIComponent(path).replaceAll("%2F", "/").replaceAll("%3A", ":").replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
  return template.replaceAll("{path}", () => quoted).replaceAll("{line}", String(line));
}

/** Returns a link that opens a line, or null if pages have no such links. */
export function sourceLink(file, line) {
  const { sourceLink: template, sourceFolder: folder } = document.body.dataset;
  const href = sourceHref(template, folder, file, line);
  return href && h("a", { class: "open-source", href, title: `Open ${file}:${line}`, "aria-label": `Open ${basename(file)}:${line}` });
}
