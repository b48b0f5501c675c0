"""Decides which calls are judged, and writes their verdicts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stepscope.tracer.judge.call import CallJudge, Save
from stepscope.tracer.judge.memory import NO_MEMORY, is_out_of_memory
from stepscope.tracer.judge.plan import FunctionPlan
from stepscope.tracer.judge.verdicts import CallVerdicts, Detail, Verdict
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.judging import ClobberedInput, JudgedBuffer, JudgedCall
from stepscope.tracer.schema.record import Record
from stepscope.tracer.schema.values import SavedTensor

if TYPE_CHECKING:
    from stepscope.tracer.config import TraceConfig

CAPTURED = (
    "a CUDA graph captured the call and replays it from then on, so that no Python runs between its launches; "
    "without CUDA graphs the calls can be judged, and `--judge first` judges the call before the capture"
)
TOO_LITTLE_MEMORY = "there was not enough memory to recompute a launch; --judge-kernels judges fewer of them"
MOST_DETAILS = 64
"""Maximum number of buffers of a call that are described."""


class JudgeSink(Protocol):
    """The part of the recorder that the judge needs."""

    def write(self, record: Record) -> None: ...
    def skipped(self, record: Skipped) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class Saver(Protocol):
    def save(
        self, tensor: Any, *, step: int, launch: int, kernel: str, argument: str, item: int | None, moment: str
    ) -> Any: ...

    def remove(self, saved: Any) -> None: ...


class SavedInput(NamedTuple):
    """A file with an input of a wrong launch. The tensor itself is let go."""

    site: int
    argument: int | None
    file: Any


class Tally(NamedTuple):
    """What was judged in a thread."""

    calls: int = 0
    accused: int = 0
    """How many of these calls have a launch that is wrong or suspect, or read what it should not."""


class _Tallies(threading.local):
    of_thread = Tally()


@dataclass
class _LastStep:
    """What is kept of the last judged step, if only the last one is wanted."""

    step: int = -1
    records: list[Record] = field(default_factory=list)
    files: list[Any] = field(default_factory=list)
    """The saved inputs of its wrong launches."""


class GuardedJudge:
    """The judge of a call as the generated code sees it: it never raises, and stops judging after an error."""

    def __init__(self, judge: CallJudge, on_error: Callable[[Exception], None], saved: Sequence[SavedInput]) -> None:
        self.judge, self._on_error, self.saved = judge, on_error, saved
        self._is_on = True
        self.spent_ns = 0

    def enter(self, values: Sequence[Any]) -> None:
        self._do(self.judge.enter, values)

    def bind(self, names: Sequence[str], values: Sequence[Any]) -> None:
        self._do(self.judge.bind, names, values)

    def before(self, site: int, values: Sequence[Any]) -> None:
        self._do(self.judge.before, site, values)

    def after(self, site: int, values: Sequence[Any]) -> None:
        self._do(self.judge.after, site, values)

    def leave(self, values: Sequence[Any]) -> None:
        self._do(self.judge.leave, values)

    def finish(self) -> None:
        self._do(self.judge.finish)

    def _do(self, function: Callable[..., None], *arguments: Any) -> None:
        if not self._is_on:
            return
        started = perf_counter_ns()
        try:
            function(*arguments)
        except Exception as error:
            self._is_on = False
            self.judge.let_go()
            self._on_error(error)
        self.spent_ns += perf_counter_ns() - started


class Judge:
    """The judge of one recording."""

    def __init__(self, config: TraceConfig, sink: JudgeSink, saver: Saver) -> None:
        self._config, self._sink, self._saver = config, sink, saver
        self._asked = 0
        self._was_asked = False
        self._asking, self._lock = threading.Lock(), threading.Lock()
        self._kept = _LastStep()
        self._tallies = _Tallies()
        self._told: set[int] = set()
        """Graphs of which was said that calls of them cannot be judged."""

    @property
    def is_on(self) -> bool:
        """Whether some step may be judged, so that wrappers need the hooks for it.

        A program that has asked once may ask again, so the hooks stay.
        """
        return self._was_asked or self._config.judge != "off"

    @property
    def tally(self) -> Tally:
        """What was judged in this thread until now."""
        return self._tallies.of_thread

    def configure(self, config: TraceConfig) -> None:
        self._config = config

    def after_fork(self) -> None:
        """Forget the parent's verdicts in a forked child, and the locks, whose owners may not exist there."""
        self._asking, self._lock, self._kept = threading.Lock(), threading.Lock(), _LastStep()

    @contextmanager
    def asked(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Judge every call that begins inside; `on_change` puts the hooks into the wrappers if they are missing."""
        with self._asking:  # another thread that asks waits for the hooks
            if not self.is_on:
                self._was_asked = True
                on_change()
        with self._lock:
            self._asked += 1
        try:
            yield
        finally:
            with self._lock:
                self._asked -= 1

    def begin(self, step: int, plan: FunctionPlan) -> GuardedJudge | None:
        """Return the judge of a call that begins, or None if it is not judged."""
        if not (self._asked or self._config.judges_step(step)):
            return None
        kernels = {launch.site: launch.kernel for launch in plan.launches.values()}

        def save(one: Save) -> str | None:
            if self._config.judge == "last" and not self._asked:
                self._last(step)
            saved = self._saver.save(
                one.tensor, step=step, launch=one.launch, kernel=kernels[one.site], argument=one.name, item=None,
                moment="judged",
            )  # fmt: skip
            if isinstance(saved, str):
                return None
            kept.append(SavedInput(one.site, one.argument, saved))
            return str(saved.file)

        kept: list[SavedInput] = []
        return GuardedJudge(CallJudge(plan, self._config.judges_kernel, save), self._lost, kept)

    def captured(self, graph: int) -> None:
        """Say of a graph whose call is captured into a CUDA graph that its calls cannot be judged."""
        with self._lock:
            is_new = graph not in self._told
            self._told.add(graph)
        if is_new and self.is_on:
            self._sink.skipped(Skipped("verdicts of the judge", CAPTURED, graph))

    def _lost(self, error: Exception) -> None:
        if is_out_of_memory(error):
            self._sink.skipped(Skipped("the rest of a judged call", TOO_LITTLE_MEMORY))
        else:
            self._sink.failed("judge", error)

    def end(self, judged: GuardedJudge, graph: int, call: int, step: int) -> None:
        """Write the verdicts of a call that has ended."""
        judged.finish()
        calls, accused = self.tally
        self._tallies.of_thread = Tally(calls + 1, accused + judged.judge.result.accuses)
        if any(one.why_not == NO_MEMORY for one in judged.judge.result.verdicts):
            self._sink.skipped(Skipped("verdicts on some launches", TOO_LITTLE_MEMORY, graph))
        records = [*_records(judged.judge.result, graph, call, step, judged.spent_ns), *_saved(judged.saved, call)]
        if self._asked or self._config.judge != "last":
            for record in records:
                self._sink.write(record)
            return
        kept = self._last(step)
        with self._lock:
            kept.records += records
            kept.files += [one.file for one in judged.saved]

    def _last(self, step: int) -> _LastStep:
        """Return what is kept of `step`; an earlier one was not the last, and its files would fill the quota."""
        with self._lock:
            before = self._kept
            if before.step != step:
                self._kept = _LastStep(step)
            found = self._kept
        if found is not before:
            for file in before.files:
                self._saver.remove(file)
        return found

    def flush(self) -> None:
        """Write the verdicts on the last step, which has ended."""
        with self._lock:
            kept, self._kept = self._kept, _LastStep()
        for record in kept.records:
            self._sink.write(record)


def _saved(saved: Sequence[SavedInput], call: int) -> Iterator[Record]:
    """Yield what repeats a wrong launch: its arguments as it found them."""
    for one in saved:
        if one.argument is not None:
            file = one.file
            yield SavedTensor(
                call, one.site, one.argument, None, "before", file.file, file.dtype, file.size, file.tensor_bytes,
                file.sha256,
            )  # fmt: skip


def _records(found: CallVerdicts, graph: int, call: int, step: int, spent_ns: int) -> Iterator[Record]:
    verdicts = found.verdicts
    reasons = list(dict.fromkeys(one.why_not for one in verdicts if one.why_not is not None))
    yield JudgedCall(
        graph,
        call,
        step,
        found.launches,
        found.judged,
        dict(found.not_judged),
        [one.launch for one in verdicts],
        [one.site for one in verdicts],
        [one.variable for one in verdicts],
        [one.node for one in verdicts],
        [one.word for one in verdicts],
        [one.found.how if one.found and not one.suspects else None for one in verdicts],
        [one.found.of_limit if one.found and not one.suspects else None for one in verdicts],
        [reasons.index(one.why_not) if one.why_not is not None else None for one in verdicts],
        reasons,
        spent_ns,
    )
    for detail in found.details[:MOST_DETAILS]:
        yield _buffer(detail, graph, call, step)
    for launch, site, change in found.changes[:MOST_DETAILS]:
        yield ClobberedInput(
            graph, call, step, launch, site, change.variable, True, change.producer, change.writer, change.is_result
        )
    for one in found.unwritten[:MOST_DETAILS]:
        yield ClobberedInput(graph, call, step, one.launch, one.site, one.variable, False, None, None, one.is_result)


def _buffer(detail: Detail, graph: int, call: int, step: int) -> JudgedBuffer:
    verdict: Verdict = detail.verdict
    found = verdict.found
    assert found is not None
    return JudgedBuffer(
        graph, call, step, verdict.launch, verdict.site, verdict.variable, verdict.node or "",
        _word(verdict), list(found.broken), found.how, detail.dtype, detail.size,
        list(found.index), found.compiled, found.eager, found.double, found.allowed, found.of_limit, found.bad,
        detail.fragment, detail.inputs, detail.source, detail.files, list(verdict.suspects),
    )  # fmt: skip


def _word(verdict: Verdict) -> str:
    if verdict.suspects:
        return "suspect"
    return "wrong" if verdict.word == "wrong" else "eager_off"
