// Unpacks the scripts, the styles and the data of a report, and starts the scripts. It is no module, because it makes the import map.
(async () => {
  async function unpack(name) {
    const text = atob(document.getElementById(name).textContent);
    const bytes = Uint8Array.from(text, (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  const reading = unpack("report-data");
  const { modules, roots, css } = await unpack("report-scripts");
  document.head.append(Object.assign(document.createElement("style"), { textContent: css }));
  const address = (text) => `data:text/javascript;charset=utf-8,${encodeURIComponent(text)}`;
  const imports = Object.fromEntries(Object.entries(modules).map(([name, text]) => [name, address(text)]));
  document.head.append(Object.assign(document.createElement("script"), { type: "importmap", textContent: JSON.stringify({ imports }) }));
  const [, page, ...parts] = await Promise.all(roots.map((name) => import(name)));
  page.openReport(parts, await reading);
})().catch((error) => {
  document.getElementById("not-started").hidden = false;
  throw error;
});
