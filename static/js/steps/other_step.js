// Another step below the timeline, moved so that its first launch begins with that of this step. Independent of the DOM.
import { missingWindow, prepare } from "#js/steps/timeline_model.js";

export class OtherStep {
  /** `whole` is the data of this step, which begins at `origin` on the clock of the log. */
  constructor(timeline, whole, origin) {
    Object.assign(this, { step: timeline.step, threads: timeline.threads });
    const data = prepare(timeline);
    this.shift = (firstStart(whole) ?? 0) - (firstStart(data) ?? 0);
    /** A time of this step on the clock of the log is that time plus the offset in the other step. */
    this.offset = Math.round(timeline.start_ns - origin - this.shift);
    this.whole = this.data = moved(data, this.shift);
  }

  /** Shows the timeline of a window. */
  show(timeline) {
    this.data = moved(prepare(timeline), this.shift);
  }

  /** Returns the data for a view. */
  in(view) {
    return this.data.start <= Math.max(view.start, this.whole.start) && this.data.end >= Math.min(view.end, this.whole.end) ? this.data : this.whole;
  }

  /** Returns the window to fetch for a view if that shows more, else null. */
  missing(view) {
    if (!this.whole.binned || view.end <= this.whole.start || view.start >= this.whole.end) return null;
    const shown = { start: Math.max(view.start, this.whole.start), end: Math.min(view.end, this.whole.end) };
    return missingWindow(this.in(view), shown, this.whole);
  }

  /** Returns the launch in `own`, the data of this step, that corresponds to a launch of the other step, or null. */
  partner(launch, own) {
    if (own.binned || this.whole.binned) return null;
    if (this.pairedWith !== own) Object.assign(this, { pairedWith: own, pairs: pairs(own, this.whole) });
    return this.pairs.get(launch) ?? null;
  }
}

function firstStart({ launches }) {
  const starts = [...launches.values()].filter((row) => row.length).map((row) => row[0].start);
  return starts.length ? Math.min(...starts) : null;
}

function moved(data, shift) {
  const launches = new Map([...data.launches].map(([thread, row]) => [thread, row.map((one) => ({ ...one, start: one.start + shift, end: one.end + shift }))]));
  return { ...data, start: data.start + shift, end: data.end + shift, launches };
}

/** Maps each launch of the other step to the launch of this step with the same site and the same position among those of the site. */
function pairs(own, other) {
  const known = new Map(numbered(own).map(([name, launch]) => [name, launch]));
  return new Map(numbered(other).map(([name, { launch }]) => [launch, known.get(name) ?? null]));
}

function numbered({ launches }) {
  const seen = new Map();
  const rows = [...launches.values()].flat().sort((a, b) => a.start - b.start);
  return rows.map((launch) => {
    const index = seen.get(launch.site) ?? 0;
    seen.set(launch.site, index + 1);
    return [`${launch.site}#${index}`, launch];
  });
}
