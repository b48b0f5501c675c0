// The report contains all of its pages; the fragment of the address selects one.
import { mountSpans } from "#js/compiles/spans.js";
import { codeBlock } from "#js/core/code.js";
import { mountMemory } from "#js/memory/report.js";
import { launchOf, parseRoute } from "#js/report/data.js";
import { makeResizable } from "#js/steps/panel_width.js";
import { mountStep } from "#js/steps/view.js";
import { mountPlot } from "#js/values/plots.js";

const pages = new Map([...document.querySelectorAll(".page")].map((page) => [parseRoute(`#${page.dataset.route}`).page, page]));
const panel = document.getElementById("panel");
const mounted = new Map();
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

function show() {
  if (location.hash && !location.hash.startsWith("#/")) return; // an anchor on the visible page
  const route = parseRoute(location.hash);
  const page = pages.get(route.page) ?? pages.get("left out");
  for (const other of pages.values()) other.classList.toggle("shown", other === page);
  for (const link of document.querySelectorAll(".nav a")) {
    if (link.hash === location.hash || (parseRoute(link.hash).page === route.page)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!page.querySelector(".step-view")) panel.hidden = true;
  fill(page, route);
}

async function fill(page, route) {
  const data = await loading;
  for (const box of page.querySelectorAll(".timeline-box[data-compile]:not(:has(canvas))")) mountSpans(box, data.spans[box.dataset.compile]);
  for (const box of page.querySelectorAll(".code-later:empty")) {
    const lines = data.wrappers[box.dataset.graph];
    box.append(lines ? codeBlock(lines, { prefix: `${route.page}#L` }) : "Left out of this report.");
  }
  for (const box of page.querySelectorAll("[data-plot]:empty")) mountPlot(box, data.plots[route.page], { root: "#", leads });
  mountMemory(page, data.memory[route.page], leads);
  const view = page.querySelector(".step-view");
  if (view) showStep(view, route, data);
  else reveal(page, route);
}

function reveal(page, { page: name, place }) {
  const target = place && (document.getElementById(`${name}#${place}`) ?? document.getElementById(place));
  for (const marked of page.querySelectorAll(".marked, .chosen")) marked.classList.remove("marked", "chosen");
  target?.classList.add(target.matches("tr") ? "chosen" : "marked");
  if (target) target.scrollIntoView({ block: "center" });
  else document.getElementById("main").scrollTop = 0;
}

function showStep(view, route, data) {
  let step = mounted.get(route.page);
  if (!step) {
    const timeline = data.steps.find(({ log, step }) => log === Number(view.dataset.log) && step === Number(view.dataset.step));
    step = mountStep(view, panel, timeline, {
      root: "#",
      window: null,
      live: data.live[`${timeline.log} ${timeline.step}`] ?? null,
      missing: "Arguments and code of this launch are in the trace but left out to keep the report small.",
      launch: (id) => launchOf(data, timeline, id),
      hrefOf: (id) => `#${route.page}&launch=${id}`,
      remember({ launch }, push) {
        if (launch === undefined) return;
        const hash = `#${route.page}${launch === null ? "" : `&launch=${launch}`}`;
        if (hash !== location.hash) history[push ? "pushState" : "replaceState"](null, "", hash);
      },
    });
    mounted.set(route.page, step);
  }
  if (route.launch === null) step.close({ push: false });
  else step.open(route.launch, { push: false });
}

document.getElementById("download").addEventListener("click", () => {
  const blob = new Blob([document.getElementById("summary").textContent], { type: "application/json" });
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: "summary.json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});
new MutationObserver(keepLiving).observe(document.body, { childList: true, subtree: true });
addEventListener("hashchange", show);
addEventListener("popstate", show);
makeResizable(panel);
show();
