// Another step below the timeline, and one sentence about what differs.
import { h } from "#js/core/dom.js";
import { formatNs, formatShare, plural } from "#js/core/format.js";
import { differences } from "#js/steps/area_model.js";
import { OtherStep } from "#js/steps/other_step.js";

/** Connects the choice of a step in `view` with the chart; `onChoice(value)` is called when the user changes it. */
export function comparison(view, chart, timeline, source, onChoice) {
  const select = view.querySelector(".overlay-choice");
  const line = view.querySelector(".difference");
  let asked = 0;
  select?.addEventListener("change", () => onChoice(select.value || null));

  return {
    async show(value) {
      const turn = ++asked;
      const option = [...(select?.options ?? [])].find((one) => one.value === value && value);
      if (select) select.value = option ? value : "";
      line.hidden = true;
      if (!option) return chart.other && chart.compare(null);
      const step = Number(option.dataset.step);
      if (step === timeline.step) {
        if (chart.other) chart.compare(null);
        line.replaceChildren(`Step ${step} is the median step.`);
        line.hidden = false;
        return;
      }
      const [other, own, theirs] = await Promise.all([source.timeline(step), source.sums(timeline.step), source.sums(step)]);
      if (turn !== asked) return;
      if (!other) {
        if (chart.other) chart.compare(null);
        line.replaceChildren(`Step ${timeline.step} cannot be compared with step ${step}, whose timeline is not available here.`);
        line.hidden = false;
        return;
      }
      chart.compare(new OtherStep(other, chart.whole, timeline.start_ns), source.otherWindow?.(step));
      line.replaceChildren(...sentence(view, timeline.step, option, own, theirs, source.hrefOfStep(step)));
      line.hidden = false;
    },
  };
}

const signed = (ns) => `${ns < 0 ? "−" : "+"}${formatNs(Math.abs(ns))}`;

function sentence(view, step, option, own, theirs, href) {
  const durations = [view.querySelector(".timeline-box").dataset.duration, option.dataset.duration].map((text) => (text ? Number(text) : null));
  const other = h("a", { href }, option.value === "median" ? `the median step ${option.dataset.step}` : `step ${option.dataset.step}`);
  const [now, then] = durations;
  if (now === null || then === null) return [`Step ${step} cannot be compared with `, other, ": the log does not have both durations."];
  const difference = now - then;
  const how = difference
    ? `${formatNs(Math.abs(difference))} (${formatShare(Math.abs(difference) / then)}) ${difference < 0 ? "shorter" : "longer"} than `
    : "as long as ";
  const parts = [`Step ${step} took ${formatNs(now)}, ${how}`, other, ` (${formatNs(then)}).`];
  return own && theirs ? [...parts, ...reasons(differences(own, theirs), difference)] : parts;
}

function reasons({ sum, named, launches }, difference) {
  const names = named.flatMap(({ name, difference: part }, index) => [index ? ", " : "", h("code", { title: name }, name), ` ${signed(part)}`]);
  const count = launches ? ` and ${plural(Math.abs(launches), `${launches > 0 ? "more" : "fewer"} launch`)}` : "";
  return [
    ` Launches: ${signed(sum)}${count}`,
    ...(names.length ? [", most in ", ...names] : []),
    `; outside of launches: ${signed(difference - sum)}.`,
  ];
}
