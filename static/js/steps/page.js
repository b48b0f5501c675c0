// The served page of a step: data comes from the server, state lives in the address.
import { setState } from "#js/core/address.js";
import { HAS_SERVER, NO_LAUNCH, getJson } from "#js/core/server.js";
import { sumsOf } from "#js/steps/area_model.js";
import { makeResizable } from "#js/steps/panel_width.js";
import { prepare } from "#js/steps/timeline_model.js";
import { mountStep } from "#js/steps/view.js";

const SHARP_LAUNCHES = 20_000;
const SHARP_WIDTH = 1_000_000;

const { timeline, launch, live, marks } = JSON.parse(document.getElementById("step-data").textContent);
const panel = document.getElementById("panel");
const path = `/steps/${timeline.step}`;

const query = (values) => new URLSearchParams({ log: timeline.log, ...values });
const timelineUrl = (values, step = timeline.step) => `/steps/${step}/timeline.json?${query(values)}`;
const detail = timeline.total_launches <= SHARP_LAUNCHES ? { width: SHARP_WIDTH } : {};

const step = mountStep(document.querySelector(".step-view"), panel, timeline, {
  root: "",
  window: (start_ns, end_ns, width, signal) => getJson(timelineUrl({ start_ns, end_ns, width }), { signal }),
  live,
  liveWindow: (start_ns, end_ns, width, signal) => getJson(`/memory/live.json?${query({ start_ns, end_ns, width, device: live.device })}`, { signal }),
  marks,
  timeline: (other) => getJson(timelineUrl(detail, other)),
  otherWindow: (other) => (start_ns, end_ns, width, signal) => getJson(timelineUrl({ start_ns, end_ns, width }, other), { signal }),
  sums,
  missing: NO_LAUNCH,
  launch: (id) => getJson(`/launches/${id}.json`),
  hrefOf: (id) => `${path}?${query({ launch: id })}`,
  hrefOfStep: (other, id = null) => `/steps/${other}?${query(id === null ? {} : { launch: id })}`,
  remember: (changes, push) => setState({ log: timeline.log, ...changes }, push),
});

const asked = () => new URL(location.href).searchParams;

/** Returns the sums of a step or of an area of it; without a server, those of the launches in the timeline. */
async function sums(other, area = null) {
  const address = (span) => `/steps/${other}/area.json?${query(span)}`;
  if (HAS_SERVER || area === null) {
    const span = area && { start_ns: timeline.start_ns + area.start, end_ns: timeline.start_ns + area.end };
    return (await getJson(address(span)))?.sites ?? null;
  }
  const [whole, picture] = await Promise.all([getJson(address({})), getJson(timelineUrl(detail, other))]);
  const lines = new Map(whole?.sites.map(({ site, lines }) => [site, lines]));
  return sumsOf(prepare(picture ?? timeline), area, (site) => lines.get(site) ?? []);
}

makeResizable(panel);
step.follow(asked());
if (launch) step.show(launch, false);
else if (asked().get("launch")) step.open(Number(asked().get("launch")), { push: false });
addEventListener("popstate", () => {
  step.follow(asked());
  if (asked().get("launch")) step.open(Number(asked().get("launch")), { push: false });
  else step.close({ push: false });
});

// A step of ordinary size is fetched once in full; larger ones window by window while zooming.
if (step.isBinned() && detail.width) {
  const finer = await getJson(timelineUrl(detail));
  if (finer) step.sharpen(finer);
}
