"""Which forms the arguments of launch sites have had, dtypes and sizes: each is written down once, and named again in
a few bytes when it comes back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from stepscope.tracer.schema.records import UNRECORDED, SameTensors, TensorMeta, Tensors

MOST_FORMS = 256
"""Of one launch site: a service with dynamic shapes may meet a new one with each request."""

TOO_MANY = f"its arguments have had {MOST_FORMS} different sizes; further ones are not written down"

Place = tuple[int, int]
"""(site, index of the first argument): what goes in is looked at before the launch, what it binds behind it."""
_SEVERAL = object()
"""Of a launch site that runs more than once in a call; none of its forms there can be named by the call."""
_forks = 0


def forget_parent_process() -> None:
    """In a forked child: its log tells each form again, and not which of them was the last."""
    global _forks
    _forks += 1


class ArgumentForms:
    """Of one graph. Calls of several threads may take turns."""

    def __init__(self, graph: int, arguments: Sequence[int]) -> None:
        """`arguments`: how many each launch site has."""
        self._graph, self._arguments = graph, arguments
        self._seen: defaultdict[Place, dict[object, int]] = defaultdict(dict)
        """The call that each form was written down for last."""
        self._told_in: defaultdict[int, dict[Place, object]] = defaultdict(dict)
        """The forms that were written down for a call."""
        self._written: Counter[Place] = Counter()
        self._in_force: dict[Place, tuple[int, object]] = {}
        """By what the log says: since which call, and which form."""
        self._forks = _forks

    def told(
        self, call: int, site: int, first: int, form: object, describe: Callable[[], list[TensorMeta]]
    ) -> Tensors | SameTensors | None:
        """What the log has to be told of the arguments from `first` on, of which `form` is equal for equal ones; None:
        by the log they are these already."""
        if self._forks != _forks:
            self._forks = _forks
            self._in_force.clear()
        place = site, first
        if self.is_full(site, first):
            return None
        since, now = self._in_force.get(place, (-1, None))
        if form == now and since <= call:
            return None
        of = self._seen[place].get(form)
        if of is None or self._told_in[of][place] != form:
            return self._new(call, place, form, describe)
        for other, its_form in self._told_in[of].items():  # most of them come back with this one
            if other >= place:
                self._in_force[other] = call, its_form
        return SameTensors(self._graph, call, site, first, of)

    def is_full(self, site: int, first: int) -> bool:
        """The log has been told that it is not told any more."""
        return self._written[site, first] > MOST_FORMS

    def _new(self, call: int, place: Place, form: object, describe: Callable[[], list[TensorMeta]]) -> Tensors | None:
        site, first = place
        self._seen[place][form] = call
        self._told_in[call][place] = form if place not in self._told_in[call] else _SEVERAL
        self._in_force[place] = call, form
        self._written[place] += 1
        if self.is_full(site, first):
            unknown = [TensorMeta(n, UNRECORDED, [], [], "", None, None) for n in range(self._arguments[site])]
            return Tensors(self._graph, call, site, unknown)
        tensors = describe()
        return Tensors(self._graph, call, site, tensors) if tensors else None
