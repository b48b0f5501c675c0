"""Tests that PyTorch's profiler runs in the chosen steps only, on the clock of the launches, and harms nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stepscope.tracer.inductor import compat
from stepscope.tracer.runtime.profiling import StepProfiler
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.profiles import ProfiledOperator

pytestmark = pytest.mark.filterwarnings("ignore")


class Sink:
    def __init__(self) -> None:
        self.operators: list[ProfiledOperator] = []
        self.gaps: list[Skipped] = []
        self.failures: list[Exception] = []
        self.cuda_graphs: Any = SimpleNamespace(profiled=None)

    def write(self, record: Any) -> None:
        self.operators.append(record)

    def skipped(self, record: Skipped) -> None:
        self.gaps.append(record)

    def guarded(self, where: str, function: Callable[..., None], *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:
            self.failures.append(error)


def run(sink: Sink, steps: tuple[int, int | None], count: int = 5) -> dict[int, tuple[int, int]]:
    """Run a product in each step; return when it began and ended."""
    profiler, times = StepProfiler(sink, steps, compat.profiler_is_on), {}
    matrix, vector = torch.ones(300, 300), torch.ones(300)
    for step in range(count):
        profiler.at_step(step)
        began = perf_counter_ns()
        torch.addmv(vector, matrix, vector)
        times[step] = began, perf_counter_ns()
    profiler.detach()
    assert not compat.profiler_is_on()
    return times


@pytest.mark.parametrize(
    ("steps", "seen"), [((1, 3), [1, 2]), ((3, None), [3, 4]), ((0, 1), [0]), ((9, 12), []), ((4, 9), [4])]
)
def test_operators_of_these_steps_are_recorded_on_the_clock_of_the_launches(
    steps: tuple[int, int | None], seen: list[int]
) -> None:
    sink = Sink()
    times = run(sink, steps)
    outer = [one for one in sink.operators if one.depth == 0]
    assert [one.name for one in outer] == ["aten::addmv"] * len(seen)
    for step, one in zip(seen, outer, strict=True):
        began, ended = times[step]
        assert began <= one.start_ns + one.duration_ns // 2 <= ended
        assert one.thread == threading.get_native_id()
    inner = [one for one in sink.operators if one.depth]
    assert all(any(o.start_ns <= i.start_ns <= o.start_ns + o.duration_ns for o in outer) for i in inner)
    assert (sink.gaps, sink.failures) == ([], [])


@pytest.mark.parametrize("own_first", [True, False])
@pytest.mark.parametrize("way", [torch.profiler.profile, torch.autograd.profiler.profile])
def test_a_program_that_profiles_itself_keeps_its_profile(own_first: bool, way: Any) -> None:
    sink = Sink()
    profiler = StepProfiler(sink, (0, 1), compat.profiler_is_on)
    methods = torch.profiler.profile.start, torch.autograd.profiler.profile.__enter__
    if not own_first:
        profiler.at_step(0)
        torch.ones(3).sin()
    with way() as own:
        if own_first:
            profiler.at_step(0)
        torch.ones(3).exp()
        profiler.at_step(1)
        torch.ones(3).cos()
    profiler.detach()
    events = own.events() if way is torch.profiler.profile else own.function_events
    assert {"aten::exp", "aten::cos"} <= {event.name for event in events}
    assert sink.failures == []
    assert ("aten::sin" in {one.name for one in sink.operators}) != own_first
    assert [gap.why for gap in sink.gaps] == ["the program runs PyTorch's profiler itself"] * own_first
    assert (torch.profiler.profile.start, torch.autograd.profiler.profile.__enter__) == methods


def test_another_thread_ends_no_profile_of_this_one() -> None:
    sink = Sink()
    profiler = StepProfiler(sink, (0, 1), compat.profiler_is_on)
    profiler.at_step(0)
    thread = threading.Thread(target=profiler.at_step, args=(1,))
    thread.start()
    thread.join()
    assert compat.profiler_is_on()
    torch.ones(3).exp()
    profiler.at_step(1)
    assert not compat.profiler_is_on()
    assert "aten::exp" in {one.name for one in sink.operators}
    assert sink.gaps == []
