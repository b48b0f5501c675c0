"""Splits the calls of one thread into iterations of the program.

Some marks end iterations (`optimizer_cycles` finds these). What an iteration usually calls is learned from most of
them. Calls before the first usual one are not a part of the iteration, such as an evaluation between two epochs. Calls
after the optimizer that did not precede its first step belong to the iteration that it ended, such as a metric. A loop
beside the training loop that runs backward and has no optimizer, such as one that computes the gradients of its inputs,
has the iterations that it would have alone. Without marks, an iteration ends before a function is called that it has
already called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from stepscope.viewer.ingest.steps.optimizer_cycles import ends_of_rounds
from stepscope.viewer.ingest.steps.outermost_calls import By, FoundStep, Key, Mark, OuterCall, runs_of

MOST_UPDATES = 4096
"""Maximum number of updates that follow one rollout."""
_SEARCHES = "LBFGS"
"""An optimizer that calls the model several times in each of its steps."""


@dataclass
class Segment:
    """The calls from one end of an iteration to the next."""

    outers: list[OuterCall]
    marks: list[Mark]
    """Steps of optimizers in the segment, of which the last ends it; empty after the last mark of the thread."""


def split(outers: Sequence[OuterCall], marks: Sequence[Mark], backwards: Sequence[Mark]) -> Iterator[FoundStep]:
    """Yield the iterations of one thread in order, given steps of optimizers and ends of backward passes."""
    yield from _iterations(outers, marks, "optimizer", backwards)


def split_by_backward(outers: Sequence[OuterCall], ends: Sequence[Mark]) -> Iterator[FoundStep]:
    """Yield the iterations of a loop without an optimizer; usual calls after the backward pass belong to them."""
    if not ends:
        yield from split_calls(outers)
        return
    for found in _iterations(outers, ends, "backward", ()):
        found.end_ns = None
        yield found


def split_calls(outers: Sequence[OuterCall]) -> Iterator[FoundStep]:
    """Yield the iterations of a loop without marks."""
    for group in _rounds_of_calls(outers) or _until_called_again(outers):
        yield FoundStep(list(group), "generate" if any(outer.generates for outer in group) else "call")


def _segments(outers: Sequence[OuterCall], marks: Sequence[Mark]) -> Iterator[Segment]:
    ends, at, first = ends_of_rounds([mark.who for mark in marks]), 0, 0
    for end in ends:
        since = at
        while at < len(outers) and outers[at].start_ns <= marks[end].ns:
            at += 1
        yield Segment(list(outers[since:at]), list(marks[first : end + 1]))
        first = end + 1
    yield Segment(list(outers[at:]), [])


def _only_round_joined(segments: list[Segment]) -> list[Segment]:
    """Join all segments if each optimizer has stepped only once: the program was stopped in its second iteration."""
    whole, rest = segments[:-1], segments[-1]
    stepped = [mark for segment in whole for mark in segment.marks]
    forms = [[outer.key for outer in segment.outers] for segment in whole]
    if len({mark.who for mark in stepped}) < len(stepped) or any(form == forms[0] for form in forms[1:]):
        return segments
    return [_joined(whole), rest]


def _joined(segments: Sequence[Segment]) -> Segment:
    outers = [outer for segment in segments for outer in segment.outers]
    return Segment(outers, [mark for segment in segments for mark in segment.marks])


def _rollouts_joined(segments: list[Segment]) -> list[Segment]:
    """Join each rollout with the updates that follow it to one iteration.

    An evaluation between epochs looks much the same, but a rollout precedes the first update too, and has more calls
    than updates follow it.
    """
    whole, rest = segments[:-1], segments[-1]
    rollouts = [_leading_inference(segment.outers) for segment in whole]
    begins = [at for at, calls in enumerate(rollouts) if calls]
    if len(begins) < 2 or begins[0] != 0:
        return segments
    gaps = {after - before for before, after in pairwise([*begins, len(whole)])}
    updates = max(gaps)
    if len(gaps) > 1 or updates < 2 or updates > MOST_UPDATES or min(rollouts[at] for at in begins) <= updates:
        return segments
    joined = [whole[at : at + updates] for at in begins]
    return [*map(_joined, joined), rest]


def _leading_inference(outers: Sequence[OuterCall]) -> int:
    return next((at for at, outer in enumerate(outers) if outer.trains), 0)


@dataclass(frozen=True)
class _Usual:
    before: frozenset[Key]
    """Keys of its calls up to its end."""
    after: frozenset[Key]
    """Keys of its calls after the step of the optimizer."""
    leader: Key | None
    """Key of its first call."""
    leaders: int | None
    """Number of calls with the key `leader`; None if it varies."""
    marks: int = 0
    """Number of steps of optimizers."""

    def begins(self, outer: OuterCall) -> bool:
        return outer.trains or outer.key in self.before


def _usual(segments: Sequence[Segment]) -> _Usual:
    forms = [[key for key, _ in runs_of(segment.outers)] for segment in segments if segment.outers]
    if not forms:
        return _Usual(frozenset(), frozenset(), None, None)
    later = Counter(tuple(form) for form in forms[1:]) or Counter([tuple(forms[0])])
    usual = list(later.most_common(1)[0][0])
    shared = _common_end(forms[0], usual)
    cut = len(usual) - shared if shared else 0
    before = frozenset(usual[cut:])
    counts = Counter(sum(outer.key == usual[cut] for outer in segment.outers) for segment in segments)
    counts.pop(0, None)
    often, times = counts.most_common(1)[0]
    steady = 2 * times > sum(counts.values()) and all(mark.name != _SEARCHES for s in segments for mark in s.marks)
    marks = Counter(len(segment.marks) for segment in segments).most_common(1)[0][0]
    return _Usual(before, frozenset(usual[:cut]) - before, usual[cut], often if steady else None, marks)


def _common_end(a: Sequence[Key], b: Sequence[Key]) -> int:
    unlike = (n for n, (x, y) in enumerate(zip(reversed(a), reversed(b), strict=False)) if x != y)
    return next(unlike, min(len(a), len(b)))


def _iterations(
    outers: Sequence[OuterCall], marks: Sequence[Mark], by: By, backwards: Sequence[Mark]
) -> Iterator[FoundStep]:
    segments = _rollouts_joined(_only_round_joined(list(_segments(outers, marks))))
    usual = _usual(segments[:-1])
    found: list[FoundStep] = []
    for segment in segments:
        left: Sequence[OuterCall] = segment.outers
        if found and found[-1].end_ns is not None:
            left = _given_to(found[-1], left, usual)
        outside = next((at for at, outer in enumerate(left) if usual.begins(outer)), 0 if segment.marks else len(left))
        found += split_calls(left[:outside])
        loop, own, rest = _with_loops_beside(left[outside:], usual, backwards, has_ended=bool(segment.marks))
        found += loop
        found += _own(own, segment.marks, usual, by, found[-1].end_ns if found else None)
        found += rest
    yield from found


def _with_loops_beside(
    outers: Sequence[OuterCall], usual: _Usual, backwards: Sequence[Mark], has_ended: bool
) -> tuple[list[FoundStep], Sequence[OuterCall], list[FoundStep]]:
    """Return the calls of the training loop between the iterations of loops without an optimizer. One call before it is
    no loop, nor are calls that no usual call follows before the optimizer."""
    if not backwards:
        return [], outers, []
    foreign = [at for at, outer in enumerate(outers) if outer.trains and outer.key not in usual.before]
    first = next((at for at, outer in enumerate(outers) if outer.key in usual.before), len(outers))
    loop = _of_a_loop(outers[:first], backwards) if first < len(outers) or not has_ended else []
    first = first if len(loop) > 1 else 0
    last = len(outers) if has_ended else next((at for at in foreign if at >= first), len(outers))
    return loop if first else [], outers[first:last], _of_a_loop(outers[last:], backwards)


def _of_a_loop(outers: Sequence[OuterCall], backwards: Sequence[Mark]) -> list[FoundStep]:
    if not outers:
        return []
    until_ns = max(outer.end_ns for outer in outers)
    return list(split_by_backward(outers, [mark for mark in backwards if outers[0].start_ns <= mark.ns <= until_ns]))


def _given_to(before: FoundStep, outers: Sequence[OuterCall], usual: _Usual) -> Sequence[OuterCall]:
    """Move the calls that usually follow the optimizer to the iteration `before`; return the others."""
    count = next((at for at, outer in enumerate(outers) if outer.key not in usual.after), len(outers))
    before.outers += outers[:count]
    return outers[count:]


def _own(
    outers: Sequence[OuterCall], marks: Sequence[Mark], usual: _Usual, by: By, since_ns: int | None
) -> Iterator[FoundStep]:
    """Yield one iteration, or several if the optimizer skipped steps, as a gradient scaler makes it do."""
    starts = [at for at, outer in enumerate(outers) if outer.key == usual.leader]
    each = usual.leaders
    if each and len(marks) <= usual.marks and len(starts) > each and len(starts) % each == 0 and starts[0] == 0:
        cuts = starts[each::each]
        for first, last in pairwise([0, *cuts]):
            yield FoundStep(list(outers[first:last]), "call")
        outers = outers[cuts[-1] :]
    if marks:
        names = ", ".join(dict.fromkeys(mark.name for mark in marks if mark.name)) or None
        yield FoundStep(list(outers), by, marks[-1].ns, since_ns, names, trains=True)
    elif outers:
        yield FoundStep(list(outers), "call")


def _rounds_of_calls(outers: Sequence[OuterCall]) -> list[Sequence[OuterCall]] | None:
    """Return rounds of calls that are alike and begin with the same function, or None if there are none.

    Blocks that are compiled separately run several times in a row. So does the decoding of a text after the function
    that prepares it, which alone begins a round; such rounds may differ in length.
    """
    forms = runs_of(outers)
    if len(forms) < 4 or any(outer.generates for outer in outers):
        return None
    leader = forms[0][0]
    starts = [at for at, (key, _) in enumerate(forms) if key == leader]
    rounds = [forms[first:last] for first, last in pairwise([*starts, len(forms)])]
    order = [key for key, _ in rounds[0]]
    alike = all([key for key, _ in one] == order[: len(one)] for one in rounds[1:])
    if len(rounds) < 2 or not alike or len(set(order)) < len(order) or any(len(r) < len(order) for r in rounds[:-1]):
        return None
    steady = all(one == rounds[0] for one in rounds[:-1]) and rounds[-1][-1][1] <= rounds[0][len(rounds[-1]) - 1][1]
    decodes = all(one[0][1] == 1 for one in rounds) and any(count > 1 for one in rounds for _, count in one)
    if not steady and not decodes:
        return None
    lengths = [sum(count for _, count in one) for one in rounds]
    ends = [sum(lengths[:at]) for at in range(len(lengths) + 1)]
    return [outers[first:last] for first, last in pairwise(ends)]


def _until_called_again(outers: Sequence[OuterCall]) -> Iterator[list[OuterCall]]:
    group: list[OuterCall] = []
    called: set[object] = set()
    for outer in outers:
        if group and (outer.generates or group[-1].generates or outer.key[0] in called):
            yield group
            group, called = [], set()
        group.append(outer)
        called.add(outer.key[0])
    if group:
        yield group
