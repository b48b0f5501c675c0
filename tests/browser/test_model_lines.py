"""What a launch computes, and which lines of the model are of another text than this run's, in the panel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from stepscope.tracer.schema.graphs import ChangedLine, Provenance, SiteProvenance
from stepscope.tracer.schema.process_ends import Frame
from stepscope.viewer.store.open import open_trace
from tests.browser.conftest import Visit, serving
from tests.logs.synthetic import UNIX_NS, LogBuilder, calls, compile_records, graph, run
from tests.logs.value_logs import ValueLog, attention

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_panel_says_what_a_launch_computes_and_what_has_changed(visit: Visit, tmp_path: Path) -> None:
    known = graph()
    first, fused, *others = known.sites
    fused = replace(fused, aten=["aten.relu", "aten.add"], source_nodes=["relu", "add"])
    frames = [Frame("/src/model.py", 12, "forward", "y = relu(x)")]
    sites = [SiteProvenance(1, [[0]], ["relu_1"])]
    log = compile_records(LogBuilder().record(run())).record(replace(known, sites=[first, fused, *others]))
    log.record(Provenance(0, frames, sites, [ChangedLine(0, None)], UNIX_NS)).record(calls(0, 0, 1000))
    page = visit.page
    with open_trace(log.write(tmp_path / "log.log")) as trace, serving(trace) as where:
        page.goto(f"{where}/steps/0?launch=1")
        page.locator("#panel h2").wait_for()
        expect(page.locator("#panel .as-compiled")).to_have_text("as compiled on 2026-03-14 09:26 UTC, since changed")
        expect(page.locator("#panel .names")).to_have_text(["relu_1", "relu add", "aten.relu aten.add"])
        page.goto(f"{where}/kernels/cpp_fused_relu_0")
        expect(page.locator("main .facts").first).to_contain_text("aten.relu, aten.add")
        expect(page.locator("main .facts .as-compiled")).to_have_count(1)


def test_lines_nodes_and_the_compile_of_a_launch_are_links(visit: Visit, tmp_path: Path) -> None:
    program = attention()
    log = ValueLog(program)
    log.call(program)
    page = visit.page
    with open_trace(log.end().write(tmp_path / "log.log")) as trace, serving(trace) as where:
        page.goto(f"{where}/steps/0?launch=1")
        panel = page.locator("#panel")
        expect(panel.get_by_role("link", name="Open model.py:11")).to_have_attribute(
            "href", "vscode://file/src/model.py:11"
        )
        for name, address in (("0/0", "/compile/0_0?log=0"), ("op1", "/sites?name=op1")):
            expect(panel.get_by_role("link", name=name, exact=True)).to_have_attribute("href", address)
        panel.get_by_role("link", name="model.py:11", exact=True).click()
        expect(page.locator("h1")).to_contain_text("/src/model.py:11")
        page.get_by_role("link", name="step 0 · launch 1").click()
        expect(page.locator("#panel h2")).to_have_text("cpp_fused__softmax_0")
