"""Describes the arguments of launches, and remembers their forms (dtypes, sizes, strides): each is written only once.

A form that occurs again is written as a reference of a few bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stepscope.tracer.schema.constants import UNRECORDED
from stepscope.tracer.schema.launches import SameTensors, TensorMeta, Tensors

MOST_FORMS = 256
"""Maximum number of forms per launch site; a service with dynamic shapes may have a new one with each request."""

TOO_MANY = f"its arguments have had {MOST_FORMS} different sizes; further ones are not recorded"

Place = tuple[int, int]
"""(site, index of the first argument); inputs are described before the launch, bound outputs after it."""
_SEVERAL = object()
"""Form of a launch site that runs more than once in a call; no record can refer to its forms by that call."""
_forks = 0


def forget_parent_process() -> None:
    """Forget the current forms in a forked child, whose log does not have the parent's last records."""
    global _forks
    _forks += 1


class ArgumentForms:
    """The forms of one graph's arguments. Calls of several threads may alternate."""

    def __init__(self, graph: int, arguments: Sequence[int]) -> None:
        """Create the forms; `arguments` is the number of arguments of each launch site."""
        self._graph, self._arguments = graph, arguments
        self._seen: defaultdict[Place, dict[object, int]] = defaultdict(dict)
        """Last call for which each form was written."""
        self._told_in: defaultdict[int, dict[Place, object]] = defaultdict(dict)
        """Forms that were written for each call."""
        self._written: Counter[Place] = Counter()
        self._in_force: dict[Place, tuple[int, object]] = {}
        """Current form according to the log, with the call since which it applies."""
        self._forks = _forks

    def record_of(
        self, call: int, site: int, first: int, form: object, describe: Callable[[], list[TensorMeta]]
    ) -> Tensors | SameTensors | None:
        """Return the record about the arguments from `first` on, or None if the log needs none.

        `form` identifies the arguments' dtypes, sizes and strides; `describe` is called for a new form.
        """
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
        for other, its_form in self._told_in[of].items():  # usually all of them occur again together
            if other >= place:
                self._in_force[other] = call, its_form
        return SameTensors(self._graph, call, site, first, of)

    def is_full(self, site: int, first: int) -> bool:
        """Return whether the log says that the arguments are not recorded any more."""
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


def signature_of(value: Any) -> Any:
    """Return a key that is equal for values with equal dtypes, sizes and strides."""
    if isinstance(value, (list, tuple)) and type(value).__name__ != "Size":
        return tuple(signature_of(member) for member in value)
    size = getattr(value, "shape", None)
    return (tuple(size), value.dtype, _stride(value)) if size is not None else type(value)


def _stride(value: Any) -> Any:
    try:
        return value.stride()
    except Exception:  # sparse, jagged, or not a torch tensor
        return None


def described(first: int, values: Sequence[Any]) -> list[TensorMeta]:
    """Describe arguments of a launch, the first of which has the number `first`."""
    return [meta for n, value in enumerate(values) for meta in describe(first + n, value)]


def describe(argument: int, value: Any, item: int | None = None) -> Iterable[TensorMeta]:
    """Describe `value` without reading or keeping it; yields one entry per member of a list."""
    if value is ...:  # an expression that must not be evaluated twice
        return
    if isinstance(value, (list, tuple)) and item is None:
        for position, member in enumerate(value):
            yield from describe(argument, member, position)
        return
    if not (hasattr(value, "untyped_storage") and hasattr(value, "stride")):
        yield TensorMeta(argument, type(value).__name__, [], [], "", 0, None, item)
        return
    size: list[int] = []
    try:
        size = [int(s) for s in value.shape]
        stride, offset = [int(s) for s in value.stride()], int(value.storage_offset())
        storage_bytes: int | None = value.untyped_storage().nbytes()
        address: int | None = value.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # sparse, meta and wrapper subclasses have no strided storage
        stride, offset, storage_bytes, address = [], 0, None, None
    except (AttributeError, TypeError):  # jagged: sizes that are not numbers
        size, stride, offset, storage_bytes, address = [], [], 0, None, None
    yield TensorMeta(
        argument,
        str(value.dtype).removeprefix("torch."),
        size,
        stride,
        str(value.device),
        offset,
        storage_bytes,
        item,
        address,
    )
