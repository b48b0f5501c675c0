"""Finds the steps of optimizers that end an iteration: optimizers that take turns share one.

`ends_of_rounds` learns the cycle from their order: a discriminator and a generator, an actor and its critic, or five
steps of a critic for each of its generator. An optimizer that only now and then follows another, which steps in each
iteration, ends no iteration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

MOST_ODD = 0.2
"""Maximum share of rounds that differ because an optimizer was skipped after an overflow."""


def ends_of_rounds(marks: Sequence[Hashable]) -> list[int]:
    """Return the positions in `marks`, the optimizers in order of their steps, that end an iteration."""
    return [first + at for first, last in _programs(marks) for at in _ends(marks[first:last])]


def _programs(marks: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of programs that ran one after the other: their optimizers never take turns."""
    last = {who: at for at, who in enumerate(marks)}
    first = reach = 0
    for at, who in enumerate(marks):
        reach = max(reach, last[who])
        if at == reach:
            yield first, at + 1
            first = at + 1


def _ends(marks: Sequence[Hashable]) -> list[int]:
    counts = Counter(marks)
    if len(counts) == 1:
        return list(range(len(marks)))
    rarest = min(counts.values())
    for who in dict.fromkeys(reversed(marks)):
        if counts[who] == rarest and _is_last_of_each_round(marks, who, len(counts)):
            ends = [at for at, one in enumerate(marks) if one == who]
            return ends if ends[-1] == len(marks) - 1 else [*ends, len(marks) - 1]
    return _ends_by_leader(marks, counts)


def _is_last_of_each_round(marks: Sequence[Hashable], who: Hashable, optimizers: int) -> bool:
    """Return whether rounds that end with `who` look alike, including the first one."""
    rounds: list[list[Hashable]] = [[]]
    for one in marks:
        rounds[-1].append(one)
        if one == who:
            rounds.append([])
    rounds.pop()  # the last round has not ended
    if len(rounds) < 2:
        return False
    forms = Counter(tuple(_without_repeats(one)) for one in rounds)
    usual, times = forms.most_common(1)[0]
    if len(set(usual)) < optimizers or times < (1 - MOST_ODD) * len(rounds):
        return False
    lengths = Counter(map(len, rounds))
    # A shorter first round shows that this optimizer steps in every n-th iteration and ends none.
    return len(rounds) < 3 or len(rounds[0]) >= lengths.most_common(1)[0][0]


def _without_repeats(marks: Sequence[Hashable]) -> list[Hashable]:
    return [one for at, one in enumerate(marks) if at == 0 or one != marks[at - 1]]


def _ends_by_leader(marks: Sequence[Hashable], counts: Counter[Hashable]) -> list[int]:
    """Return ends of iterations: before the most frequent optimizer, and before one that steps several times."""
    most = max(counts.values())
    leader = next(who for who in marks if counts[who] == most)
    ends = []
    for at, who in enumerate(marks):
        following = marks[at + 1 : at + 3]
        repeats = len(following) == 2 and following[0] == following[1]
        if not following or following[0] in (who, leader) or repeats:
            ends.append(at)
    return ends
