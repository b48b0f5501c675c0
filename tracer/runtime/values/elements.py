"""Reads all elements of small tensors: copies their bytes with the statistics, and decodes them when written."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import torch
from torch import Tensor

from stepscope.tracer.inductor.stats_toolchain import plain_torch, without_torch_function
from stepscope.tracer.runtime.stats import Part, Reader, StatsBlock
from stepscope.tracer.runtime.stats.dtypes import KINDS

Element = float | int | bool | str
"""One element; a string for the numbers that JSON does not have: ``nan``, ``inf``, ``-inf``."""


class _Form(NamedTuple):
    """The layout of one tensor in memory."""

    row: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Strides in bytes."""
    itemsize: int
    span: int
    """Bytes from the first element to the end of the last."""
    dtype: torch.dtype
    device: torch.device


class ElementReader:
    """Reads statistics with `reader`, and copies all elements of tensors with at most `most` elements."""

    def __init__(self, reader: Reader, parts: Sequence[Part], most: int) -> None:
        self.looked_at = reader.looked_at
        self._reader = reader
        tensors = [part.tensor for part in parts if part.tensor is not None]
        self._forms = [
            _form(row, tensor)
            for row, tensor in enumerate(tensors)
            if 0 < tensor.numel() <= most and KINDS[tensor.dtype].values == 1
        ]
        self._devices = {form.device for form in self._forms if form.device.type == "cuda"}

    def __call__(self, tensors: Sequence[Tensor]) -> StatsBlock:
        if not self._forms or (self._devices and torch.cuda.is_current_stream_capturing()):
            return self._reader(tensors)  # replays would overwrite each other's elements
        taken: list[tuple[_Form, Callable[[], bytes]]] = []
        with without_torch_function():
            for form in self._forms:
                take = _on_device if form.device.type == "cuda" else _in_memory
                data = take(form, tensors[form.row])
                if data is not None:
                    taken.append((form, data))
        make: Callable[[], Any] = torch.cuda.Event
        events = [make() for _ in self._devices]
        for event, device in zip(events, self._devices, strict=True):
            event.record(torch.cuda.current_stream(device))
        return WithElements(self._reader(tensors), taken, events)


class WithElements:
    """A block with the elements that were copied at the same time."""

    def __init__(
        self, block: StatsBlock, taken: Sequence[tuple[_Form, Callable[[], bytes]]], events: Sequence[Any] = ()
    ) -> None:
        """Create the block; `events` are done when the devices have copied the elements."""
        self.in_order = [block]
        """The blocks whose rows this block has."""
        self._block, self._taken, self._events = block, taken, events

    def rows(self) -> npt.NDArray[Any] | None:
        return self._block.rows()

    def wait(self) -> npt.NDArray[Any]:
        return self._block.wait()

    def elements(self) -> Iterator[tuple[int, list[Element]]]:
        """Yield (row, elements in row-major order); call it when the rows have arrived, so that it hardly waits."""
        for event in self._events:
            event.synchronize()
        for form, data in self._taken:
            yield form.row, _numbers(data(), form.dtype)


def elements_of(block: StatsBlock) -> Iterator[tuple[int, list[Element]]]:
    """Yield the elements that were copied with a block as (row, elements in row-major order)."""
    told: Callable[[], Iterator[tuple[int, list[Element]]]] | None = getattr(block, "elements", None)
    return told() if told is not None else iter(())


def _form(row: int, tensor: Tensor) -> _Form:
    itemsize, shape = tensor.itemsize, tuple(tensor.shape)
    strides = tuple(stride * itemsize for stride in tensor.stride())
    span = itemsize + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return _Form(row, shape, strides, itemsize, span, tensor.dtype, tensor.device)


def _in_memory(form: _Form, tensor: Tensor) -> Callable[[], bytes] | None:
    """Copy the elements of a tensor on the CPU; return a function for the bytes, or None if its memory was freed."""
    address = tensor.data_ptr()
    if not address:
        return None
    memory = (ctypes.c_char * form.span).from_address(address)
    data = np.ndarray(form.shape, f"V{form.itemsize}", memoryview(memory), 0, form.strides).tobytes()
    return lambda: data


def _on_device(form: _Form, tensor: Tensor) -> Callable[[], bytes]:
    """Start copying the elements to the host without waiting; return a function for the bytes."""
    with plain_torch(), torch.inference_mode(False):
        host = torch.empty(form.shape, dtype=form.dtype, device="cpu", pin_memory=True)
        host.copy_(tensor.detach(), non_blocking=True)
        flat = host.reshape(-1).view(torch.uint8).numpy()
    return flat.tobytes


def _numbers(data: bytes, dtype: torch.dtype) -> list[Element]:
    """Return the elements; floats with the fewest digits that identify them in their dtype, or else in float32."""
    name = str(dtype).removeprefix("torch.")
    if name in np.sctypeDict:
        array = np.frombuffer(data, name)
    else:
        array = torch.frombuffer(bytearray(data), dtype=dtype).float().numpy()
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.dtype.kind != "f":
        return list(array.tolist())
    numbers = json.loads(orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY))
    return [number if number is not None else str(value) for number, value in zip(numbers, array.tolist(), strict=True)]
