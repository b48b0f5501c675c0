"""Checks that a launch reads what the producer of a buffer wrote, with sums over the bits of the contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Contents(NamedTuple):
    """What a buffer held when its producer had written it."""

    launch: int | None
    """Position of the producer in the call; None for an input."""
    form: tuple[object, ...]
    sum: Any


@dataclass(frozen=True)
class Change:
    """A buffer that is not what its producer wrote."""

    variable: str
    buffer: str
    producer: int | None
    writer: int | None
    """Position of the last launch in between that wrote to the same memory; None if none did."""
    is_result: bool = False
    """Whether the call returns the buffer; else a launch reads it."""


class Integrity:
    """The contents of the buffers of one call."""

    def __init__(self) -> None:
        self._known: dict[str, Contents] = {}
        self._writes: list[tuple[int, int]] = []
        """Launch and address of the memory it wrote to, in order."""

    def written(self, buffer: str, tensor: Any, launch: int | None) -> None:
        self._known[buffer] = Contents(launch, _form(tensor), bit_sum(tensor))

    def wrote_to(self, tensor: Any, launch: int) -> None:
        self._writes.append((launch, tensor.untyped_storage().data_ptr()))

    def change(self, variable: str, buffer: str, tensor: Any) -> Change | None:
        """Return how a buffer that is about to be read has changed since it was written, or None if it has not."""
        before = self._known.get(buffer)
        if before is None:
            self.written(buffer, tensor, None)
            return None
        if before.form != _form(tensor) or bool(before.sum == bit_sum(tensor)):
            return None
        address = tensor.untyped_storage().data_ptr()
        since = -1 if before.launch is None else before.launch
        writers = [launch for launch, where in self._writes if where == address and launch > since]
        return Change(variable, buffer, before.launch, writers[-1] if writers else None)

    def writer(self, buffer: str) -> int | None:
        """Return the launch that wrote a buffer, or None for an input."""
        known = self._known.get(buffer)
        return known.launch if known is not None else None

    def is_unchanged(self, buffer: str, tensor: Any) -> bool:
        before = self._known.get(buffer)
        return before is None or before.form != _form(tensor) or bool(before.sum == bit_sum(tensor))


def _form(tensor: Any) -> tuple[object, ...]:
    return tensor.dtype, tensor.numel(), tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def bit_sum(tensor: Any) -> Any:
    """Return the sum of the contents' bits as integers modulo 2^64, in a tensor of one element."""
    import torch

    if tensor.numel() == 0:
        return torch.zeros((), dtype=torch.int64)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    flat = tensor.reshape(-1)
    size = flat.element_size()
    if flat.dtype == torch.bool:
        return flat.sum(dtype=torch.int64)
    total = flat.numel() * size
    if total % 8 == 0 and (flat.storage_offset() * size) % 8 == 0:
        return flat.view(torch.int64).sum()
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return flat.view(whole).sum(dtype=torch.int64)
