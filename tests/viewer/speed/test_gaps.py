"""Code that is not compiled, between the calls of graphs: named with the lines of the calls if it takes long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.schema.launches import CallGaps, Calls, Launches
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import CallSite, DataWait, LineSamples, OptimizerStep, SampledLines, StepMarks, Steps
from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.speed.hot_lines import mostly
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.queries.runs import list_steps
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.gap_lines import HotLine
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, UNIX_NS, LogBuilder, compile_records, graph, run

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]
MS = 1_000_000


def training(before: int = 0, between: int = 0, after: int = 0, optimizer: int = 0, **of_run: Any) -> LogBuilder:
    """Ten steps: other code (ms), a call of 4 ms, other code, a backward pass of 4 ms, other code, the optimizer."""
    log = LogBuilder().record(run(guesses_steps=True, **of_run))
    log.record(graph()).record(graph(1, phase="backward", compile_id="0/0"))
    log.record(CallSite(0, "/src/train.py", 7, "main", "loss = model(x)"))
    log.record(CallSite(1, "/src/train.py", 9, "main", "loss.backward()"))
    end = MONOTONIC_NS
    for step in range(10):
        forward = end + before * MS
        backward = forward + (4 + between) * MS
        stepping = backward + (4 + after) * MS
        end = stepping + optimizer * MS
        calls = Calls(
            [2 * step, 2 * step + 1], [0, 1], [0, 0], [step, step], [1, 1], [None, None], [forward, backward],
            [4 * MS, 4 * MS], [1, 1], ["ok", "ok"],
        )  # fmt: skip
        log.record(Launches(calls, [0, 0], [forward, backward], [forward + MS, backward + MS]))
        if optimizer:
            log.record(OptimizerStep(1, stepping, optimizer * MS, "AdamW"))
        log.record(StepMarks(["optimizer"], [0], ["AdamW"], [1], [end]))
    return log.record(End("exit", end))


def serving(waiting: int, computing: int = 0) -> LogBuilder:
    """Ten calls of 4 ms, each of which is a step, the time (ms) between them, and how long it computes in that."""
    log = LogBuilder().record(run(guesses_steps=True)).record(graph())
    log.record(CallSite(0, "/src/serve.py", 7, "main", "model(queue.get())"))
    end = MONOTONIC_NS
    for call in range(10):
        start = end + waiting * MS
        end = start + 4 * MS
        calls = Calls([call], [0], [0], [call], [1], [None], [start], [4 * MS], [1], ["ok"])
        log.record(Launches(calls, [0], [start], [start + MS]))
        log.record(Steps([call], ["inference"], ["call"], [start], [end]))
        if call:
            log.record(CallGaps([call], [call - 1], [0], [computing * MS]))
    return log.record(End("exit", end))


def found(trace: Trace) -> list[Finding]:
    return [one for one in all_findings(trace) if one.kind == "uncompiled_work"]


def test_code_between_the_steps_is_before_the_first_call(opened: Open) -> None:
    (finding,) = found(opened(training(before=12)))
    assert finding.title == (
        "Work outside of compiled code takes 60 % of a step (12.0 ms of 20.0 ms), between the backward pass at"
        " train.py:9 of the step before and the compiled call at train.py:7"
    )
    assert (finding.severity, finding.evidence["share"]) == ("warning", 0.6)
    assert finding.source is not None
    assert finding.source.code == "loss = model(x)"


def test_a_server_waits_between_its_steps(opened: Open) -> None:
    trace = opened(serving(40))
    assert {row.by for row in list_steps(trace)} == {"call"}
    assert found(trace) == []


def test_what_a_server_computes_between_its_steps_is_work(opened: Open) -> None:
    (mostly,) = found(opened(serving(12, computing=12)))
    assert mostly.title.startswith("Work outside of compiled code takes 75 % of a step (12.0 ms of 16.0 ms)")
    assert mostly.proof == []
    (partly,) = found(opened(serving(40, computing=4)))
    assert partly.title.startswith("Work outside of compiled code takes 50 % of a step (4.00 ms of 8.00 ms)")
    assert found(opened(serving(40, computing=1))) == []


def computing(log: LogBuilder, between: int, outside: int) -> LogBuilder:
    """Add for how long (ms) the thread computes between the calls of a step, and from one step to the next."""
    log.record(CallGaps(list(range(1, 20, 2)), list(range(0, 20, 2)), [0] * 10, [between * MS] * 10))
    return log.record(CallGaps(list(range(2, 20, 2)), list(range(1, 19, 2)), [0] * 9, [outside * MS] * 9))


def test_a_thread_that_does_not_compute_is_no_work(opened: Open) -> None:
    """On a busy machine other programs take the core from the thread."""
    assert found(opened(computing(training(between=8), 1, 0))) == []
    (finding,) = found(opened(computing(training(between=14), 6, 0)))
    assert finding.title.startswith("Work outside of compiled code takes 27 % of a step (6.00 ms of 22.0 ms)")
    assert finding.proof[0].startswith("The thread also waits there for 8.00 ms per step, which may be for a core")


def test_time_after_the_last_call_is_work_as_far_as_the_thread_computes(opened: Open) -> None:
    """The time for which it computes is known for all that happens until the next step."""
    (finding,) = found(opened(computing(training(before=1, after=12, optimizer=5), 0, 18)))
    assert finding.title.startswith("Work outside of compiled code takes 46 % of a step (12.0 ms of 26.0 ms)")
    assert found(opened(computing(training(before=1, after=12, optimizer=5), 0, 7))) == []


def test_waiting_for_data_is_no_sign_of_a_busy_machine(opened: Open) -> None:
    log = computing(training(before=24), 0, 12)
    for step in range(1, 10):
        log.record(DataWait(1, MONOTONIC_NS + 32 * step * MS, 12 * MS, 2, "/src/train.py", 5))
    (finding,) = found(opened(log))
    assert finding.title.startswith("Work outside of compiled code takes 38 % of a step (12.0 ms of 32.0 ms)")


def test_the_time_of_the_recorder_is_left_out(opened: Open) -> None:
    log = training(before=8, between=4)
    log.record(CallGaps(list(range(1, 20)), list(range(19)), [2 * MS] * 19, [8 * MS] * 19))
    (finding,) = found(opened(log))
    assert finding.title.startswith("Work outside of compiled code takes 38 % of a step (6.00 ms of 16.0 ms)")
    assert finding.proof == ["The recorder itself takes about 2.00 ms per step in this time, which is not counted."]


def test_each_place_has_a_finding(opened: Open) -> None:
    first, second = found(opened(training(before=1, between=8, after=8)))
    assert first.title.endswith("between the compiled call at train.py:7 and the backward pass at train.py:9")
    assert second.title.endswith("between the backward pass at train.py:9 and the end of the step")
    assert first.severity == "info"


def looped(times: int, between: int) -> LogBuilder:
    """Ten steps, with as many calls of 1 ms as backward passes, and other code (ms) after each call."""
    log = LogBuilder().record(run(guesses_steps=True))
    log.record(graph()).record(graph(1, phase="backward", compile_id="0/0"))
    log.record(CallSite(0, "/src/train.py", 7, "main", "for x in xs: y = cell(x, y)"))
    log.record(CallSite(1, "/src/train.py", 9, "main", "y.backward()"))
    start, count = MONOTONIC_NS, 2 * times
    for step in range(10):
        graphs, starts = [0] * times + [1] * times, [start + n * (1 + between) * MS for n in range(count)]
        numbers, start = list(range(count * step, count * step + count)), start + count * (1 + between) * MS
        calls = Calls(
            numbers, graphs, [0] * count, [step] * count, [1] * count, [None] * count, starts, [MS] * count,
            [1] * count, ["ok"] * count,
        )  # fmt: skip
        log.record(Launches(calls, [0] * count, starts, [at + MS for at in starts]))
        log.record(StepMarks(["optimizer"], [0], ["AdamW"], [1], [start]))
    return log.record(End("exit", start))


def test_the_calls_of_a_loop_and_their_backward_passes_are_one_finding(opened: Open) -> None:
    (finding,) = found(opened(looped(20, 2)))
    assert finding.title == (
        "Work outside of compiled code takes 62 % of a step (74.0 ms of 120 ms), between two graphs of the"
        " backward pass at train.py:9 and between one call and the next at train.py:7"
    )
    assert not any("Dynamo also checks the guards" in said for said in finding.proof)  # autograd calls what follows
    assert (finding.evidence["times"], finding.severity) == (19, "warning")


def test_an_optimizer_is_no_code_of_the_program(opened: Open) -> None:
    assert found(opened(training(before=1, after=1, optimizer=30))) == []


def test_short_gaps_are_usual(opened: Open) -> None:
    assert found(opened(training(before=1, between=1, after=1))) == []


def of_ranks(folder: Path, *logs: LogBuilder) -> list[Finding]:
    for rank, log in enumerate(logs):
        log.write(folder / f"stepscope_trace_rank_{rank}_{4711 + rank}_a.log")
    with open_trace(folder) as trace:
        return found(trace)


def test_ranks_exchange_gradients_after_the_backward_pass(tmp_path: Path) -> None:
    logs = [training(before=1, between=8, after=8, rank=rank, world_size=2) for rank in range(2)]
    (finding,) = of_ranks(tmp_path, *logs)
    assert "between the compiled call at train.py:7 and the backward pass" in finding.title
    assert finding.evidence["logs"] == 2


def test_ranks_wait_for_each_other_outside_of_graphs(tmp_path: Path) -> None:
    def logs(computing: int) -> list[LogBuilder]:
        found = [training(before=1, between=8, rank=rank, world_size=2) for rank in range(2)]
        for log in found:
            later, earlier = list(range(1, 20, 2)), list(range(0, 20, 2))
            log.record(CallGaps(later, earlier, [0] * 10, [computing * MS] * 10))
        return found

    assert len(of_ranks(tmp_path / "computing", *logs(8))) == 1
    assert of_ranks(tmp_path / "waiting", *logs(1)) == []


def test_ranks_that_wait_for_a_slow_one_are_not_named(tmp_path: Path) -> None:
    late, waiting = training(before=17, rank=0, world_size=2), training(before=1, between=16, rank=1, world_size=2)
    assert of_ranks(tmp_path, late, waiting) == []


def test_a_frame_that_reached_the_limit_tells_what_it_takes_since(opened: Open) -> None:
    def limited(between: int) -> list[str]:
        reason = "Dynamo recompile limit exceeded\n  Explanation: exceeding the recompile_limit (currently set to 8)."
        at = {"start_time_us": (UNIX_NS + 5 * MS) // 1000, "duration_us": 10}
        log = compile_records(training(before=1, between=between), 3, 0)
        log.torch(
            "compilation_metrics",
            {"fail_type": "Unsupported", "fail_reason": reason, "co_name": None, **at},
            frame_id=3, frame_compile_id=1, attempt=0,
        )  # fmt: skip
        return next(one.proof for one in all_findings(opened(log)) if one.kind == "recompile_limit")

    told = (
        "Since then, the time between calls of compiled graphs, in which the frame runs, is 47 % of a step (8.00 ms of"
        " 17.0 ms)."
    )
    assert limited(8) == [told]
    assert limited(1) == []


def sampled(log: LogBuilder, *places: tuple[int, int], held: Sequence[int] = (), delayed: int = 0) -> LogBuilder:
    """Add samples of stacks of two lines, from a place (ms) of each step of 20 ms on: its line, and how many."""
    log.record(SampledLines(0, ["/src/train.py"], [4], ["<module>"], ["zero()"]))
    for number, (line, _) in enumerate(places, 1):
        files = ["/src/train.py", "/src/text.py"]
        log.record(
            SampledLines(number, files, [5, line], ["<module>", "tokenize"], ["batch = tokenize(x)", f"l{line}"])
        )
    for step in range(10):
        numbers = [number for number, (_, count) in enumerate(places, 1) for _ in range(count)]
        ns = [MONOTONIC_NS + 20 * step * MS + at * MS for at in range(len(numbers))]
        log.record(LineSamples([1] * len(numbers), ns, numbers, [*held], [delayed] * len(numbers)))
    return log


def test_the_line_with_most_samples_is_named(opened: Open) -> None:
    (finding,) = found(opened(sampled(training(before=12), (30, 9), (31, 2))))
    assert finding.title.endswith("the compiled call at train.py:7, mostly at text.py:30")
    assert finding.proof[:2] == [
        "In 45 of 55 samples of this time the program is at text.py:30 in tokenize: l30",
        "This is called at train.py:5: batch = tokenize(x)",
    ]
    assert (finding.source.file, finding.source.line) == ("/src/text.py", 30) if finding.source else False


def test_a_line_to_which_the_thread_computed_is_not_said_to_take_the_time(opened: Open) -> None:
    """As an operator of PyTorch after a loop in Python, during which no other thread runs."""
    (finding,) = found(opened(sampled(training(before=12), (30, 9), (31, 2), held=[0, *[MS] * 8, 0, 0])))
    assert finding.title.endswith("mostly in Python code up to text.py:30")
    assert finding.proof[1].endswith("the time passes in the code up to and including this line.")
    (finding,) = found(opened(sampled(training(before=12), (30, 9), (31, 2), held=[MS, *[0] * 8, MS, MS])))
    assert finding.title.endswith("mostly at text.py:30")


def test_several_lines_of_a_function_are_named_with_the_line_that_calls_it(opened: Open) -> None:
    (finding,) = found(opened(sampled(training(before=12), (30, 3), (31, 3), (33, 3))))
    assert finding.title.endswith("mostly in lines 30 to 33 of tokenize (text.py)")
    assert finding.source is not None
    assert (finding.source.file, finding.source.line) == ("/src/text.py", 30)
    assert finding.proof[0].endswith("the program is at train.py:5: batch = tokenize(x)")
    assert finding.proof[1] == "Most of these samples are in lines 30 to 33 of tokenize."


def test_a_line_that_is_told_already_is_not_told_again() -> None:
    source = SourceLine("/src/train.py", 7, "<module>", "loss.backward()")
    hot = HotLine(source, 1.0, 9, (), None, None, None)
    assert mostly(hot, "between two graphs of the backward pass at train.py:7") == ""
    assert mostly(hot, "before the compiled call at train.py:17") == ", mostly at train.py:7"


def test_few_samples_name_no_line(opened: Open) -> None:
    log = training(before=12).record(SampledLines(0, ["/src/train.py"], [4], ["<module>"], ["zero()"]))
    (finding,) = found(
        opened(log.record(LineSamples([1] * 7, [MONOTONIC_NS + 21 * MS + at for at in range(7)], [0] * 7)))
    )
    assert "mostly" not in finding.title


def test_waiting_counts_where_samples_show_its_line(opened: Open) -> None:
    """As for a disk: without samples, a busy machine may be the cause."""
    log = computing(training(before=12), 0, 1)
    assert found(opened(log)) == []
    (finding,) = found(opened(sampled(computing(training(before=12), 0, 1), (30, 11))))
    assert finding.title.startswith("Work outside of compiled code takes 60 % of a step (12.0 ms of 20.0 ms)")
    assert any("of it; otherwise it waits" in said for said in finding.proof), finding.proof


def test_waiting_for_a_core_of_the_machine_does_not_count(opened: Open) -> None:
    assert found(opened(sampled(computing(training(before=12), 0, 1), (30, 11), delayed=70))) == []
    (finding,) = found(opened(sampled(computing(training(before=12), 0, 1), (30, 11), delayed=25)))
    assert finding.title.startswith("Work outside of compiled code takes 45 % of a step (9.00 ms of 20.0 ms)")


def test_waits_for_a_core_in_calls_are_no_part_of_the_step(opened: Open) -> None:
    log = sampled(computing(training(before=12), 0, 1), (30, 11), delayed=25)
    log.record(LineSamples([1], [MONOTONIC_NS], [1], [0], [25], looks_in_calls=10, delayed_in_calls=250))
    calls = list(range(19))
    log.record(CallGaps([one + 1 for one in calls], calls, [0] * 19, [0] * 19, [0] * 19))
    (finding,) = found(opened(log))
    assert finding.title.startswith("Work outside of compiled code takes 60 % of a step (9.00 ms of 15.0 ms)")
    assert (
        "In a step, the thread waits for a core of the machine for about 5.00 ms, which is not counted."
        in finding.proof
    )


@pytest.mark.parametrize(("looks", "delayed", "whole"), [(10, 500, "13.0 ms"), (2**50, 500, "17.0 ms")])
def test_each_wait_has_the_rate_that_was_seen(opened: Open, looks: int, delayed: int, whole: str) -> None:
    """A quarter of the gap of 12 ms, and half of the calls of 8 ms, of which one computes nothing."""
    log = sampled(computing(training(before=12), 0, 1), (30, 11), delayed=25)
    log.record(LineSamples([1], [MONOTONIC_NS], [1], [0], [25], looks_in_calls=looks, delayed_in_calls=delayed))
    calls = list(range(1, 20, 2))
    log.record(CallGaps(calls, [one - 1 for one in calls], [0] * 10, [0] * 10, [0] * 10))
    (finding,) = found(opened(log))
    assert f"(9.00 ms of {whole})" in finding.title


def test_waiting_does_not_count_where_samples_are_spread_over_the_loop(opened: Open) -> None:
    """As on a busy machine: the line that they share is the call of the function that contains the loop."""
    log = computing(training(before=12), 0, 1)
    log.record(SampledLines(0, ["/src/train.py"], [30], ["<module>"], ["main()"]))
    for number, line in enumerate((4, 6, 8), 1):
        files = ["/src/train.py", "/src/train.py"]
        log.record(SampledLines(number, files, [30, line], ["<module>", "main"], ["main()", f"l{line}"]))
    for step in range(10):
        ns = [MONOTONIC_NS + 20 * step * MS + at * MS for at in range(9)]
        log.record(LineSamples([1] * 9, ns, [1, 2, 3] * 3))
    assert found(opened(log)) == []
