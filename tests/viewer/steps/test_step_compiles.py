"""Compiling is told apart from the steps, and booked to the one that triggered it; what is said of steps as a whole."""

from __future__ import annotations

from dataclasses import replace

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.steps import StepMarks, Steps
from stepscope.viewer.ingest.recorder.launch_batches import EndedStep, LaunchBatches
from stepscope.viewer.ingest.steps.compiles import Compiling, compiles_by_step, on_clock_of, with_compiles
from stepscope.viewer.overview.queries.runs import list_steps
from stepscope.viewer.overview.rows import StepRow
from stepscope.viewer.steps.queries.step_sources import step_sources
from tests.logs import synthetic
from tests.logs.synthetic import MONOTONIC_NS, UNIX_NS, LogBuilder
from tests.viewer.steps.test_queries import Open


def calls(*places: tuple[int, int, int]) -> LaunchBatches:
    """(start, step, graph) of each."""
    batches = LaunchBatches()
    for number, (start_ns, step, graph) in enumerate(places):
        batches.add(
            Launches(Calls([number], [graph], [0], [step], [1], [None], [start_ns], [10], [0], ["ok"]), [], [], [])
        )
    return batches


GRAPHS = {n: synthetic.graph(n, compile_id=f"{n}/0", phase="inference") for n in range(3)}


def test_times_of_compiling_are_joined_on_the_clock_of_the_calls() -> None:
    clocks = 1_000, 51_000
    spans = [(51_300, 51_400, "0/0"), (51_100, 51_500, "0/0"), (51_450, 51_600, "1/0"), (51_900, 51_950, "2/0")]
    assert on_clock_of(clocks, (Compiling(*span) for span in spans)) == [(1_100, 1_600, "0/0"), (1_900, 1_950, "2/0")]
    assert on_clock_of(None, (Compiling(*span) for span in spans)) == []


def test_a_compile_belongs_to_the_call_of_what_was_compiled() -> None:
    batches = calls((100, 0, 0), (300, 1, 1), (500, 2, 2))
    compiles = [
        Compiling(10, 90, "0/0"),
        Compiling(150, 290, "2/0"),
        Compiling(310, 320, None),
        Compiling(600, 700, "9/0"),
    ]
    booked = compiles_by_step(compiles, batches, GRAPHS, ())
    assert {step: [one.start_ns for one in found] for step, found in booked.items()} == {0: [10], 2: [150, 310, 600]}
    assert compiles_by_step(compiles, calls(), {}, ()) == {}


def test_a_refused_compile_of_an_optimizer_belongs_to_the_step_before_it() -> None:
    batches = calls((100, 0, 0), (300, 1, 1))
    compiles = [Compiling(50, 60, "9/0"), Compiling(150, 290, "9/0"), Compiling(150, 290, "8/0")]
    booked = compiles_by_step(compiles, batches, GRAPHS, {"9/0"})
    assert {step: [one.compile_id for one in found] for step, found in booked.items()} == {0: ["9/0"] * 2, 1: ["8/0"]}


def test_a_step_holds_no_time_of_the_next_functions_compile() -> None:
    steps = {0: EndedStep("inference", "call", 0, 4_700_007), 1: EndedStep("inference", "call", 4_700_007, None)}
    compiles = [Compiling(5, 4_700_000, "1/0")]
    found = with_compiles(steps, compiles, {1: compiles})
    assert (found[0].duration_ns, found[0].compile_ns) == (12, 0)
    assert (found[1].duration_ns, found[1].compile_ns) == (None, 4_699_995)


def test_a_step_beside_the_compile_of_another_thread_keeps_its_time() -> None:
    steps = {0: EndedStep("inference", "call", 50, 60), 1: EndedStep("inference", "call", 100, 130)}
    compiles = [Compiling(10, 90, "1/0")]
    found = with_compiles(steps, compiles, {1: compiles})
    assert [(step.duration_ns, step.compile_ns) for step in found.values()] == [(10, 0), (30, 80)]


def test_times_that_cannot_be_cost_nothing_but_themselves(opened: Open) -> None:
    edge = 2**63 - 1
    log = LogBuilder().record(synthetic.run(guesses_steps=True, monotonic_ns=edge, unix_ns=0))
    log.torch("chromium_event", {}, payload=synthetic_span("B", 0)).torch(
        "chromium_event", {}, payload=synthetic_span("E", 9)
    )
    log.record(synthetic.graph(phase="inference")).record(synthetic.calls(0, 0, MONOTONIC_NS))
    log.record(StepMarks(["optimizer", "user"], [edge, -edge], [None, None], [1, 1], [-edge, edge]))
    log.record(synthetic.run())
    assert len(list_steps(opened(log))) == 1
    assert EndedStep("train", "user", edge, -edge).duration_ns == -edge - 1


def test_a_log_without_spans_does_not_say_what_compiling_took() -> None:
    steps = {0: EndedStep("inference", "call", 0, 10)}
    assert with_compiles(steps, [], {})[0].compile_ns is None


