"""Which step each call of a log belongs to, once the whole log is known.

The recorder numbers steps while the program runs, and cannot know then what will end the first ones. So it writes down
what may end a step, and its own numbers are a guess that is replaced here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stepscope.tracer.schema.records import Graph
from stepscope.viewer.ingest.lenient_json import INT64
from stepscope.viewer.ingest.recorder.launch_batches import EndedStep, LaunchBatches, StepMark
from stepscope.viewer.ingest.steps.compiles import Compiling, book
from stepscope.viewer.ingest.steps.iterations import split, split_by_backward
from stepscope.viewer.ingest.steps.outermost_calls import Found, Mark, Unit

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


def find_steps(
    batches: LaunchBatches,
    graphs: Mapping[int, Graph],
    marks: Iterable[StepMark],
    compiles: Sequence[Compiling],
    *,
    has_ended: bool,
    feeds: bool,
) -> dict[int, EndedStep]:
    """The steps by number; the calls of `batches` get their numbers. A step begins with the compile that it triggers.

    `has_ended`: the log is whole. `feeds`: the process loads data for another one, whose iterations are the steps.
    """
    calls = _outermost(batches, graphs)
    ordered = sorted(marks, key=lambda mark: mark.ns)
    found = _find(calls, ordered)
    if feeds and found:
        found = [Found([unit for step in found for unit in step.units], "call")]
    found.sort(key=lambda step: step.first_ns)
    _number(batches, found)
    for number, booked in book(compiles, batches, graphs).items():
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


def _find(calls: Sequence[_Call], marks: Sequence[StepMark]) -> list[Found]:
    user = [mark.ns for mark in marks if mark.what == "user"]
    if user:
        return _by_user([_unit(call) for call in calls], user)
    optimizers = [mark for mark in marks if mark.what == "optimizer"]
    scopes = _scopes(marks)
    found: list[Found] = []
    for of_thread, seen in _threads(calls, optimizers):
        units, ends = _units(of_thread, scopes)
        stepped = [Mark(mark.who, mark.ns, mark.name) for mark in seen]
        found += split(units, stepped, ends) if stepped else split_by_backward(units, ends)
    return found


def _by_user(units: Sequence[Unit], ends: Sequence[int]) -> list[Found]:
    """From mark to mark. What comes before the first and after the last one may be no step at all."""
    groups: list[list[Unit]] = [[] for _ in range(len(ends) + 1)]
    for unit in units:
        groups[bisect_right(ends, unit.start_ns)].append(unit)
    found = [
        Found(group, "user", end, begin)
        for group, end, begin in zip(groups, [*ends, None], [None, *ends], strict=True)
        if group or (end is not None and begin is not None)
    ]
    while found and not found[-1].units:
        found.pop()
    return found


def _outermost(batches: LaunchBatches, graphs: Mapping[int, Graph]) -> list[_Call]:
    """Calls that no other one has made, in the order in which they began."""
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
        found.append(_Call(at, start_ns, end_ns, columns["thread"][at], function, phase, captured))
    found.sort(key=lambda call: (call.start_ns, columns["call"][call.at]))
    return found


def _threads(calls: Sequence[_Call], marks: Sequence[StepMark]) -> list[tuple[list[_Call], list[StepMark]]]:
    """Each thread runs a loop of its own, except where one alone has optimizers: the others help it."""
    of_marks: defaultdict[int, list[StepMark]] = defaultdict(list)
    for mark in marks:
        of_marks[mark.thread].append(mark)
    if len(of_marks) == 1:
        return [(list(calls), list(marks))]
    of_calls: defaultdict[int, list[_Call]] = defaultdict(list)
    called_by: dict[object, int] = {}
    for call in calls:
        if call.phase == "backward":  # on a device's own thread of autograd
            of_calls[called_by.get(call.function, call.thread)].append(call)
        else:
            called_by[call.function] = call.thread
            of_calls[call.thread].append(call)
    return [(of_calls[thread], of_marks[thread]) for thread in {**of_calls, **of_marks}]


def _scopes(marks: Iterable[StepMark]) -> dict[int, list[tuple[int, int | None]]]:
    """Begin and end of each outermost call of `generate`, by thread; None: it never ended."""
    found: defaultdict[int, list[tuple[int, int | None]]] = defaultdict(list)
    for mark in marks:
        of = found[mark.thread]
        if mark.what == "begin":
            of.append((mark.ns, None))
        elif mark.what == "end" and of and of[-1][1] is None:
            of[-1] = of[-1][0], mark.ns
    return found


def _unit(call: _Call) -> Unit:
    trains = call.phase in ("forward", "backward")
    return Unit((call.function, trains), call.start_ns, call.end_ns, [call.at], trains)


def _units(
    calls: Sequence[_Call], scopes: Mapping[int, Sequence[tuple[int, int | None]]]
) -> tuple[list[Unit], list[Mark]]:
    """Units in order, and where backward passes have ended."""
    units: list[Unit] = []
    ends: list[Mark] = []
    waiting: list[_Call] = []
    within: dict[tuple[int, int], Unit] = {}
    in_backward = False
    for call in calls:
        of_thread = scopes.get(call.thread, ())
        place = bisect_right(of_thread, call.start_ns, key=lambda one: one[0]) - 1
        scope = of_thread[place] if place >= 0 else None
        is_backward = call.phase == "backward" and bool(units)
        if call.is_captured:  # nothing ran: its replay counts
            waiting.append(call)
            continue
        if is_backward:
            _join(units[-1], call)
            if in_backward:
                ends.pop()
            ends.append(Mark(call.function, call.end_ns))
        elif scope is not None and (scope[1] is None or call.start_ns <= scope[1]):
            key = call.thread, scope[0]
            if key in within:
                _join(within[key], call)
            else:
                within[key] = unit = _unit(call)
                unit.key, unit.trains, unit.generates, unit.start_ns = ("generate", False), False, True, scope[0]
                unit.end_ns = max(unit.end_ns, scope[1] or 0)
                units.append(unit)
        else:
            units.append(_unit(call))
        in_backward = is_backward
        units[-1].calls += [one.at for one in waiting]
        waiting.clear()
    if waiting and units:
        units[-1].calls += [one.at for one in waiting]
    elif waiting:
        units = [_unit(call) for call in waiting]
    return units, ends


def _join(unit: Unit, call: _Call) -> None:
    unit.calls.append(call.at)
    unit.end_ns = max(unit.end_ns, call.end_ns)


def _number(batches: LaunchBatches, found: Sequence[Found]) -> None:
    """A call has the step of the outermost one that it runs inside."""
    step_of: dict[int, int] = {}
    calls, steps = batches.calls["call"], batches.calls["step"]
    for number, step in enumerate(found):
        for unit in step.units:
            for at in unit.calls:
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
