// The report contains all of its pages, packed except the first; the fragment of the address selects one.
import "#js/core/tables.js";
import { parseRoute } from "#js/report/data.js";

const addressOf = (route) => parseRoute(`#${route}`).page;

/** Shows the page that the address names; each of `parts` fills the boxes of its capability in a page. */
export function openReport(parts, data) {
  const pages = new Map([...document.querySelectorAll(".page")].map((page) => [addressOf(page.dataset.route), page]));
  const packed = new Map(Object.entries(data.pages).map(([route, html]) => [addressOf(route), html]));
  const leads = (address) => {
    const { page } = parseRoute(address);
    return pages.has(page) || packed.has(page);
  };

  /** Appends a part of the report and returns it. The server escaped every text in it, like those of the first page. */
  function append(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    const part = template.content.firstElementChild;
    document.getElementById("main").append(part);
    return part;
  }

  /** Returns the page at an address, which becomes a part of the document when it is first asked for. */
  function pageAt(address) {
    const html = packed.get(address);
    if (html !== undefined) {
      packed.delete(address);
      pages.set(address, append(html));
    }
    return pages.get(address) ?? pages.get("left out");
  }

  /** Removes links to pages that are not in this file. */
  function keepLiving() {
    for (const link of document.querySelectorAll('a[href^="#/"]')) if (!leads(link.getAttribute("href"))) link.removeAttribute("href");
  }

  function show() {
    if (location.hash && !location.hash.startsWith("#/")) return; // an anchor on the visible page
    const route = parseRoute(location.hash);
    const page = pageAt(route.page);
    for (const other of pages.values()) other.classList.toggle("shown", other === page);
    for (const link of document.querySelectorAll(".nav a")) {
      if (link.hash === location.hash || (parseRoute(link.hash).page === route.page)) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    for (const part of parts) part.mount(page, route, data, leads);
    if (!page.querySelector(".step-view")) reveal(page, route);
  }

  data.terms.forEach(append);
  new MutationObserver(keepLiving).observe(document.body, { childList: true, subtree: true });
  addEventListener("hashchange", show);
  addEventListener("popstate", show);
  addEventListener("beforeprint", () => [...packed.keys()].forEach(pageAt));
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
