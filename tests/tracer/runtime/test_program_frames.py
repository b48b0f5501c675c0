"""Frames of threads, read without a moment in which a thread runs on."""

from __future__ import annotations

import gc
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

import stepscope.tracer
from stepscope.tracer.runtime.program_frames import _collect, frames_of_threads, steps_of


def waits(begun: threading.Event, end: threading.Event) -> None:
    begun.set()
    end.wait(10)


@contextmanager
def waiting() -> Iterator[threading.Thread]:
    begun, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=waits, args=(begun, end))
    thread.start()
    begun.wait(10)
    try:
        yield thread
    finally:
        end.set()
        thread.join(10)


def test_a_stack_begins_with_its_innermost_frame() -> None:
    with waiting() as thread:
        assert thread.ident is not None
        steps = steps_of(thread.ident)
    (at,) = [number for number, step in enumerate(steps) if step.code is waits.__code__]
    assert steps[at].line == waits.__code__.co_firstlineno + 2
    assert [step.code.co_name for step in steps[at:]] == ["waits", "run", "_bootstrap_inner", "_bootstrap"]
    assert steps_of(thread.ident) == []


def test_a_deep_stack_is_complete() -> None:
    def deep(levels: int) -> int:
        return deep(levels - 1) if levels else len(steps_of(threading.get_ident()))

    assert deep(300) - deep(0) == 300


def test_no_collection_runs_while_a_stack_is_read() -> None:
    """It may run code of the program, in which other threads run on."""
    during: list[CodeType | None] = []

    def note(*_: object) -> None:
        caller = sys._getframe().f_back
        during.append(caller.f_code if caller is not None else None)

    thresholds = gc.get_threshold()
    gc.callbacks.append(note)
    try:
        gc.set_threshold(1)
        for _ in range(10):
            steps_of(threading.get_ident())
            frames_of_threads()
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*thresholds)
    assert during
    assert _collect.__code__ not in during
    assert gc.isenabled()


def test_the_frames_of_all_threads() -> None:
    with waiting():
        frames = frames_of_threads()
        codes = {frame.f_code for frame in frames}
        del frames
    assert {waits.__code__, sys._getframe().f_code} <= codes


def test_only_this_module_reads_the_frames_of_other_threads() -> None:
    """In Python 3.11, `f_back` of a frame that has ended in the meantime may crash the process."""
    sources = Path(stepscope.tracer.__file__).parent.rglob("*.py")
    reading = [path.stem for path in sources if re.search(r"_current_frames\b", path.read_text("utf-8"))]
    assert reading == ["program_frames"]
