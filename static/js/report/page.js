// The report contains all of its pages; the fragment of the address selects one.
import "#js/core/tables.js";
import { parseRoute } from "#js/report/data.js";

const pages = new Map([...document.querySelectorAll(".page")].map((page) => [parseRoute(`#${page.dataset.route}`).page, page]));
const loading = unpack(document.getElementById("report-data").textContent);

const leads = (address) => pages.has(parseRoute(address).page);

/** Removes links to pages that are not in this file. */
function keepLiving() {
  for (const link of document.querySelectorAll('a[href^="#/"]')) if (!leads(link.getAttribute("href"))) link.removeAttribute("href");
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Shows the page that the address names; each of `parts` fills the boxes of its capability in a page. */
export function openReport(parts) {
  function show() {
    if (location.hash && !location.hash.startsWith("#/")) return; // an anchor on the visible page
    const route = parseRoute(location.hash);
    const page = pages.get(route.page) ?? pages.get("left out");
    for (const other of pages.values()) other.classList.toggle("shown", other === page);
    for (const link of document.querySelectorAll(".nav a")) {
      if (link.hash === location.hash || (parseRoute(link.hash).page === route.page)) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    fill(page, route);
  }

  async function fill(page, route) {
    const data = await loading;
    for (const part of parts) part.mount(page, route, data, leads);
    if (!page.querySelector(".step-view")) reveal(page, route);
  }

  new MutationObserver(keepLiving).observe(document.body, { childList: true, subtree: true });
  addEventListener("hashchange", show);
  addEventListener("popstate", show);
  show();
}

function reveal(page, { page: name, place }) {
  const target = place && (document.getElementById(`${name}#${place}`) ?? document.getElementById(place));
  for (const marked of page.querySelectorAll(".marked, .chosen")) marked.classList.remove("marked", "chosen");
  target?.classList.add(target.matches("tr") ? "chosen" : "marked");
  if (target) target.scrollIntoView({ block: "center" });
  else document.getElementById("main").scrollTop = 0;
}

document.getElementById("download").addEventListener("click", () => {
  const blob = new Blob([document.getElementById("summary").textContent], { type: "application/json" });
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: "summary.json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});
