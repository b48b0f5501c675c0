"""Assigns the calls of a log to steps once all its records are read.

The recorder numbers steps while the program runs and cannot know yet what will end the first ones. It therefore records
everything that may end a step, and its step numbers are guesses that this module replaces.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stepscope.tracer.schema.graphs import Graph
from stepscope.viewer.ingest.lenient_json import INT64
from stepscope.viewer.ingest.recorder.launch_batches import EndedStep, LaunchBatches, LoggedMark
from stepscope.viewer.ingest.steps.compiles import Compiling, compiles_by_step
from stepscope.viewer.ingest.steps.iterations import split, split_by_backward
from stepscope.viewer.ingest.steps.outermost_calls import FoundStep, Mark, OuterCall

CAPTURED = "captured"


@dataclass(frozen=True, slots=True)
class _Call:
    at: int
    start_ns: int
    end_ns: int
    thread: int
    function: object
    phase: str | None
    is_captured: bool
    is_update: bool
    """Whether it is a call of a compiled optimizer."""


def find_steps(
    batches: LaunchBatches,
    graphs: Mapping[int, Graph],
    marks: Iterable[LoggedMark],
    compiles: Sequence[Compiling],
    *,
    updates: Container[str] = (),
    has_ended: bool,
    feeds: bool,
) -> dict[int, EndedStep]:
    """Return the steps by number, and set the step numbers of the calls. A step begins with the compile that it
    triggers.

    `updates` are the ids of the compiles of optimizers, whose calls belong to the training step before them.
    `has_ended` says that the log is complete, and `feeds` that the process only loads data: its calls are then one
    step.
    """
    calls = _outermost(batches, graphs, updates)
    ordered = sorted(marks, key=lambda mark: mark.ns)
    found = _find(calls, ordered)
    if feeds and found:
        found = [FoundStep([outer for step in found for outer in step.outers], "call")]
    found.sort(key=lambda step: step.first_ns)
    _number(batches, found)
    for number, booked in compiles_by_step(compiles, batches, graphs, updates).items():
        before_ns = found[number - 1].last_ns if number else 0
        found[number].compiles_from_ns = next((one.start_ns for one in booked if one.start_ns >= before_ns), None)
    last_ns = max((step.last_ns for step in found), default=0)
    steps = {}
    for number, step in enumerate(found):
        following = found[number + 1].first_ns if number + 1 < len(found) else last_ns if has_ended else None
        end_ns = max(step.last_ns, following) if step.end_ns is None and following is not None else step.end_ns
        end_ns = None if end_ns is None else min(max(end_ns, step.last_ns), INT64[-1])
        kind = "data" if feeds else step.kind
        steps[number] = EndedStep(kind, step.by, step.first_ns, end_ns, step.who)
    return steps


def _find(calls: Sequence[_Call], marks: Sequence[LoggedMark]) -> list[FoundStep]:
    user = [mark.ns for mark in marks if mark.what == "user"]
    if user:
        return _by_user([_unit(call) for call in calls], user)
    optimizers = [mark for mark in marks if mark.what == "optimizer"]
    scopes = _scopes(marks)
    found: list[FoundStep] = []
    for of_thread, seen in _threads(calls, optimizers):
        outers, ends = _units(of_thread, scopes)
        stepped = [Mark(mark.who, mark.ns, mark.name) for mark in seen]
        found += split(outers, stepped, ends) if stepped else split_by_backward(outers, ends)
    return found


def _by_user(outers: Sequence[OuterCall], ends: Sequence[int]) -> list[FoundStep]:
    """Return the steps between the user's marks. Calls before the first and after the last mark may be in no step."""
    groups: list[list[OuterCall]] = [[] for _ in range(len(ends) + 1)]
    for outer in outers:
        groups[bisect_right(ends, outer.start_ns)].append(outer)
    found = [
        FoundStep(group, "user", end, begin)
        for group, end, begin in zip(groups, [*ends, None], [None, *ends], strict=True)
        if group or (end is not None and begin is not None)
    ]
    while found and not found[-1].outers:
        found.pop()
    return found


def _outermost(batches: LaunchBatches, graphs: Mapping[int, Graph], updates: Container[str]) -> list[_Call]:
    """Return the calls that are not inside another one, in the order of their start."""
    columns, numbers = batches.calls, set(batches.calls["call"])
    found = []
    for at, parent in enumerate(batches.parents):
        if parent in numbers and parent != columns["call"][at]:
            continue
        graph, start_ns = columns["graph"][at], columns["start_ns"][at]
        known = graphs.get(graph)
        compile_id = known.compile_id if known else None
        function = compile_id.rpartition("/")[0] if compile_id else ("graph", graph)
        end_ns = start_ns + max(columns["duration_ns"][at], 0)
        captured = batches.states[at] == CAPTURED
        phase = known.phase if known else None
        update = compile_id is not None and compile_id in updates
        found.append(_Call(at, start_ns, end_ns, columns["thread"][at], function, phase, captured, update))
    found.sort(key=lambda call: (call.start_ns, columns["call"][call.at]))
    return found


