"""Samples the lines that the program runs between the calls of graphs, if these gaps take much of its time.

A thread looks from time to time where the thread that calls the graphs is. It is started only once several long gaps
were seen, and ends after a number of samples, so that programs without such gaps do not pay for it.
"""

from __future__ import annotations

import linecache
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from itertools import islice
from time import perf_counter_ns
from typing import Any, Protocol

from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.core_waits import DelayedShare
from stepscope.tracer.runtime.lock_holds import LockWait
from stepscope.tracer.runtime.program_frames import Step, is_compiled, is_installed, is_ours, is_script, steps_of
from stepscope.tracer.schema.steps import LineSamples, SampledLines

LEAST_NS = 2_000_000
"""Shortest gap that counts as long."""
LONG_GAPS, LEAST_SHARE = 4, 0.15
"""Sampling begins after this many long gaps, if they took this share of the time since the first of them."""
EVERY_S, LATER_EVERY_S = 0.002, 0.01
MOST_SAMPLES, FIRST_SAMPLES = 4_000, 500
"""Number of samples in all, and of those that are taken quickly one after the other."""
BATCH = 256
MOST_FRAMES = 8

Place = tuple[tuple[str, int, str], ...]
"""File, line and function of the program's own frames, outermost first."""


class SampleSink(Protocol):
    """The part of the recorder that is used here."""

    @property
    def running(self) -> Mapping[int, Any]:
        """The calls that run."""

    def write(self, record: LineSamples | SampledLines) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class GapLines:
    """Samples one thread: that of the last call that was no backward pass."""

    def __init__(self, sink: SampleSink) -> None:
        self._sink = sink
        self._begin()

    def _begin(self) -> None:
        self._ident = self._thread = 0
        """Python's and the system's number of the thread that is sampled."""
        self._left_ns = self._since_ns = self._long_ns = self._long = 0
        self._places: dict[Place, int] = {}
        self._pending: list[tuple[int, int, int, int, int]] = []
        """Thread, time, number of the place, time for which the lock was held, and percentage of delays, of samples."""
        self._clock: int | None = None
        """The clock of the time for which the sampled thread computes."""
        self._in_calls = (0, 0)
        """Number of looks while a call ran, and the sum of their percentages of delays."""
        self._taken = 0
        self._sampler: threading.Thread | None = None
        self._ended = threading.Event()

    def attach(self) -> None:
        """Do nothing: sampling begins with long gaps."""

    def detach(self) -> None:
        """End the thread, and write the samples that are left."""
        self._ended.set()
        sampler, self._sampler = self._sampler, None
        if sampler is not None and sampler is not threading.current_thread():
            sampler.join(timeout=1)
            self.write()

    def before_fork(self) -> None:
        """End the thread until the next long gap: a child would inherit the locks that it holds, and Python 3.12 warns
        of a fork of several threads."""
        if self._sampler is not None:
            self.detach()
            self._ended = threading.Event()

    def after_fork(self) -> None:
        """Begin anew in a forked child, which has no such thread."""
        self._begin()

    def enter(self, phase: str | None) -> None:
        """Handle the begin of an outermost call, in its thread."""
        left, self._left_ns = self._left_ns, 0
        if phase != "backward":
            self._follow()
        if left == 0 or self._sampler is not None or self._ended.is_set() or self._taken >= MOST_SAMPLES:
            return
        now = perf_counter_ns()
        if now - left >= LEAST_NS:
            self._since_ns = self._since_ns or left
            self._long, self._long_ns = self._long + 1, self._long_ns + now - left
            if self._long >= LONG_GAPS and self._long_ns >= LEAST_SHARE * (now - self._since_ns):
                self._sampler = threading.Thread(
                    target=self._run, args=(self._ended,), name="stepscope lines", daemon=True
                )
                self._sampler.start()

    def _follow(self) -> None:
        thread = threading.get_native_id()
        if thread != self._thread:  # Python's number may be that of a thread that has ended
            self._ident = ident = threading.get_ident()
            self._thread = thread
            self._clock = time.pthread_getcpuclockid(ident) if hasattr(time, "pthread_getcpuclockid") else None

    def leave(self, call: GraphCall) -> None:
        """Handle the end of a call."""
        if call.parent is None:
            self._left_ns = perf_counter_ns()

    def _run(self, ended: threading.Event) -> None:
        try:
            with LockWait() as lock, closing(DelayedShare()) as delayed:
                while self._taken < MOST_SAMPLES:
                    interval_s = self._interval_s
                    delayed.begin(self._thread)
                    lock.begin(self._clock, interval_s)
                    if ended.wait(interval_s):
                        break
                    if self._sink.running:
                        looks, percent = self._in_calls
                        self._in_calls = looks + 1, percent + delayed.percent()
                    elif self._left_ns:
                        self._take(lock.end(), delayed.percent())
        except Exception as error:
            self._sink.failed("sampled lines", error)
        self.write()

    @property
    def _interval_s(self) -> float:
        return EVERY_S if self._taken < FIRST_SAMPLES else LATER_EVERY_S

    def _take(self, held_ns: int, delayed: int) -> None:
        now = perf_counter_ns()
        place = place_of(steps_of(self._ident))
        if not place:
            return
        self._taken += 1
        number = self._places.get(place)
        if number is None:
            number = self._places[place] = len(self._places)
            self._tell(number, place)
        self._pending.append((self._thread, now, number, held_ns, delayed))
        if len(self._pending) >= BATCH:
            self.write()

    def _tell(self, number: int, place: Place) -> None:
        files, lines, functions = (list(column) for column in zip(*place, strict=True))
        code = [linecache.getline(file, line).strip() for file, line, _ in place]
        self._sink.write(SampledLines(number, files, lines, functions, code))

    def write(self) -> None:
        """Write the samples that are in no record yet."""
        pending, self._pending = self._pending, []
        if pending:
            in_calls, self._in_calls = self._in_calls, (0, 0)
            thread, ns, place, held_ns, delayed = (list(column) for column in zip(*pending, strict=True))
            self._sink.write(LineSamples(thread, ns, place, held_ns, delayed, *in_calls))


def place_of(stack: Iterable[Step]) -> Place:
    """Return the innermost frames of the program in a stack, outermost first."""
    found = [
        (step.code.co_filename, _line_before(step) if step.line is None else step.line, step.code.co_name)
        for step in islice(filter(_is_of_program, stack), MOST_FRAMES)
    ]
    return tuple(reversed(found))


def _is_of_program(step: Step) -> bool:
    file = step.code.co_filename
    return not (is_installed(file) or is_ours(file) or is_compiled(step.code) or is_script(step.code))


def _line_before(step: Step) -> int:
    """Return the line of the last instruction before this one that has a line: the jump at the end of a loop, at which
    Python lets other threads run, has none."""
    found = step.code.co_firstlineno
    for start, _, line in step.code.co_lines():
        if start > step.instruction:
            break
        found = line if line is not None else found
    return found
