// The generated code of graphs in a report.
import { codeBlock, lineOfWrapper } from "#js/core/code.js";

export function mount(page, route, data) {
  for (const box of page.querySelectorAll(".code-later:empty")) {
    const lines = data.wrappers[box.dataset.graph];
    box.append(lines ? codeBlock(lines.map(lineOfWrapper), { prefix: `${route.page}#L` }) : "Left out of this report.");
  }
}
