// The served page of a step: data comes from the server, state lives in the address.
import { getJson, setState } from "#js/core/server.js";
import { makeResizable } from "#js/steps/panel_width.js";
import { mountStep } from "#js/steps/view.js";

const SHARP_LAUNCHES = 20_000;
const SHARP_WIDTH = 1_000_000;

const { timeline, launch, live } = JSON.parse(document.getElementById("step-data").textContent);
const panel = document.getElementById("panel");
const path = `/steps/${timeline.step}`;

const query = (values) => new URLSearchParams({ log: timeline.log, ...values });
const timelineUrl = (values) => `${path}/timeline.json?${query(values)}`;

const step = mountStep(document.querySelector(".step-view"), panel, timeline, {
  root: "",
  window: (start_ns, end_ns, width) => getJson(timelineUrl({ start_ns, end_ns, width })),
  live,
  liveWindow: (start_ns, end_ns, width) => getJson(`/memory/live.json?${query({ start_ns, end_ns, width, device: live.device })}`),
  missing: "The server did not return this launch.",
  launch: (id) => getJson(`/launches/${id}.json`),
  hrefOf: (id) => `${path}?${query({ launch: id })}`,
  remember: (changes, push) => setState({ log: timeline.log, ...changes }, push),
});

function follow() {
  const asked = new URL(location.href).searchParams;
  if (asked.get("kernels")) step.setFilter(asked.get("kernels"));
  if (asked.has("from") && asked.has("to")) step.setView(Number(asked.get("from")), Number(asked.get("to")));
  return asked.get("launch");
}

makeResizable(panel);
follow();
if (launch) step.show(launch, false);
addEventListener("popstate", () => {
  const id = follow();
  if (id) step.open(Number(id), { push: false });
  else step.close({ push: false });
});

// A step of ordinary size is fetched once in full; larger ones window by window while zooming.
if (step.isBinned() && timeline.total_launches <= SHARP_LAUNCHES) {
  const finer = await getJson(timelineUrl({ width: SHARP_WIDTH }));
  if (finer) step.sharpen(finer);
}
