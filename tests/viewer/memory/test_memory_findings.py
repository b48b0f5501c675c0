"""Findings about memory: each fires on what its rule says, and on nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.memory import growth as growths
from stepscope.viewer.memory.queries.growth import left_behind
from stepscope.viewer.memory.queries.mismatches import lifetime_mismatches
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.overview.summary import summary
from stepscope.viewer.store.trace import Trace
from tests.logs import memory_logs as logs
from tests.logs.memory_logs import NEW, calls_of, forward, layout, lifetimes, start_of, training
from tests.logs.memory_records import growth, mismatch, step_mismatch
from tests.logs.synthetic import LogBuilder, run
from tests.logs.value_logs import Program

Open = Callable[[LogBuilder | bytes], Trace]


@pytest.fixture(autouse=True)
def _bytes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs below are of a few bytes."""
    monkeypatch.setattr(growths, "LEAST_BYTES", 1)
    monkeypatch.setattr(growths, "WARNED_BYTES", 1)


def found(trace: Trace, kind: str) -> list[Finding]:
    return [finding for finding in all_findings(trace) if finding.kind == kind]


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_a_healthy_run_has_no_findings(opened: Open, keep: int) -> None:
    assert all_findings(opened(training(6, keep=keep))) == []


def test_a_storage_that_is_not_freed(opened: Open) -> None:
    (finding,) = all_findings(opened(training(3).record(mismatch())))
    named = (finding.kind, finding.severity, finding.graph, finding.buffer)
    assert named == ("lifetime_mismatch", "warning", 0, "buf0")
    assert (
        finding.title
        == "buf0 (512 B) of graph 0/0 forward was not freed; it is held by a list of 3 in keep of __main__"
    )
    assert finding.proof == [
        "It was expected to be freed after cpp_fused_relu_0 (op1), but it was still alive after the call."
    ]
    assert finding.evidence["storage_bytes"] == 512
    assert finding.evidence["expected_snode"] == "op1"
    assert finding.source is not None
    assert finding.source.line == 10
    assert finding.page == "/graphs/0/memory?call=0&snode=1"


def test_a_storage_that_is_freed_late(opened: Open) -> None:
    late = mismatch(expected=1, actual=2, holders=[[]])
    (finding,) = all_findings(opened(training(3).record(late)))
    assert finding.title == "buf0 (512 B) of graph 0/0 forward was freed later than expected"
    assert finding.proof == [
        "It was expected to be freed after extern_kernels.mm (op0), but it was freed after cpp_fused_relu_0 (op1)."
    ]


def test_one_finding_for_a_buffer_in_several_layouts(opened: Open) -> None:
    log = training(4).record(mismatch()).record(mismatch(layout=2, call=2))
    (finding,) = all_findings(opened(log))
    assert finding.evidence["calls"] == 4
    assert "(4 times)" in finding.title


@pytest.mark.slow
def test_freed_early_is_critical_when_it_is_read_again(opened: Open) -> None:
    early = mismatch("unexpected_death", "buf1", 3, None, 2)
    (finding,) = all_findings(opened(training(2).record(early)))
    assert finding.severity == "critical"
    assert finding.evidence["read_after"] == ["cpp_fused_mean_1"]
    assert finding.title.endswith("cpp_fused_mean_1 reads it afterwards")
    (finding,) = all_findings(opened(training(2).record(replace(early, actual=[3]))))
    assert finding.severity == "warning"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "storage", "expected", "actual", "words"),
    [
        (
            "missing_allocation",
            None,
            1,
            None,
            "was not allocated: It was expected to be allocated before cpp_fused_relu_0 (op1)",
        ),
        (
            "unexpected_allocation",
            2,
            None,
            0,
            "was allocated unexpectedly: It was not in the schedule, but it was allocated before extern_kernels.mm",
        ),
        (
            "unexpected_death",
            2,
            None,
            1,
            "was freed early: It was expected to outlive the call, but it was freed after extern_kernels.mm",
        ),
    ],
)
def test_words_of_mismatches(
    opened: Open, kind: Any, storage: int | None, expected: Any, actual: Any, words: str
) -> None:
    trace = opened(training(1).record(mismatch(kind, "buf9", storage, expected, actual)))
    (finding,) = found(trace, "lifetime_mismatch")
    assert words in f"{finding.title.partition('; ')[0]}: {finding.proof[0]}"
    (row,) = lifetime_mismatches(trace, 0)
    assert row.snode_indices == [1 if kind == "missing_allocation" else 0]
    assert lifetime_mismatches(trace, 1) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "missing_death",
            "was not freed: the check at cab.py:77 expects it to be freed; it is held by a list of 3",
        ),
        ("unexpected_death", "was freed early: the check at cab.py:77 expects it to be alive"),
        ("missing_allocation", "was not allocated: the check at cab.py:77 expects it to be allocated"),
        ("unexpected_allocation", "was allocated unexpectedly: the check at cab.py:77 does not expect it"),
    ],
)
def test_what_a_check_in_generated_code_found(opened: Open, kind: Any, words: str) -> None:
    (finding,) = all_findings(opened(training(2).record(step_mismatch(kind))))
    named = (finding.kind, finding.severity, finding.graph, finding.buffer)
    assert named == ("lifetime_mismatch", "warning", 0, "buf0")
    assert finding.title.startswith(f"buf0 (512 B) of graph 0/0 forward {words}")
    assert finding.evidence["checked_at"] == ["/cache/ab/cab.py:77"]
    assert (finding.step, finding.page) == (1, "/graphs/0/memory?call=2")
    assert finding.source is not None
    assert finding.source.line == 10


