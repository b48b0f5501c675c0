// Compile spans alone, as a timeline without launches.
import { TimelineView } from "#js/steps/timeline.js";

export function mountSpans(box, spans) {
  const end = Math.max(1, ...spans.map(({ start_ns, duration_ns }) => start_ns + duration_ns));
  const none = { launch: [], site: [], thread: [], start_ns: [], duration_ns: [], count: [] };
  const window = { start_ns: 0, end_ns: end, window_start_ns: 0, window_end_ns: end };
  new TimelineView(box, { ...window, threads: [], spans, calls: [], launches: none, sites: {}, total_launches: 0 });
}
