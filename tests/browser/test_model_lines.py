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

pytestmark = pytest.mark.browser


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
