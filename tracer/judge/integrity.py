"""Checks that a launch reads what the producer of a buffer wrote, with sums over the bits of the contents.

The sums stay on the device until the call ends, so that no launch waits for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stepscope.tracer.judge.sums import Sums


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
    """Position of the last launch in between that wrote to the same memory; None if none did. The launch itself, and
    so is the producer, if it was given this memory for another buffer that it wrote."""
    is_result: bool = False
    """Whether the call returns the buffer; else a launch reads it."""


class _Look(NamedTuple):
    """A buffer that was read or returned, and whose contents are compared when the call has ended."""

    launch: int | None
    """Position of the launch that is about to read it; None for a result of the call."""
    variable: str
    buffer: str
    before: Contents
    sum: Any
    address: int
    writes: int
    """Number of writes that came before."""


class Integrity:
    """The contents of the buffers of one call."""

    def __init__(self) -> None:
        self._known: dict[str, Contents] = {}
        self._writes: list[tuple[int, int]] = []
        """Launch and address of the memory it wrote to, in order."""
        self._looks: list[_Look] = []
        self._sums = Sums()

    def written(self, launch: int | None, buffers: Sequence[tuple[str, Any]]) -> None:
        """Remember what buffers hold, each with its tensor, that a launch has written, or that the call got (None)."""
        sums = self._sums.of([tensor for _, tensor in buffers])
        for (buffer, tensor), found in zip(buffers, sums, strict=True):
            self._known[buffer] = Contents(launch, _form(tensor), found)

    def wrote_to(self, tensor: Any, launch: int) -> None:
        self._writes.append((launch, tensor.untyped_storage().data_ptr()))

    def look(self, launch: int | None, read: Sequence[tuple[str, str, Any]]) -> None:
        """Remember what buffers hold that a launch is about to read, or that the call returns (None).

        Each has its variable, its name and its tensor.
        """
        looked = [
            (*one, before) for one in read if (before := self._known.get(one[1])) is None or _is_like(before, one[2])
        ]
        sums = self._sums.of([tensor for _, _, tensor, _ in looked])
        for (variable, buffer, tensor, before), found in zip(looked, sums, strict=True):
            if before is None:
                self._known[buffer] = Contents(None, _form(tensor), found)
                continue
            address = tensor.untyped_storage().data_ptr()
            self._looks.append(_Look(launch, variable, buffer, before, found, address, len(self._writes)))

    def changes(self) -> Iterator[tuple[int | None, Change]]:
        """Yield the changed buffers with the launches that read them (None for results), and forget the rest.

        Two buffers in one memory may both change: what overwrote the first one is then left out, as it has one cause.
        """
        overwriting: set[tuple[int, int | None]] = set()
        looks, self._looks = self._looks, []
        equal = _are_equal([one.before.sum for one in looks], [one.sum for one in looks])
        for one, is_equal in zip(looks, equal, strict=True):
            if not is_equal and (one.address, one.before.launch) not in overwriting:
                since = -1 if one.before.launch is None else one.before.launch
                writers = [
                    launch for launch, where in self._writes[: one.writes] if where == one.address and launch > since
                ]
                change = Change(
                    one.variable, one.buffer, one.before.launch, writers[-1] if writers else None, one.launch is None
                )
                overwriting.update((one.address, writer) for writer in writers)
                yield one.launch, change

    def writers_to(self, tensor: Any) -> set[int]:
        """Return the launches that wrote to the memory of a tensor."""
        address = tensor.untyped_storage().data_ptr()
        return {launch for launch, where in self._writes if where == address}

    def writer(self, buffer: str) -> int | None:
        """Return the launch that wrote a buffer, or None for an input."""
        known = self._known.get(buffer)
        return known.launch if known is not None else None

    def is_unchanged(self, buffer: str, tensor: Any) -> bool:
        before = self._known.get(buffer)
        return before is None or not _is_like(before, tensor) or bool(before.sum == self._sums.of([tensor])[0])


def _is_like(before: Contents, tensor: Any) -> bool:
    return before.form == _form(tensor)


def _form(tensor: Any) -> tuple[object, ...]:
    return tensor.dtype, tensor.numel(), tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def _are_equal(before: Sequence[Any], after: Sequence[Any]) -> list[bool]:
    """Return which sums are equal; those of one device are compared at once."""
    import torch

    found = [True] * len(before)
    devices = {one.device for one in before}
    for device in devices:
        places = [n for n, one in enumerate(before) if one.device == device and after[n].device == device]
        if places:
            same = torch.stack([before[n] for n in places]) == torch.stack([after[n] for n in places])
            for n, is_same in zip(places, same.tolist(), strict=True):
                found[n] = is_same
    return found
