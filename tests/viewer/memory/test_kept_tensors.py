"""The finding about tensors outside of compiled code of which more and more stay alive, from synthetic logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.memory import KeptTensors
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import start_of
from tests.logs.synthetic import LogBuilder, graph, run

Open = Callable[[LogBuilder | bytes], Trace]
MIB = 1 << 20
KEPT = KeptTensors(
    step=[6, 12, 18],
    ns=[start_of(step) - 10 for step in (6, 12, 18)],
    tensors=[6, 12, 18],
    with_graph=[0, 0, 0],
    storage_bytes=[6 * MIB, 12 * MIB, 18 * MIB],
    dtype="float32",
    sizes=[256, 1024],
    device="cpu",
    holder="list of 18 in kept of __main__",
    hits=None,
    lost_keys=None,
    most_elements=None,
    file=None,
    line=None,
)
CACHE = replace(
    KEPT, holder="the functools.lru_cache of mask_of()", hits=0, lost_keys=18, file="/src/train.py", line=7
)  # fmt: skip


def of_call(number: int, step: int, start_ns: int, of_graph: int) -> Launches:
    one = Calls([number], [of_graph], [0], [step], [1], [None], [start_ns], [100], [0], ["ok"])
    return Launches(one, [], [], [])


def found(opened: Open, *kept: KeptTensors, backward: bool = True, per_step: int = 1) -> list[Finding]:
    """Return the findings of a log of 20 calls, of which each step has several."""
    log = LogBuilder().record(run()).record(graph()).record(graph(1, phase="backward", aot_id="0_backward"))
    for number in range(20):
        step, start_ns = number // per_step, start_of(number)
        log.record(of_call(2 * number, step, start_ns, 0))
        log.record(of_call(2 * number + 1, step, start_ns + 200, int(backward)))
    for step in range(20 // per_step):
        last = start_of(step * per_step + per_step - 1)
        log.record(Steps([step], ["train"], ["user"], [start_of(step * per_step)], [last + 900]))
    for record in kept:
        log.record(record)
    return [one for one in all_findings(opened(log.record(End("exit", start_of(30))))) if one.kind == "kept_tensors"]


def test_a_list_is_information(opened: Open) -> None:
    (finding,) = found(opened, replace(KEPT, file="/src/train.py", line=12))
    assert finding.severity == "info"
    assert finding.title == (
        "Memory outside of compiled code grows by 1.0 MB per step: more and more float32 tensors of shape [256,"
        " 1024] stay alive, held by a list of 18 in kept of __main__, to which train.py:12 adds"
    )
    assert finding.proof == [
        "6, 12 and 18 of them were alive at the start of steps 6, 12 and 18; the last ones have 18.9 MB together"
    ]
    assert (finding.source and finding.source.line, finding.evidence["bytes_per_step"]) == (12, MIB)


def test_a_cache_that_never_hits(opened: Open) -> None:
    (finding,) = found(opened, CACHE)
    assert finding.severity == "warning"
    assert finding.title.endswith("held by the functools.lru_cache of mask_of() (train.py:7)")
    assert finding.proof[1:] == [
        "The cache was never hit",
        "18 of its entries cannot be hit again: tensors in keys are compared by identity, and nothing else refers to"
        " those of these entries",
    ]


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({"lost_keys": 0}, "info"),
        ({"hits": 3}, "info"),
        ({"most_elements": 128}, "info"),
        ({"most_elements": 128, "hits": 3}, None),
    ],
)
def test_a_cache_that_may_be_of_use(opened: Open, change: dict[str, Any], severity: str | None) -> None:
    assert [one.severity for one in found(opened, replace(CACHE, **change))] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("backward", "late", "severity"), [(True, True, "warning"), (False, True, "info"), (True, False, "info")]
)
def test_tensors_that_keep_their_graphs(opened: Open, backward: bool, late: bool, severity: str) -> None:
    """Early, the losses of an episode are kept until its backward pass."""
    steps = [100, 200, 300] if late else [6, 12, 18]
    (finding,) = found(opened, replace(KEPT, with_graph=[6, 12, 18], step=steps), backward=backward)
    assert finding.severity == severity
    assert (
        finding.proof[1]
        == "Autograd computed 18 of them, and each keeps its autograd graph alive; detach() releases it"
    )


@pytest.mark.parametrize("collects", [True, False])
def test_reference_cycles_of_results(opened: Open, collects: bool) -> None:
    words = "a reference cycle through ctx.y of Clamp"
    cycle = replace(KEPT, with_graph=KEPT.tensors, holder=words, cycle_is_collected=collects, file="/a/b.py", line=8)
    (one,) = found(opened, cycle)
    assert one.severity == ("info" if collects else "warning")
    assert one.title.endswith(f"stay alive, held by {words} (b.py:8)")
    assert (", which the program has disabled;" in one.proof[1]) is not collects
    assert len(one.proof) == 2


def test_a_container_with_a_largest_length_is_healthy(opened: Open) -> None:
    assert found(opened, replace(KEPT, most_elements=10_000)) == []


@pytest.mark.parametrize(("per_step", "per"), [(1, "1.0 MB"), (5, "6.3 MB"), (10, None), (20, None)])
def test_the_steps_are_those_of_the_whole_log(opened: Open, per_step: int, per: str | None) -> None:
    """The recorder took each call for a step, before an optimizer stepped."""
    titles = [one.title for one in found(opened, KEPT, per_step=per_step)]
    assert [f"grows by {per} per step" in title for title in titles] == [True] * (per is not None)


def test_tensors_of_one_holder_are_one_finding(opened: Open) -> None:
    other = replace(KEPT, sizes=[4], storage_bytes=[MIB, 2 * MIB, 3 * MIB])
    (finding,) = found(opened, KEPT, other)
    assert "grows by 1.2 MB per step" in finding.title
    assert "float32 tensors of shape [256, 1024] and of 1 other form stay alive" in finding.title
    assert finding.evidence["forms"] == ["float32 [256, 1024]", "float32 [4]"]


def test_the_last_looks_at_a_holder_count(opened: Open) -> None:
    later = replace(
        KEPT, step=[100, 200, 300], ns=[ns + 50 for ns in KEPT.ns], holder="list of 300 in kept of __main__"
    )
    (finding,) = found(opened, KEPT, later)
    assert "grows by 1.0 MB per step" in finding.title
    assert "held by a list of 300 in kept" in finding.title
    assert "other form" not in finding.title


def test_a_log_with_very_many_records(opened: Open) -> None:
    findings = found(opened, *(replace(KEPT, holder=f"attribute h{n} of Net") for n in range(110)))
    assert len(findings) == 100


def test_records_that_no_recorder_writes_are_left_out(opened: Open) -> None:
    assert found(opened, replace(KEPT, tensors=[1]), replace(KEPT, ns=[])) == []
