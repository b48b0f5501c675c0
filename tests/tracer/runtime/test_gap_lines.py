"""Samples of the lines between calls, as the hook of the recorder takes them."""

from __future__ import annotations

import dis
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from stepscope.tracer.runtime import gap_lines
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.gap_lines import LONG_GAPS, GapLines, Place, place_of
from stepscope.tracer.runtime.program_frames import Step, steps_of
from stepscope.tracer.schema.steps import LineSamples, SampledLines

INSTALLED = "/env/lib/python3.11/site-packages/tqdm/std.py"


class Sink:
    def __init__(self) -> None:
        self.running: dict[int, Any] = {}
        self.found: list[LineSamples | SampledLines] = []

    def write(self, record: LineSamples | SampledLines) -> None:
        self.found.append(record)

    def failed(self, where: str, error: BaseException) -> None:
        raise AssertionError(where) from error

    @property
    def codes(self) -> list[str]:
        """The code of the innermost line of each sample."""
        places = {one.place: one.code[-1] for one in self.found if isinstance(one, SampledLines)}
        return [places[place] for one in self.found if isinstance(one, LineSamples) for place in one.place]

    @property
    def held(self) -> list[int]:
        return [held for one in self.found if isinstance(one, LineSamples) for held in one.held_ns]


@pytest.fixture
def sink() -> Iterator[Sink]:
    found = Sink()
    yield found
    assert "stepscope lines" not in {thread.name for thread in threading.enumerate()}


def gaps(lines: GapLines, count: int, seconds: float) -> None:
    """Calls that end at once, with a gap after each of them."""
    for _ in range(count):
        lines.enter(None)
        lines.leave(GraphCall(0, 0, None, None))
        time.sleep(seconds)  # the gap


def keeps_the_lock() -> None:
    sum(range(100_000))
    time.sleep(0.0001)


def lets_others_run() -> None:
    time.sleep(0.001)


def test_long_gaps_are_sampled(sink: Sink) -> None:
    lines = GapLines(sink)
    gaps(lines, LONG_GAPS + 8, 0.01)
    lines.detach()
    assert sink.codes
    assert set(sink.codes) == {"time.sleep(seconds)  # the gap"}
    (place,) = [one for one in sink.found if isinstance(one, SampledLines) and "the gap" in one.code[-1]]
    assert (place.functions[-2:], len(place.lines)) == (
        ["test_long_gaps_are_sampled", "gaps"], len(place.files)
    )  # fmt: skip


def test_samples_name_the_thread_of_each_call(sink: Sink) -> None:
    """A thread per request; Python's number of one that has ended is used again."""
    lines, threads = GapLines(sink), set[int]()

    def request() -> None:
        threads.add(threading.get_native_id())
        gaps(lines, LONG_GAPS + 4, 0.02)

    for _ in range(3):
        thread = threading.Thread(target=request)
        thread.start()
        thread.join()
    lines.detach()
    assert {one for batch in sink.found if isinstance(batch, LineSamples) for one in batch.thread} == threads


def test_nothing_is_sampled_without_long_gaps(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap_lines, "LEAST_NS", 60_000_000_000)
    lines = GapLines(sink)
    gaps(lines, LONG_GAPS + 8, 0.01)
    assert "stepscope lines" not in {thread.name for thread in threading.enumerate()}
    lines.detach()
    assert sink.found == []


def test_nothing_is_sampled_while_a_call_runs(sink: Sink) -> None:
    lines = GapLines(sink)
    gaps(lines, LONG_GAPS + 1, 0.01)
    lines.enter(None)
    lines.write()
    before = len(sink.codes)
    time.sleep(0.05)
    lines.detach()
    assert len(sink.codes) <= before + 1


def test_sampling_ends_after_a_number_of_samples(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap_lines, "MOST_SAMPLES", 3)
    lines = GapLines(sink)
    gaps(lines, LONG_GAPS + 8, 0.01)
    lines.detach()
    assert len(sink.codes) == 3


def test_a_process_that_forks_has_no_such_thread_until_the_next_long_gap(sink: Sink) -> None:
    lines = GapLines(sink)
    gaps(lines, LONG_GAPS + 2, 0.01)
    lines.before_fork()
    assert "stepscope lines" not in {thread.name for thread in threading.enumerate()}
    before = len(sink.codes)
    gaps(lines, LONG_GAPS, 0.01)
    lines.detach()
    assert len(sink.codes) > before


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="the system does not tell delays")
@pytest.mark.parametrize(("work", "least", "most"), [(keeps_the_lock, 0.05, 1), (lets_others_run, 0, 0.04)])
def test_samples_say_for_how_long_the_thread_let_no_other_run(
    sink: Sink, work: Callable[[], object], least: float, most: float
) -> None:
    lines = GapLines(sink)
    gaps(lines, LONG_GAPS + 1, 0.01)
    before = len(sink.held)
    ended = time.monotonic() + 0.5
    while time.monotonic() < ended:
        work()
    lines.detach()
    held = [one > 0 for one in sink.held[before:]]
    assert least <= sum(held) / len(held) <= most


LOOP = """def loop(rows):
    seen = []
    for row in rows:
        if row not in seen:
            seen.append(row)
    return seen
"""


def test_an_instruction_without_a_line_is_at_the_line_before() -> None:
    """As the jump at the end of a loop in Python 3.11, at which other threads run."""
    (code,) = [one for one in compile(LOOP, "/src/train.py", "exec").co_consts if isinstance(one, CodeType)]
    (call,) = [start for start, _, line in code.co_lines() if line == 5][:1]
    jump = next(one.offset for one in dis.get_instructions(code) if one.offset > call and "JUMP" in one.opname)
    for offset, line in ((0, 1), (jump, 5)):
        assert place_of([Step(code, None, offset)]) == (("/src/train.py", line, "loop"),)


def test_a_place_has_only_lines_of_the_program() -> None:
    def frame() -> Place:
        steps = steps_of(threading.get_ident())
        return place_of(step for step in steps if step.code.co_filename != __file__)

    scope: dict[str, Any] = {"frame": frame}
    exec(compile("def bar():\n    return frame()\n", INSTALLED, "exec"), scope)
    exec(compile("def loop():\n\n    return bar()\n", "/src/train.py", "exec"), scope)
    assert scope["loop"]()[-1] == ("/src/train.py", 3, "loop")


def test_a_thread_that_ends_late_does_not_go_on_beside_the_next_one(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = GapLines(sink)
    gaps(lines, LONG_GAPS + 2, 0.01)
    (sampler,) = [thread for thread in threading.enumerate() if thread.name == "stepscope lines"]
    with monkeypatch.context() as patch:
        patch.setattr(sampler, "join", lambda timeout: None)
        lines.before_fork()
    sampler.join(1)
    assert not sampler.is_alive()
