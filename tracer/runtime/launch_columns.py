"""Describes arguments of launches at run time, and converts calls that have ended to columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stepscope.tracer.log.symbol_values import symbols_of
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.schema.launches import Calls, Launches, TensorMeta
from stepscope.tracer.schema.scalars import CallSymbols

NO_END = -1


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


def records_of(calls: Sequence[GraphCall]) -> Iterator[Launches | CallSymbols]:
    if calls:
        yield to_batch(calls)
    yield from symbols_of(calls)


def to_batch(calls: Sequence[GraphCall]) -> Launches:
    rows: list[int] = []
    for call in calls:
        rows += call.rows
        if len(call.rows) % 3 == 2:
            rows.append(NO_END)
        elif len(call.rows) % 3:  # a signal handler raised before the launch began
            del rows[-1]
    return Launches(
        calls=Calls(
            call=[c.number for c in calls],
            graph=[c.graph for c in calls],
            function=[c.function for c in calls],
            step=[c.step for c in calls],
            thread=[c.thread for c in calls],
            parent=[c.parent.number if c.parent else None for c in calls],
            start_ns=[c.start_ns for c in calls],
            duration_ns=[c.end_ns - c.start_ns for c in calls],
            launches=[(len(c.rows) + 1) // 3 for c in calls],
            state=[c.state for c in calls],
        ),
        site=rows[0::3],
        start_ns=rows[1::3],
        end_ns=rows[2::3],
    )