def _threads(calls: Sequence[_Call], marks: Sequence[LoggedMark]) -> list[tuple[list[_Call], list[LoggedMark]]]:
    """Return calls and marks per thread, or in one group if only one has optimizers, which the others then assist."""
    of_marks: defaultdict[int, list[LoggedMark]] = defaultdict(list)
    for mark in marks:
        of_marks[mark.thread].append(mark)
    if len(of_marks) == 1:
        return [(list(calls), list(marks))]
    of_calls: defaultdict[int, list[_Call]] = defaultdict(list)
    called_by: dict[object, int] = {}
    for call in calls:
        if call.phase == "backward":  # autograd runs it on a thread per device
            of_calls[called_by.get(call.function, call.thread)].append(call)
        else:
            called_by[call.function] = call.thread
            of_calls[call.thread].append(call)
    return [(of_calls[thread], of_marks[thread]) for thread in {**of_calls, **of_marks}]


def _scopes(marks: Iterable[LoggedMark]) -> dict[int, list[tuple[int, int | None]]]:
    """Return begin and end of each outermost call of `generate` by thread; the end is None if it never ended."""
    found: defaultdict[int, list[tuple[int, int | None]]] = defaultdict(list)
    for mark in marks:
        of = found[mark.thread]
        if mark.what == "begin":
            of.append((mark.ns, None))
        elif mark.what == "end" and of and of[-1][1] is None:
            of[-1] = of[-1][0], mark.ns
    return found


def _unit(call: _Call) -> OuterCall:
    trains = call.phase in ("forward", "backward")
    return OuterCall((call.function, trains), call.start_ns, call.end_ns, [call.at], trains)


def _units(
    calls: Sequence[_Call], scopes: Mapping[int, Sequence[tuple[int, int | None]]]
) -> tuple[list[OuterCall], list[Mark]]:
    """Return the outermost calls in order, and the ends of backward passes."""
    outers: list[OuterCall] = []
    ends: list[Mark] = []
    waiting: list[_Call] = []
    within: dict[tuple[int, int], OuterCall] = {}
    in_backward = False
    for call in calls:
        of_thread = scopes.get(call.thread, ())
        place = bisect_right(of_thread, call.start_ns, key=lambda one: one[0]) - 1
        scope = of_thread[place] if place >= 0 else None
        is_backward = call.phase == "backward" and bool(outers)
        updates = call.is_update and bool(outers) and outers[-1].trains
        if call.is_captured:  # it ran nothing; its replay counts
            waiting.append(call)
            continue
        if is_backward:
            _join(outers[-1], call)
            if in_backward:
                ends.pop()
            ends.append(Mark(call.function, call.end_ns))
        elif updates:
            _join(outers[-1], call)
        elif scope is not None and (scope[1] is None or call.start_ns <= scope[1]):
            key = call.thread, scope[0]
            if key in within:
                _join(within[key], call)
            else:
                within[key] = outer = _unit(call)
                outer.key, outer.trains, outer.generates, outer.start_ns = ("generate", False), False, True, scope[0]
                outer.end_ns = max(outer.end_ns, scope[1] or 0)
                outers.append(outer)
        else:
            outers.append(_unit(call))
        in_backward = is_backward
        outers[-1].calls += [one.at for one in waiting]
        waiting.clear()
    if waiting and outers:
        outers[-1].calls += [one.at for one in waiting]
    elif waiting:
        outers = [_unit(call) for call in waiting]
    return outers, ends


def _join(outer: OuterCall, call: _Call) -> None:
    outer.calls.append(call.at)
    outer.end_ns = max(outer.end_ns, call.end_ns)


def _number(batches: LaunchBatches, found: Sequence[FoundStep]) -> None:
    """Set the step number of each call to that of the outermost call around it."""
    step_of: dict[int, int] = {}
    calls, steps = batches.calls["call"], batches.calls["step"]
    for number, step in enumerate(found):
        for outer in step.outers:
            for at in outer.calls:
                steps[at] = step_of[calls[at]] = number
    parent_of = dict(zip(calls, batches.parents, strict=True))
    for at, call in enumerate(calls):
        if call not in step_of:
            path, above = {call: None}, parent_of.get(call)
            while above is not None and above not in step_of and above not in path:
                path[above] = None
                above = parent_of.get(above)
            number = 0 if above is None else step_of.get(above, 0)
            step_of.update(dict.fromkeys(path, number))
        steps[at] = step_of[call]
