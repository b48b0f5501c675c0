"""Compiled calls that run again together are told where one eager checkpoint is around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepscope.tracer.schema.launches import CallsInBackward
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import CallSite, Steps
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import calls_of, layout, lifetimes
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, compile_records, run
from tests.logs.value_logs import Program

Open = Callable[[LogBuilder], Trace]
MB = 1_000_000
STEP_NS, CALL_NS = 1_000_000, 10_000
GRAPHS = {"F": 0, "S": 0, "A": 0, "B": 1, "I": 2, "r": 3, "a": 3}
"""The graph of each kind of call: forward, forward that saves, again, backward, inference, and the parts after graph
breaks, in the forward pass and again."""
WHOLE = "F0 F1 F2 A0 A1 A2 B2 B1 B0"


def programs() -> list[Program]:
    def of(number: int, phase: str, compile_id: str) -> Program:
        one = Program(number, phase, compile_id).allocate("buf0")
        return one.launch("extern_kernels.mm", ["primals_1"], ["buf0"])

    back = Program(1, "backward").launch("extern_kernels.mm", ["primals_1", "saved"], ["primals_1"])
    return [of(0, "forward", "0/0"), back, of(2, "inference", "0/1"), of(3, "forward", "1/0")]


class Training:
    """Writes steps whose calls are named by their kind and the number of their weight, as in ``F0 A0 B0``."""

    def __init__(self, weight_bytes: int = 1_000, saved_bytes: int = MB) -> None:
        self.log = LogBuilder().record(run())
        compile_records(self.log, 1, co_name="torch_dynamo_resume_in_forward_at_12")
        self.programs = programs()
        for program in self.programs:
            self.log.record(program.graph()).record(program.provenance())
        self.sizes = weight_bytes, saved_bytes
        self.number, self.weights, self.saved = 0, dict[str, tuple[int, int]](), dict[str, list[int]]()

    def step(self, number: int, names: str) -> Training:
        at = MONOTONIC_NS + (number + 1) * STEP_NS
        again, calls = [], []
        for place, name in enumerate(names.split()):
            program = self.programs[GRAPHS[name[0]]]
            self.log.record(calls_of(self.number, program, number, at + place * CALL_NS))
            self._storages(number, name[0], name[1:])
            again += [self.number] if name[0] in "Aa" else []
            calls.append(self.number)
            self.number += 1
        self.log.record(CallsInBackward(again)).record(lifetimes(calls, calls))
        self.log.record(Steps([number], ["train"], ["optimizer"], [at], [at + STEP_NS]))
        return self

    def _storages(self, step: int, kind: str, block: str) -> None:
        weight_bytes, saved_bytes = self.sizes
        first, in_step = self.weights.setdefault(block, (self.number, step))
        met = (self.number - first, None, 0) if in_step == step else (None, first, 0)
        weight: Any = ("primals_1", "input", weight_bytes, 0, met if first < self.number else (None, None, None))
        if kind == "B":
            back = self.number - self.saved[block].pop()
            storages, deaths = [weight, ("saved", "input", saved_bytes, 0, (back, None, 1))], [(1, 1)]
        else:
            storages, deaths = [weight, ("buf0", "allocated", saved_bytes, 0, (None, None, None))], [(1, 1)]
            if kind in "ASa":
                self.saved.setdefault(block, []).append(self.number)
                deaths = []
        self.log.record(layout(self.number, GRAPHS[kind], storages, deaths))


@pytest.fixture
def found(opened: Open) -> Callable[..., list[Finding]]:
    """Return what is found in a run of such steps."""

    def of(names: str, steps: int = 3, sites: tuple[CallSite, ...] = (), **sizes: int) -> list[Finding]:
        training = Training(**sizes)
        for site in sites:
            training.log.record(site)
        for step in range(steps):
            training.step(step, names)
        trace = opened(training.log.record(End("exit", MONOTONIC_NS + 100 * STEP_NS)))
        return [one for one in all_findings(trace) if one.kind == "recomputed_together"]

    return of


def test_calls_inside_of_one_checkpoint_are_told_with_their_line(found: Callable[..., list[Finding]]) -> None:
    sites = [(14, "return self.norm(block(x))"), (20, "x = checkpoint(self.run, x)"), (31, "loss.backward()")]
    (one,) = found(WHOLE, sites=tuple(CallSite(0, "/src/net.py", line, "f", code) for line, code in sites))
    assert (one.severity, one.source and one.source.line) == ("warning", 20)
    assert one.title == (
        "3 compiled calls (net.py:20) run again together in the backward pass, and what they save is alive together:"
        " 3.0 MB of the peak of 3.0 MB"
    )
    assert one.proof[0].startswith("All of them run again before the backward graph of the last of them, in 3 steps.")
    assert (
        "The largest of them saves 1.0 MB: with one call at a time, this moment would take up to 2.0 MB" in one.proof[1]
    )
    assert one.evidence["recomputed_bytes"] == 3 * MB


def test_without_the_line_of_the_checkpoint_the_line_of_the_call_is_named(found: Callable[..., list[Finding]]) -> None:
    (one,) = found(WHOLE, sites=(CallSite(0, "/src/net.py", 14, "run", "x = block(x)"),))
    assert one.source is not None
    assert one.source.line == 14
    (one,) = found(WHOLE)
    assert one.source is None
    assert one.title.startswith("3 compiled calls run again together")


@pytest.mark.parametrize(
    "names",
    [
        "I0 I1 I2 A0 A1 A2 B2 B1 B0",  # reentrant: the forward pass runs without gradients
        f"{WHOLE} {WHOLE}",  # gradient accumulation
        f"I0 I1 I2 {WHOLE}",  # an evaluation in the same step
        "F0 F1 F2 F3 A1 A2 A3 B3 B2 B1 A0 B0",  # another checkpoint is around one call
        "F0 r0 F1 r1 F2 r2 A0 a0 A1 a1 A2 a2 B2 B2 B1 B1 B0 B0",  # graph breaks
    ],
)
def test_other_programs_that_run_calls_again_together(names: str, found: Callable[..., list[Finding]]) -> None:
    (one,) = found(names)
    assert one.evidence["calls"] == 3


PER_BLOCK = "A2 B2 A1 B1 A0 B0"


@pytest.mark.parametrize(
    "names",
    [
        f"F0 F1 F2 {PER_BLOCK}",
        f"I0 I1 I2 {PER_BLOCK}",
        f"F0 F1 F2 {PER_BLOCK} F0 F1 F2 {PER_BLOCK}",  # gradient accumulation
        "F0 F1 F2 F3 A2 A3 B3 B2 A0 A1 B1 B0",  # two blocks in each checkpoint
        "F0 F1 F2 F3 F4 F5 A3 A4 A5 B5 B4 B3 A0 A1 A2 B2 B1 B0",  # several calls in each of two checkpoints
        "F0 F1 F2 F3 F4 F5 A3 A4 A5 r9 B5 B4 B3 A0 A1 A2 B2 B1 B0",  # with a call of another thread
        "S0 S1 S2 B2 B1 B0",  # no checkpoint
        "F0 F1 A0 A1 B1 B0",  # too few calls
        "F0 r8 r9 A0 a8 a9 B9 B8 B0",  # one function with graph breaks
        "I0 I1 I2 A2 A1 A0 B0 B1 B2",  # the derivative of a function computes it, in the reverse order
        "I5 A0 A1 A2 B2 B1 B0",  # the derivative of another function
        "r0 r1 r2 A0 A1 A2 B2 B1 B0",
        "F0 F0 F0 A0 A0 A0 B0 B0 B0",  # nothing tells the calls apart
    ],
)
def test_what_is_not_proven_or_needed_at_once_is_no_finding(names: str, found: Callable[..., list[Finding]]) -> None:
    assert found(names) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 2},
        {"saved_bytes": MB // 4},  # too little to care
        {"weight_bytes": 10 * MB},  # something else makes the peak
    ],
)
def test_few_steps_and_little_memory_are_no_finding(
    changes: dict[str, int], found: Callable[..., list[Finding]]
) -> None:
    assert found(WHOLE, **changes) == []