def test_a_check_of_no_graph(opened: Open) -> None:
    record = step_mismatch(graph=None, call=None, is_final_step=True, storage_bytes=[None], holders=[[]])
    log = training(2).record(record).record(replace(record, line=80)).record(replace(record, file="/cache/b.py"))
    first, second = all_findings(opened(log))
    assert first.title == "buf0 was not freed: the check at cab.py:77, of the final step, expects it to be freed"
    assert first.evidence["checked_at"] == ["/cache/ab/cab.py:77", "/cache/ab/cab.py:80"]
    assert (first.graph, first.step, first.source, first.page) == (None, None, None, "/memory?log=0")
    assert "b.py:77" in second.title


def test_a_check_of_a_call_that_is_lost(opened: Open) -> None:
    (finding,) = all_findings(opened(training(2).record(step_mismatch(call=99))))
    assert (finding.step, finding.page) == (None, "/graphs/0/memory")


def test_what_a_check_and_lifetimes_found_is_one_finding(opened: Open) -> None:
    log = training(2).record(mismatch()).record(step_mismatch()).record(step_mismatch("unexpected_allocation"))
    both, other = all_findings(opened(log))
    assert both.evidence["expected_by"] == "wrapper"
    assert both.evidence["checked_at"] == ["/cache/ab/cab.py:77"]
    assert other.evidence["expected_by"] == "check"


def gap_log(scratch: int, expected: int = 4 << 20) -> LogBuilder:
    buffers: list[Any] = [("buf0", expected, 0, -1, "output")]
    storages: list[Any] = [("buf0", "allocated", expected, 0, NEW), ("scratch", "returned", scratch, 0, NEW)]
    program = Program().allocate("buf0").launch("a", ["x"], ["buf0"])
    log = LogBuilder().record(run()).record(program.graph()).record(program.provenance())
    log.record(calls_of(0, program, 0, start_of(0))).record(logs.schedule(0, buffers, {}, 1))
    log.record(layout(0, 0, storages, [])).record(lifetimes([0], [0]))
    return log.record(End("exit", start_of(9)))


def test_a_peak_over_the_estimate(opened: Open) -> None:
    trace = opened(gap_log(2 << 20))
    (finding,) = all_findings(trace)
    assert (finding.kind, finding.severity, finding.buffer) == ("estimate_gap", "info", "scratch")
    assert finding.evidence["gap_bytes"] == 2 << 20
    assert finding.evidence["measured_snode"] == finding.evidence["estimated_snode"] == "op0"
    assert finding.evidence["buffers"] == [
        {"buffer": "scratch", "measured_bytes": 2 << 20, "expected_bytes": 0, "why": "the schedule does not contain it"}
    ]
    assert "50 % more than the scheduler's estimate of 4.2 MB" in finding.title


