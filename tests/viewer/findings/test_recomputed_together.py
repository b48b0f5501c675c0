"""Regions of activation checkpointing whose recomputed activations live together are told where they raise the peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.memory import recomputed_together
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.peak_parts import parts_of
from stepscope.viewer.memory.queries.peak_rows import PeakParts, RecomputedRegion
from stepscope.viewer.memory.rows import RunPeak
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import training
from tests.logs.synthetic import LogBuilder

Open = Callable[[LogBuilder], Trace]
MB = 1_000_000
BLOCK = SourceLine("/src/net.py", 9, "forward", "return self.down(gelu(self.up(x)))")
CALL = SourceLine("/src/net.py", 20, "run", "x = checkpoint(block, x, use_reentrant=False)")
FIRST, SECOND = (SourceLine("/src/net.py", line, "forward", "self.run(x)") for line in (30, 31))


@pytest.fixture
def found(opened: Open, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Finding]]:
    """Return what is found if the peak has recomputed activations of regions of such sizes, and launches with such
    lines."""

    def of(sizes: list[int], peak_bytes: int, *stacks: list[SourceLine]) -> list[Finding]:
        def parts(trace: Trace, peak: RunPeak) -> PeakParts:
            again = [RecomputedRegion(size, [0]) for size in sizes]
            return replace(parts_of(trace, peak), peak=replace(peak, live_bytes=peak_bytes), recomputed=again)

        def sites(trace: Trace, wanted: list[int]) -> list[Any]:
            (row,) = site_rows(trace, [0])
            return [replace(row, stacks=list(stacks))] if wanted else []

        with monkeypatch.context() as patched:
            patched.setattr(recomputed_together, "parts_of", parts)
            patched.setattr(recomputed_together, "site_rows", sites)
            return [one for one in all_findings(opened(training(3))) if one.kind == "recomputed_together"]

    return of


def test_regions_that_raise_the_peak_are_told_with_their_lines(found: Callable[..., list[Finding]]) -> None:
    (one,) = found([8 * MB, 6 * MB, 6 * MB], 40 * MB, [SECOND, CALL, BLOCK], [FIRST, CALL, BLOCK])
    assert (one.severity, one.source) == ("warning", CALL)
    assert "keeps the recomputed activations of 3 checkpointed regions alive together, 20.0 MB of the peak" in one.title
    assert "with one region at a time, this moment would take 12.0 MB less" in one.proof[0]
    assert one.proof[1].startswith("The checkpointed calls come from net.py:30 and net.py:31.")


def test_without_the_line_of_the_checkpoint_no_line_is_named(found: Callable[..., list[Finding]]) -> None:
    (one,) = found([8 * MB, 6 * MB, 6 * MB], 40 * MB, [FIRST, BLOCK])
    assert one.source is None
    assert one.proof[1].startswith("Smaller graphs keep fewer regions alive: compile each")


@pytest.mark.parametrize(
    ("sizes", "peak_bytes"),
    [
        ([8 * MB], 10 * MB),  # one region at a time
        ([8 * MB, 2 * MB, 2 * MB], 14 * MB),  # what the regions hand on to one another
        ([8 * MB, 6 * MB, 6 * MB], 100 * MB),  # something else makes the peak
        ([MB // 2, MB // 3, MB // 3], 2 * MB),  # too little to care
        ([], 40 * MB),
    ],
)
def test_what_is_needed_at_once_is_no_finding(
    sizes: list[int], peak_bytes: int, found: Callable[..., list[Finding]]
) -> None:
    assert found(sizes, peak_bytes, [FIRST, CALL, BLOCK]) == []
