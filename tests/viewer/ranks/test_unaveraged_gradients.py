"""A `DistributedDataParallel` that is never called, and logs of programs that average by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.tracer.schema.graphs import UnaveragedGradients
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import CallSite
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.open import open_trace
from tests.logs.synthetic import LogBuilder, graph, run


def told(
    digest: str, collectives: int | None = 0, ranks: tuple[int, ...] = (0, 1), module: str = "Net"
) -> UnaveragedGradients:
    return UnaveragedGradients("SGD", 5, module, [*ranks], digest, collectives, "/src/train.py", 12)


def found(folder: Path, logs: dict[int, list[UnaveragedGradients]], *calls: int) -> list[Finding]:
    """Return the findings of ranks that tell this, and call a graph in lines of the program."""
    for rank, records in logs.items():
        log = LogBuilder().record(run(rank=rank, world_size=8))
        for number, line in enumerate(calls):
            log.record(graph(number, phase="forward", compile_id=f"{number}/0"))
            log.record(CallSite(number, "/src/train.py", line, "train", "loss = net(x)"))
        for record in records:
            log.record(record)
        log.record(End("exit", 1)).write(folder / f"stepscope_trace_rank_{rank}_{4711 + rank}_a.log")
    with open_trace(folder) as trace:
        return [one for one in all_findings(trace) if one.kind == "unaveraged_gradients"]


def test_ranks_that_drift_apart(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, {0: [told("a", 8)], 1: [told("b", 8)]}, 30)
    assert finding.title == (
        "The DistributedDataParallel of Net is never called, so that it averages no gradients: the parameters differ on"
        " 2 ranks after 5 steps of SGD (train.py:12)"
    )
    assert finding.proof[-1].startswith(
        "Call the DistributedDataParallel, not the module that it wraps (train.py:30). It may"
    )
    assert finding.source is not None
    assert (finding.severity, finding.source.line, finding.log) == ("warning", 30, None)


def test_several_lines_that_call_graphs_are_not_named(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, {0: [told("a")], 1: [told("b")]}, 30, 31)
    assert finding.proof[-1].startswith("Call the DistributedDataParallel, not the module that it wraps. It may")
    assert finding.source is not None
    assert finding.source.line == 12


def test_a_rank_whose_log_is_the_only_one(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, {1: [told("a")]})
    assert finding.title.endswith("SGD (train.py:12) has made 5 steps with those of one rank alone")
    assert (finding.rank, finding.log) == (None, 0)


def test_each_module_has_a_finding(tmp_path: Path) -> None:
    modules = {rank: [told(f"a{rank}"), told("b"), told(f"c{rank}", module="Head")] for rank in (0, 1)}
    findings = found(tmp_path, modules)
    assert [one.evidence["module"] for one in findings] == ["Net", "Head"]


@pytest.mark.parametrize(
    "logs",
    [
        {0: [told("a", 8)], 1: [told("a", 8)]},
        {0: [told("a", 8)]},
        {0: [told("a", None)]},
        {0: [told("a", 8, (0, 1))], 1: [told("a", 8, (0, 1))], 2: [told("b", 8, (2, 3))], 3: [told("b", 8, (2, 3))]},
        {0: [], 1: []},
    ],
    ids=["averaged", "collectives", "unknown", "groups", "none"],
)
def test_ranks_that_hold_the_same(tmp_path: Path, logs: dict[int, list[UnaveragedGradients]]) -> None:
    assert found(tmp_path, logs) == []