def test_the_result_of_an_operator_that_is_larger_than_the_schedule_knows(opened: Open) -> None:
    """The generated code gives it a second name, which allocates nothing in the schedule."""
    size, more = 4 << 20, 1 << 20
    buffers: list[Any] = [("buf0", size, 0, 0, "temporary"), ("buf1", 0, 1, 1, "temporary")]
    schedule = logs.schedule(0, [*buffers, ("buf2", more, 1, -1, "output")], {}, 2)
    schedule = replace(schedule, buffers=replace(schedule.buffers, free_bytes=[0, size, more]))
    program = Program().allocate("buf0").launch("operator", ["x"], ["buf0"]).reuse("buf1", "buf0")
    program.allocate("buf2").launch("a", ["buf1"], ["buf2"])
    storages: list[Any] = [("buf0", "returned", 2 * size, 0, NEW), ("buf2", "allocated", more, 1, NEW)]
    log = LogBuilder().record(run()).record(program.graph()).record(program.provenance())
    log.record(calls_of(0, program, 0, start_of(0))).record(schedule)
    log.record(layout(0, 0, storages, [(0, 2)])).record(lifetimes([0], [0])).record(End("exit", start_of(9)))
    (finding,) = (one for one in all_findings(opened(log)) if one.kind == "estimate_gap")
    assert finding.evidence["measured_index"] == 1
    assert "its storage is larger than the schedule's buffer (8.4 MB measured, 4.2 MB estimated)" in finding.proof[0]


@pytest.mark.parametrize(("scratch", "expected"), [(1 << 20, 4 << 20), (1000, 1000), (2 << 20, 9 << 20)])
def test_a_small_gap_is_none(opened: Open, scratch: int, expected: int) -> None:
    assert all_findings(opened(gap_log(scratch, expected))) == []


def losses(steps: Sequence[int]) -> list[tuple[int, int]]:
    return [(2 * step, 4) for step in steps]


def test_growth(opened: Open) -> None:
    log = training(5, keep=99).record(growth(losses(range(4)), ["list of 4 in keep of __main__"]))
    trace = opened(log)
    (finding,) = all_findings(trace)
    assert (finding.kind, finding.severity, finding.graph, finding.buffer) == ("growth", "warning", 0, "buf2")
    assert finding.title == (
        "Memory grows by 64 B per step: buf2 of graph 0/0 forward (model.py:12) stays alive after each step "
        "and is held by a list of 4 in keep of __main__"
    )
    (line,) = finding.proof
    assert line.startswith("At the end, 4 storages of steps 0 to 3 were still alive, 256 B together; ")
    assert line.endswith("a garbage collection did not free them")
    assert finding.evidence["bytes_per_step"] == 64
    assert finding.evidence["storage_bytes"] == 256
    assert (finding.evidence["first_step"], finding.evidence["last_step"]) == (0, 3)
    assert finding.source is not None
    assert finding.source.code == "line of cpp_fused_mean_1"
    assert finding.kernel == "cpp_fused_mean_1"
    assert summary(trace)["memory"]["growth_bytes_per_step"] == 64


@pytest.mark.slow
@pytest.mark.parametrize(("tensor_bytes", "is_told"), [(None, False), (64, False), (33, False), (32, True), (4, True)])
def test_a_view_that_keeps_a_storage(opened: Open, tensor_bytes: int | None, is_told: bool) -> None:
    left = growth(losses(range(4)), ["list of 4 in keep of __main__"], tensor_bytes=tensor_bytes)
    (finding,) = all_findings(opened(training(5, keep=99).record(left)))
    told = (
        f"Views that need only {tensor_bytes} B keep each storage of buf2 alive, which has 64 B; a clone() of them"
        " would let the storage be freed"
    )
    assert finding.proof[1:] == ([told] if is_told else [])


def test_growth_that_a_collection_frees(opened: Open) -> None:
    (finding,) = all_findings(opened(training(5, keep=99).record(growth(losses(range(4)), freed=True))))
    assert finding.evidence["freed_by_collection"] is True
    assert "a reference cycle held them" in finding.proof[0]


@pytest.mark.slow
def test_nothing_left_behind_is_no_growth_and_known(opened: Open) -> None:
    trace = opened(training(5).record(growth([])))
    assert all_findings(trace) == []
    assert left_behind(trace) == []
    assert summary(trace)["memory"]["growth_bytes_per_step"] == 0
    assert summary(opened(training(5)))["memory"]["growth_bytes_per_step"] is None


