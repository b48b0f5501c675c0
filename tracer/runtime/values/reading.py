"""Reads tensors at the points of a wrapper that a plan selects, and defines the layout of a call's value rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from stepscope.tracer.inductor.stats_toolchain import function_mode_active
from stepscope.tracer.log.launch_ring import is_blocking
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.stats import NOT_READ, Part, Reader, StatsBlock
from stepscope.tracer.runtime.stats.parts import parts
from stepscope.tracer.runtime.stats.readers import reader_for
from stepscope.tracer.runtime.values.elements import Element, ElementReader, elements_of
from stepscope.tracer.runtime.values.quick import Point, call_reader_type, point_of
from stepscope.tracer.runtime.values.rows import PlannedRead, ReadRow, RowGroup
from stepscope.tracer.schema.values import SavedTensor, ValueLayout

if TYPE_CHECKING:
    from torch import Tensor

    from stepscope.tracer.config import TraceConfig
    from stepscope.tracer.runtime.values.save import TensorSaver

MOST_FORMS = 256
"""Maximum number of forms of one point's tensors for which readers are kept."""


class ValueSink(Protocol):
    """The part of the recorder that is used here."""

    running: dict[int, GraphCall]
    """Calls that are recorded and not yet passed on, by number."""

    def failed(self, where: str, error: BaseException) -> None: ...
    def values_now(self, call: GraphCall) -> None: ...
    def saved(self, record: SavedTensor) -> None: ...
    def not_saved(self, why: str) -> None: ...


class PreparedReading(RowGroup):
    """The readers of one point for tensors of one form. Keeps no tensor alive."""

    def __init__(
        self, planned: Sequence[PlannedRead], values: Sequence[Any], most_bytes: int | None, elements: int = 0
    ) -> None:
        """Prepare readers for `values`; of tensors with at most `elements` elements, all are recorded."""
        found = [(p, item, part) for p, value in zip(planned, values, strict=True) for item, part in _parts(value)]
        # The sort is stable: unreadable parts come last, and parts of one reader are consecutive.
        found.sort(key=lambda one: (one[2].tensor is None, one[2].tensor is not None and not one[2].tensor.is_cuda))
        tensors = [part.tensor for _, _, part in found if part.tensor is not None]
        reader = reader_for(tensors, sys.maxsize if most_bytes is None else most_bytes)
        if elements:
            reader = ElementReader(reader, [part for _, _, part in found], elements)
        unread = len(found) - len(tensors)
        counts = zip(found, [*reader.looked_at, *[0] * unread], strict=True)
        super().__init__(
            ReadRow(p, item, part.name, part.dtype, part.numel, n, part.skipped or _unread(part, n))
            for (p, item, part), n in counts
        )
        members = [(n, item) for n, value in enumerate(values) for item, _ in _members(value)]
        members.sort(key=lambda at: not _at(values, *at).is_cuda)
        self.is_plain = not unread and [id(t) for t in tensors] == [id(_at(values, *at)) for at in members]
        is_one_each = members == [(n, None) for n in range(len(values))]
        self._members = None if is_one_each else members
        self._reader: Callable[[Sequence[Any]], StatsBlock] = reader if self.is_plain else _Parts(reader, unread)
        self.read = self._reader if is_one_each or not self.is_plain else self._read_members
        self._checks = [
            (n, item, tuple(member.shape), member.stride(), member.dtype)
            for n, item in (members if self.is_plain else ())
            if not planned[n].is_fixed and not planned[n].is_checked
            for member in (_at(values, n, item),)
        ]
        # The state of a random generator, one or two 64-bit integers, is on the host, but on the device while a CUDA
        # graph is captured. The device of other tensors is fixed by the guards of the program.
        self._on_device = [
            (n, item, bool(_at(values, n, item).is_cuda))
            for n, item in (members if self.is_plain else ())
            if not planned[n].is_fixed and _may_be_random_state(_at(values, n, item))
        ]
        self._counts = [(n, len(value)) for n, value in enumerate(values) if isinstance(value, (list, tuple))]
        self.is_sure = self.is_plain and not (self._on_device or self._checks or self._counts)
        """Whether nothing about the tensors can vary from call to call."""
        self.point: Point | None = point_of(reader, self) if is_one_each and self.is_plain else None
        """What reads the tensors in compiled code; None if only `read` does."""

    def fits(self, values: Sequence[Any]) -> bool:
        """Return whether `values` have the form that the readers were prepared for."""
        if not self.is_plain or any(len(values[n]) != count for n, count in self._counts):
            return False
        for n, item, is_cuda in self._on_device:
            if (values[n] if item is None else values[n][item]).is_cuda is not is_cuda:
                return False
        for n, item, shape, stride, dtype in self._checks:
            value = values[n] if item is None else values[n][item]
            if value.shape != shape or value.stride() != stride or value.dtype is not dtype:
                return False
        return True

    def _read_members(self, values: Sequence[Any]) -> StatsBlock:
        members = self._members or ()
        return self._reader([values[n] if item is None else values[n][item] for n, item in members])


