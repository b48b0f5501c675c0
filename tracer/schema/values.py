"""Records of the values of tensors; `stepscope.tracer.schema.records` names them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from stepscope.tracer.schema.record import Record

Moment = Literal["before", "after"]
OF_THE_CALL = -1
"""`ValueLayout.site` of a row for an input of the call that no launch site names."""


@dataclass(frozen=True)
class ValueLayout(Record):
    """The description of a call's value rows, as columns. Calls with the same rows share a layout."""

    KIND: ClassVar[str] = "value_layout"

    layout: int
    graph: int
    site: list[int]
    """The launch site; -1 for an input of the call that no launch site names."""
    argument: list[int]
    """The index into the site's `arguments`, or into `Graph.inputs` for an input of the call."""
    moment: list[Moment]
    item: list[int | None]
    """The position within a list argument; None for other arguments."""
    part: list[str | None]
    """The part of the tensor: ``real``, ``imag``, ``values``, or the name of a subclass's inner tensor; None for the
    whole tensor."""
    dtype: list[str]
    numel: list[int]
    looked_at: list[int]
    """The number of elements that the statistics cover; if it is less than `numel`, they are a strided sample."""
    skipped: list[str | None]
    """Why the row has no statistics; None if it has statistics."""
    first: int = 0
    """The number of rows of the call in earlier records. With blocking launches, readings of selected kernels are
    written at once."""


@dataclass(frozen=True)
class SavedTensor(Record):
    """A tensor was written to a file beside the log."""

    KIND: ClassVar[str] = "saved_tensor"

    call: int
    site: int
    argument: int
    item: int | None
    moment: Moment
    file: str
    """The path of the file, relative to the folder of the log."""
    dtype: str
    size: list[int]
    tensor_bytes: int
    sha256: str
    """The SHA-256 digest of the file."""