@pytest.mark.slow
@pytest.mark.parametrize("left", [[0], [0, 1, 2], [2, 3], [0, 2, 3], [3]])
def test_warm_up_and_caches_that_settle_are_no_growth(opened: Open, left: list[int]) -> None:
    assert all_findings(opened(training(5, keep=99).record(growth(losses(left))))) == []


@pytest.mark.slow
def test_a_window_of_the_last_few_is_no_growth(opened: Open) -> None:
    assert all_findings(opened(training(9, keep=4).record(growth(losses([4, 5, 6, 7]))))) == []
    (finding,) = all_findings(opened(training(9, keep=4).record(growth(losses([2, 3, 4, 5, 6, 7])))))
    assert finding.evidence["steps"] == 6


def test_inputs_are_never_growth(opened: Open) -> None:
    left = [(2 * step, 1) for step in range(4)]
    assert all_findings(opened(training(5, keep=99).record(growth(left)))) == []


def test_several_calls_of_one_graph_in_a_step_leave_what_they_leave(opened: Open) -> None:
    log = LogBuilder().record(run()).record(forward().graph())
    for step in range(4):
        for half in range(2):
            log.record(calls_of(2 * step + half, forward(), step, start_of(step) + half * 4_000))
        log.record(Steps([step], ["train"], ["user"], [start_of(step)], [start_of(step) + 9_000]))
    calls = list(range(8))
    log.record(logs.forward_layout()).record(lifetimes(calls, [0] * 8)).record(
        growth([(call, 3) for call in calls[:6]])
    )
    (finding,) = all_findings(opened(log.record(End("exit", start_of(9)))))
    assert finding.evidence["bytes_per_step"] == 2 * 1024


def leaking(holders: Sequence[Sequence[str]], least: int = 64, freed: bool = False) -> LogBuilder:
    """In each of five steps one launch makes buffers of 64, 128, … bytes, as many as `holders`, which hold them."""
    names = [f"buf{i}" for i in range(len(holders))]
    program = Program(0).allocate(*names).launch("a", ["x"], names)
    log = LogBuilder().record(run()).record(program.graph()).record(program.provenance())
    log.record(layout(0, 0, [(name, "allocated", least << i, 0, NEW) for i, name in enumerate(names)], []))
    for step in range(5):
        log.record(calls_of(step, program, step, start_of(step))).record(lifetimes([step], [0]))
        log.record(Steps([step], ["train"], ["user"], [start_of(step)], [start_of(step) + 9_000]))
    left = [(step, i) for step in range(4) for i in range(len(names))]
    record = replace(growth(left, freed=freed), holders=[list(holders[i]) for _, i in left])
    return log.record(record).record(End("exit", start_of(9)))


def test_one_leak_of_several_buffers_is_one_finding(opened: Open) -> None:
    keep, memo = ["list of 5 in keep of __main__"], ["dict of 5 in memo of __main__"]
    first, second = found(opened(leaking([keep, memo, keep])), "growth")
    assert first.title.startswith(
        "Memory grows by 320 B per step: buf2 and buf0 of graph 0/0 forward (model.py:10) stay alive after each step"
    )
    assert first.title.endswith("list of 5 in keep of __main__")
    assert (first.buffer, first.evidence["storage_bytes"], first.evidence["storages"]) == ("buf2", 4 * 320, 8)
    assert [(row["buffer"], row["bytes_per_step"]) for row in first.evidence["buffers"]] == [
        ("buf2", 256),
        ("buf0", 64),
    ]
    assert (second.buffer, second.evidence["bytes_per_step"], second.evidence["buffers"]) == ("buf1", 128, [])


def test_what_a_tensor_holds_through_its_autograd_graph_is_one_leak_with_it(opened: Open) -> None:
    keep = "list of 5 in keep of __main__"
    (finding,) = found(opened(leaking([[keep], [f"the autograd graph of a tensor in {keep}"]])), "growth")
    assert finding.title.endswith(f"(model.py:10) stay alive after each step and are held by a {keep}")
    assert finding.evidence["holders"] == [keep]


@pytest.mark.slow
def test_elements_of_one_variable_hold_one_leak(opened: Open) -> None:
    held = [[f"list of 8 in acts['{name}'] of __main__ (dict of 2)"] for name in "ab"]
    (finding,) = found(opened(leaking(held)), "growth")
    assert finding.title.endswith("stay alive after each step and are held by acts of __main__ (dict of 2)")
    (finding,) = found(opened(leaking(held[:1])), "growth")
    assert finding.title.endswith("is held by a list of 8 in acts['a'] of __main__ (dict of 2)")