class _Parts:
    """Reads arguments that are not plain tensors, part by part."""

    def __init__(self, reader: Reader, unread: int) -> None:
        self._reader, self._unread = reader, unread

    def __call__(self, values: Sequence[Any]) -> StatsBlock:
        block = self._reader([part.tensor for value in values for _, part in _parts(value) if part.tensor is not None])
        return _WithUnread(block, self._unread) if self._unread else block


@dataclass(frozen=True, eq=False)
class _WithUnread:
    """A block followed by empty rows for the parts that could not be read."""

    block: StatsBlock
    unread: int

    def elements(self) -> Iterator[tuple[int, list[Element]]]:
        return elements_of(self.block)

    def rows(self) -> npt.NDArray[Any] | None:
        found = self.block.rows()
        return None if found is None else np.concatenate([found, np.repeat(NOT_READ, self.unread)])

    def wait(self) -> npt.NDArray[Any]:
        return np.concatenate([self.block.wait(), np.repeat(NOT_READ, self.unread)])


class PlanPoint:
    """One point of a wrapper at which tensors are read. Threads may share it."""

    def __init__(
        self, planned: Sequence[PlannedRead], most_bytes: int | None, saver: TensorSaver | None, elements: int = 0
    ) -> None:
        self.planned = tuple(planned)
        self.last: PreparedReading | None = None
        self.saver = saver
        self._most_bytes, self._elements = most_bytes, elements
        self._forms: dict[tuple[Any, ...], PreparedReading] = {}

    def prepare(self, values: Sequence[Any]) -> PreparedReading:
        """Return the readers for `values`, and keep them as the last ones."""
        self.last = self._prepare(values)
        return self.last

    def save_all(self, saver: TensorSaver, sink: ValueSink, call: GraphCall, values: Sequence[Any]) -> None:
        if call.number not in sink.running:  # another thread has ended the recording, which has written the call
            return
        launch = len(call.rows) // 3 - (self.planned[0].moment == "after")
        for planned, value in zip(self.planned, values, strict=True):
            for item, member in _members(value):
                kept = saver.save(
                    member, step=call.step, launch=launch, kernel=planned.kernel, argument=planned.name, item=item,
                    moment=planned.moment,
                )  # fmt: skip
                if isinstance(kept, str):
                    sink.not_saved(kept)
                else:
                    sink.saved(
                        SavedTensor(
                            call.number, planned.site, planned.argument, item, planned.moment, kept.file,
                            kept.dtype, kept.size, kept.tensor_bytes, kept.sha256,
                        )
                    )  # fmt: skip

    def _prepare(self, values: Sequence[Any]) -> PreparedReading:
        """Return the readers for `values`; those for arguments that are not plain tensors are prepared at each call."""
        form = tuple(_form(value) for value in values)
        known = self._forms.get(form)
        if known is not None and known.is_plain:
            return known
        made = PreparedReading(self.planned, values, self._most_bytes, self._elements)
        if known is not None and known.rows == made.rows:
            made.number = known.number
        elif len(self._forms) < MOST_FORMS:
            self._forms[form] = made
        return made


def writes_at_once(config: TraceConfig) -> bool:
    """Return whether each reading is written before the next launch, which takes about 0.4 ms per reading.

    This is done for selected kernels while launches wait for their device, as in the search for a crash.
    """
    return bool(config.kernels) and is_blocking()