def guessed(log: LogBuilder, marks: StepMarks | None) -> LogBuilder:
    log.record(synthetic.run(guesses_steps=True))
    log.torch("chromium_event", {}, payload=synthetic_span("B", 0)).torch(
        "chromium_event", {}, payload=synthetic_span("E", 9)
    )
    log.record(synthetic.graph(phase="inference"))
    for number in range(4):
        log.record(synthetic.calls(10 * number, 77, MONOTONIC_NS + 20_000_000 * (number + 1)))
    return log if marks is None else log.record(marks)


def synthetic_span(phase: str, after_ms: int) -> bytes:
    stamp_us = (UNIX_NS + after_ms * 1_000_000) / 1_000
    text = f'{{"name": "dynamo", "ph": "{phase}", "ts": {stamp_us}, "tid": 0, "args": {{"compile_id": "0/0"}}}}'
    return text.encode()


def test_the_recorders_guess_is_replaced(opened: Open) -> None:
    steps = list_steps(opened(guessed(LogBuilder(), None)))
    assert [(row.step, row.by, row.calls) for row in steps] == [(n, "call", 2) for n in range(4)]
    assert [row.compile_ns for row in steps] == [9_000_000, 0, 0, 0]
    assert steps[0].start_ns == MONOTONIC_NS
    assert steps[0].duration_ns == 40_000_000 - 9_000_000


def test_marks_of_the_log_end_steps(opened: Open) -> None:
    ends = [MONOTONIC_NS + ms * 1_000_000 for ms in (50, 90)]
    marks = StepMarks(["optimizer"] * 2, [0, 0], ["AdamW", "AdamW"], [1, 1], ends)
    steps = list_steps(opened(guessed(LogBuilder(), marks)))
    assert [(row.by, row.optimizers, row.calls, row.end_ns) for row in steps] == [
        ("optimizer", "AdamW", 4, ends[0]),
        ("optimizer", "AdamW", 4, ends[1]),
    ]


def test_marks_of_unequal_columns_are_a_broken_payload(opened: Open) -> None:
    trace = opened(guessed(LogBuilder(), StepMarks(["optimizer"], [0, 0], [None], [1], [1])))
    assert len(list_steps(trace)) == 4
    assert trace.once(lambda t: t.cursor().execute("SELECT reason FROM problems").fetchall()) == [("broken_payload",)]


def test_the_steps_of_an_older_log_are_its_own(opened: Open) -> None:
    log = LogBuilder().record(synthetic.run(format_version=1)).record(synthetic.graph())
    for step in (3, 5):
        log.record(synthetic.calls(10 * step, step, MONOTONIC_NS + 1_000 * step))
        log.record(Steps([step], ["train"], ["optimizer"], [MONOTONIC_NS + 1_000 * step], [MONOTONIC_NS + 9_000]))
    rows = list_steps(opened(log))
    assert [(row.step, row.kind, row.by, row.duration_ns) for row in rows] == [
        (3, "train", "optimizer", 6_000),
        (5, "train", "optimizer", 4_000),
    ]


def row(number: int, **changes: object) -> StepRow:
    made = StepRow(0, number, "train", "optimizer", 0, 1, 1, 20, 3, 0, "AdamW")
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_trace_says_by_what_its_steps_were_found() -> None:
    assert step_sources([row(n) for n in range(9)]).found_by == "Steps were found by the optimizer AdamW."
    mixed = [*(row(n, optimizers="D, G") for n in range(3)), row(3, by="call", kind="inference", optimizers=None)]
    assert step_sources(mixed).found_by == (
        "Steps were found by the optimizers D and G (3) and by calls of the same function (1)."
    )
    assert step_sources([]).found_by is None
    ranks = [row(n, log=log) for log, steps in ((0, 9), (1, 7)) for n in range(steps)]
    assert step_sources(ranks).found_by == "Steps were found by the optimizer AdamW, 7 to 9 in each of 2 logs."


def test_steps_that_look_like_no_iterations_are_doubted() -> None:
    assert step_sources([row(n, calls=3 + n % 2) for n in range(40)]).doubt is None
    uneven = step_sources([row(n, calls=1 if n % 2 else 90) for n in range(40)]).doubt
    assert uneven is not None
    assert uneven.startswith("Each train step calls between 1 and 90 graphs. If they are not")
    single = [row(n, by="call", kind="inference", launches=1, calls=1) for n in range(300)]
    doubt = step_sources(single).doubt
    assert doubt is not None
    assert doubt.endswith("call stepscope.step() at the end of each iteration.")
    assert step_sources([row(n, by="user", calls=n**3) for n in range(40)]).doubt is None


def test_workers_of_a_data_loader_are_told_of_and_not_counted() -> None:
    found = step_sources([row(0), row(0, log=1, kind="data", by="call")])
    assert found.found_by == "Steps were found by the optimizer AdamW."
    assert (
        found.data_workers
        == "1 worker of a DataLoader called compiled functions; these calls are not counted as steps."
    )