def test_buffers_that_cycles_through_one_object_hold_are_one_leak(opened: Open) -> None:
    held = [["attribute out of Holder"], ["list of 1 in attribute cache of Holder"], ["attribute out of Other"]]
    first, second = found(opened(leaking(held, freed=True)), "growth")
    assert first.title.endswith("is held by a reference cycle through the attribute out of Other")
    assert second.title.endswith(
        "stay alive after each step and are held by a reference cycle through a list of 1 in attribute cache of Holder"
    )
    assert second.evidence["holders"] == ["list of 1 in attribute cache of Holder", "attribute out of Holder"]


@pytest.mark.slow
def test_cycles_through_dictionaries_of_other_objects_are_other_leaks(opened: Open) -> None:
    held = [[f"attribute cache['a'] of {name} (dict of 2)"] for name in ("Holder", "Other")]
    assert len(found(opened(leaking(held, freed=True)), "growth")) == 2
    held[1] = ["attribute out of Holder"]
    assert len(found(opened(leaking(held, freed=True)), "growth")) == 1


def test_one_leak_of_several_buffers_is_one_mismatch(opened: Open) -> None:
    held = ["list of 3 in keep of __main__"]
    log = leaking([held] * 3)
    for index, name in enumerate(("buf0", "buf1", "buf2")):
        log.record(mismatch(buffer=name, storage=index, expected=index + 1, storage_bytes=[64 << index]))
    log.record(step_mismatch(buffer="buf1", call=0)).record(step_mismatch(buffer="buf3", call=0, line=80))
    first, second = found(opened(log), "lifetime_mismatch")
    assert first.title == (
        "buf0, buf1 and buf2 (448 B) of graph 0/0 forward were not freed (5 times); they are held by a list of 3 "
        "in keep of __main__"
    )
    assert first.proof == ["They were still alive after the call."]
    assert first.evidence["storage_bytes"] == 64 + 128 + 256
    assert [row["buffer"] for row in first.evidence["buffers"]] == ["buf0", "buf1", "buf2"]
    assert first.evidence["checked_at"] == ["/cache/ab/cab.py:77"]
    assert second.buffer == "buf3"


def test_one_leak_that_several_checks_found_is_one_mismatch(opened: Open) -> None:
    log = leaking([[]] * 2).record(step_mismatch(call=0)).record(step_mismatch(buffer="buf1", call=0, line=80))
    (finding,) = found(opened(log), "lifetime_mismatch")
    assert finding.title == (
        "buf0 and buf1 (1.0 kB) of graph 0/0 forward were not freed: the checks at cab.py:77 and cab.py:80 found it; "
        "they are held by a list of 3 in keep of __main__"
    )
    assert finding.evidence["checks"] == 2


def recompiled(compile_ids: Sequence[str]) -> LogBuilder:
    """Each step runs a graph of its own, which leaves its output behind."""
    log = LogBuilder().record(run())
    for step, compile_id in enumerate(compile_ids):
        program = Program(step).allocate("buf0").launch("a", ["x"], ["buf0"])
        log.record(replace(program.graph(), compile_id=compile_id)).record(program.provenance())
        log.record(calls_of(step, program, step, start_of(step)))
        log.record(layout(step, step, [("buf0", "allocated", 64, 0, NEW)], [])).record(lifetimes([step], [step]))
        log.record(Steps([step], ["train"], ["user"], [start_of(step)], [start_of(step) + 9_000]))
    log.record(growth([(call, 0) for call in range(len(compile_ids) - 1)], ["list of 5 in keep of __main__"]))
    return log.record(End("exit", start_of(9)))


def test_a_frame_that_is_compiled_anew_in_each_step_grows(opened: Open) -> None:
    (finding,) = found(opened(recompiled([f"0/{n}" for n in range(5)])), "growth")
    assert finding.evidence["bytes_per_step"] == 64
    assert "stays alive after each step and is held by a list of 5 in keep of __main__" in finding.title
    assert finding.graph == 3


def test_graphs_of_several_frames_are_not_one(opened: Open) -> None:
    assert found(opened(recompiled([f"{n}/0" for n in range(5)])), "growth") == []