class ReadPlan:
    """The points of one wrapper at which its code reads tensors, for one configuration."""

    def __init__(self, places: Sequence[PlanPoint], config: TraceConfig, sink: ValueSink) -> None:
        self.wants_step: Callable[[int], bool] = config.wants_step
        self.writes_at_once = writes_at_once(config)
        self.config = config
        self._places: list[PlanPoint | None] = list(places)
        self._quick: list[PreparedReading | None] = [None] * len(places)
        """Readers of the points at which nothing can vary from call to call."""
        self._points: list[Point | None] = [None] * len(places)
        """The same readers in compiled code."""
        self._reader_type = call_reader_type()
        self._sink = sink

    def read(self, call: GraphCall, place: int, values: Sequence[Any]) -> None:
        """Read the tensors at a point, for generated code. Never raises; a point that fails is not read again."""
        started = perf_counter_ns()
        try:
            quick = self._quick[place]
            if quick is not None:
                call.readings.append((quick, quick.read(values)))
            elif (where := self._places[place]) is not None:
                prepared = self._prepared(where, place, values)
                call.readings.append((prepared, prepared.read(values)))
                if where.saver is not None:
                    where.save_all(where.saver, self._sink, call, values)
        except Exception as error:
            self._lost(place, error)
        call.stats_ns += perf_counter_ns() - started

    def reader_of(self, call: GraphCall) -> Callable[[GraphCall, int, Sequence[Any]], None]:
        """Return the function that reads the tensors of a call: `read`, or compiled code that does the same."""
        made = self._reader_type
        return self.read if made is None else made(self._points, self._choose, self._lost, call.readings)

    def _choose(self, call: GraphCall, place: int, values: Sequence[Any]) -> Point | None:
        """Return the point for compiled code to read, or read the tensors here and return None."""
        where = self._places[place]
        if where is None:
            return None
        if where.saver is None and not function_mode_active():
            started = perf_counter_ns()
            prepared = self._prepared(where, place, values)
            if prepared.point is None:
                call.readings.append((prepared, prepared.read(values)))
            call.stats_ns += perf_counter_ns() - started
            return prepared.point
        self.read(call, place, values)
        return None

    def _prepared(self, where: PlanPoint, place: int, values: Sequence[Any]) -> PreparedReading:
        prepared = where.last
        if prepared is None or not prepared.fits(values):
            prepared = where.prepare(values)
            if prepared.is_sure and where.saver is None:
                self._quick[place], self._points[place] = prepared, prepared.point
        return prepared

    def _lost(self, place: int, error: BaseException) -> None:
        """Stop reading at a point after an error."""
        self._places[place] = self._quick[place] = self._points[place] = None
        self._sink.failed("values", error)

    def read_captured(self, call: GraphCall, place: int, values: Sequence[Any]) -> None:
        """Do what `read` does in a call that is being captured into a CUDA graph."""
        readings = len(call.readings)
        self.read(call, place, values)
        if len(call.readings) > readings:
            call.read_at.append(len(call.rows) // 3)

    def read_at_once(self, call: GraphCall, place: int, values: Sequence[Any]) -> None:
        """Read, and write the values before the next launch, so that a crash does not lose those of the running call.

        Launches in loops are excluded, since only the rows of one record distinguish the iterations of a loop.
        """
        self.read(call, place, values)
        started = perf_counter_ns()
        try:
            self._sink.values_now(call)
        except Exception as error:
            self._sink.failed("values", error)
        call.stats_ns += perf_counter_ns() - started

    def wants(self, planned: PlannedRead) -> bool:
        """Return whether the filters select an argument that an earlier plan has read."""
        return self.config.wants_kernel(planned.kernel) and self.config.wants_argument(*planned.names)


def _may_be_random_state(tensor: Tensor) -> bool:
    return tensor.numel() <= 2 and tensor.itemsize == 8 and not tensor.is_floating_point()


def _at(values: Sequence[Any], position: int, item: int | None) -> Any:
    return values[position] if item is None else values[position][item]


def _members(value: Any) -> Iterator[tuple[int | None, Any]]:
    """Yield the tensors of an argument with their positions in a list."""
    if isinstance(value, (list, tuple)) and type(value).__name__ != "Size":
        for position, member in enumerate(value):
            if hasattr(member, "untyped_storage"):
                yield position, member
    elif hasattr(value, "untyped_storage"):
        yield None, value


def _parts(value: Any) -> Iterator[tuple[int | None, Part]]:
    for item, member in _members(value):
        for part in parts(member):
            yield item, part


def _unread(part: Part, looked_at: int) -> str | None:
    """Return why a reader leaves a tensor out, or None if it does not."""
    if looked_at or not part.numel or part.tensor is None:
        return None
    return f"{part.dtype} of {part.tensor.dim()} dimensions cannot be read on {part.tensor.device.type}"


def _form(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and type(value).__name__ != "Size":
        return tuple(_form(member) for member in value)
    if not hasattr(value, "stride"):
        return type(value)
    try:
        stride = value.stride()
    except (RuntimeError, NotImplementedError):
        stride = None
    return type(value), value.dtype, tuple(value.shape), stride, value.device


def layout(number: int, graph: int, readings: Sequence[RowGroup], first: int = 0) -> ValueLayout:
    """Return the layout of a call with these readings; its first `first` rows are already written."""
    rows = [row for prepared in readings for row in prepared.rows]
    planned = [row.planned for row in rows]
    return ValueLayout(
        layout=number,
        graph=graph,
        site=[p.site for p in planned],
        argument=[p.argument for p in planned],
        moment=[p.moment for p in planned],
        item=[row.item for row in rows],
        part=[row.part for row in rows],
        dtype=[row.dtype for row in rows],
        numel=[row.numel for row in rows],
        looked_at=[row.looked_at for row in rows],
        skipped=[row.skipped for row in rows],
        first=first,
    )
