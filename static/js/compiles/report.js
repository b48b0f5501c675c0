// The spans of compiles in a report.
import { mountSpans } from "#js/compiles/spans.js";

export function mount(page, route, data) {
  for (const box of page.querySelectorAll(".timeline-box[data-compile]:not(:has(canvas))")) mountSpans(box, data.spans[box.dataset.compile]);
}
