"""Finds what Dynamo did only because of a graph break of the program: in functions of libraries that Python calls
there, and in the rest of the function, which is compiled for an object that Python holds at the break."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stepscope.viewer.compiles.queries.break_text import explanation_of_names
from stepscope.viewer.compiles.queries.compile_steps import compile_time
from stepscope.viewer.compiles.queries.events import CompileEvent, is_own, resumed_line, resumed_name
from stepscope.viewer.findings.evidence import Evidence, grouped
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_ns

Place = tuple[str | None, int | None]
_FUNCTION = re.compile(r"^(?:torch_dynamo_resume_in_)?(.+?)(?:_at_\d+)?(?= \(|$)")
LEAST_RUN_SHARE, LEAST_RECOMPILE_NS = 0.2, 1_000_000_000
"""Minimum of the time of recompiles from which on they take much of a run."""
_HELD = re.compile(r"\bbecause L\['___stack\d+'\] got deallocated")
"""What PyTorch says where code was compiled for an object that Python held on its stack, and this object is gone."""
_KINDS = ("graph_break", "recompile", "recompile_limit")
_MOST_NAMES = 4
_ALSO = "Graphs also break in functions of PyTorch, Python or other libraries that run during this call"
_ANEW = ": this code is compiled for an object that each call makes before the break"


class CalledAtBreaks(NamedTuple):
    """Frames of libraries that the program calls at the line of a graph break: Dynamo compiles them by themselves, as
    it would inline them without the break. And frames of the program that go on after the break."""

    frames: set[tuple[int, str]]
    """Log and frame id of the frames of libraries."""
    resumed: set[tuple[int, str]]
    """Those of the rest of a function, if each of its recompiles is due to an object that Python held at the break."""
    events: Mapping[Place, list[CompileEvent]]
    """What happened in these frames, by the line of the break."""

    def has(self, event: CompileEvent) -> bool:
        return (event.log, event.frame_id) in self.frames


def called_at_breaks(evidence: Evidence) -> CalledAtBreaks:
    """Return the frames of libraries whose graph breaks and recompiles belong to a graph break of the program."""
    return evidence.trace.once(_called_at_breaks)


def _called_at_breaks(trace: Trace) -> CalledAtBreaks:
    evidence = Evidence(trace)
    breaks = [one for one in evidence.compile_events("graph_break") if is_own(one.file or "") and one.line is not None]
    events: defaultdict[Place, list[CompileEvent]] = defaultdict(list)
    for event in (event for kind in _KINDS for event in evidence.compile_events(kind)) if breaks else ():
        cause = None if event.caller is None else _cause(event, breaks)
        if cause is not None:
            events[cause.file, cause.line].append(event)
    frames = {(one.log, one.frame_id) for same in events.values() for one in same}
    resumed = _resumed(evidence, breaks)
    for event in resumed:
        events[event.frame_file, resumed_line(event.frame)].append(event)
    return CalledAtBreaks(frames, {(one.log, one.frame_id) for one in resumed}, events)


def _resumed(evidence: Evidence, breaks: Iterable[CompileEvent]) -> list[CompileEvent]:
    """Return the recompiles of frames that go on after a break, and are compiled for an object that is gone."""
    places = {(one.log, one.file, one.line) for one in breaks}
    limited = {(one.log, one.frame_id) for one in evidence.compile_events("recompile_limit")}
    frames = grouped(evidence.compile_events("recompile") if breaks else (), lambda one: (one.log, one.frame_id))
    return [
        event
        for same in frames
        if (same[0].log, same[0].frame_id) not in limited
        and (same[0].log, same[0].frame_file, resumed_line(same[0].frame)) in places
        and all(_HELD.search(one.cause) for one in same)
        for event in same
    ]


def _cause(event: CompileEvent, breaks: Iterable[CompileEvent]) -> CompileEvent | None:
    """Return the break at whose line a frame was called: the line is in its stack or, as the stack lacks the caller of
    the frame, it is that of the last break before, if that happened in a call from the same frames. A break in the
    frame may itself be told at the line at which the program calls it."""
    stack = event.lines_of_stack
    earlier = [one for one in breaks if one.log == event.log and one.time_ns <= event.time_ns]
    if is_own(event.file or ""):
        return next((one for one in earlier if _is_other_at_line(event, one) and _is_of_program(one)), None)
    at_line = next((one for one in earlier if (one.file, one.line) == event.caller), None)
    if at_line is not None or not earlier:
        return at_line
    last = max(earlier, key=lambda one: one.time_ns)
    outer = last.lines_of_stack[:-1]
    return last if outer and stack[: len(outer)] == outer else None


def _is_of_program(event: CompileEvent) -> bool:
    return event.caller is None


def _is_other_at_line(event: CompileEvent, earlier: CompileEvent) -> bool:
    """Return whether a graph breaks for another reason where it had broken before; for the same reason, the frame may
    be one in which Dynamo inlined the same function."""
    is_at_line = (event.file, event.line) == (earlier.file, earlier.line)
    return event.kind == "graph_break" and is_at_line and event.cause != earlier.cause


class Called(NamedTuple):
    """What the finding about a graph break says of the frames that are called there."""

    proof: list[str]
    is_costly: bool
    """Whether compiling them again took much of the run."""


def what_is_called(trace: Trace, events: Sequence[CompileEvent]) -> Called:
    names = dict.fromkeys(resumed_name(event.frame) for event in events if event.kind == "graph_break" and event.frame)
    found = [f"{_ALSO}: {_shown(list(names))}."] if names else []
    again = [event for event in events if event.kind == "recompile"]
    resumed = [event for event in again if is_own(event.frame_file or "")]
    called = [event for event in again if not is_own(event.frame_file or "")]
    parts = [
        _compiled_again(trace, called, f"of {_functions(called)}, which the program calls there,", ""),
        _compiled_again(trace, resumed, "of the code after the break", _ANEW),
    ]
    told = [line for part in parts for line in part.proof]
    return Called([*found, *told], any(part.is_costly for part in parts))


def _compiled_again(trace: Trace, again: list[CompileEvent], what: str, why: str) -> Called:
    took_ns = compile_time(trace, [(event.log, event.compile_id) for event in again]) if again else None
    if not took_ns:
        return Called([], False)
    run_ns = next((run.duration_ns for run in run_splits(trace) if run.log == again[0].log), 0)
    of_run = f" of the {format_ns(run_ns)} of this run" if took_ns <= run_ns else ""
    count = "recompile" if len(again) == 1 else f"{len(again):,} recompiles"
    is_costly = took_ns >= max(LEAST_RECOMPILE_NS, LEAST_RUN_SHARE * run_ns)
    return Called([f"The {count} {what} took {format_ns(took_ns)}{of_run}{why}."], is_costly)


def explained(event: CompileEvent) -> list[str]:
    """Return what PyTorch says of a break whose line does not show what it is about, as lines of a proof."""
    told = explanation_of_names(event.text, event.code)
    return [f"PyTorch's explanation: {told}"] if told else []


def _functions(events: Iterable[CompileEvent]) -> str:
    names = [match[1] for event in events if (match := _FUNCTION.match(event.frame or ""))]
    return _shown(list(dict.fromkeys(names)))


def _shown(known: list[str]) -> str:
    shown = known[:_MOST_NAMES]
    if len(known) > _MOST_NAMES:
        return f"{', '.join(shown)} and {len(known) - _MOST_NAMES} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
