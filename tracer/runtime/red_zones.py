"""Surrounds buffers that wrappers allocate with red zones, and finds the launches that write to these.

A buffer becomes the middle of a larger allocation whose first and last bytes are known. DLPack gives the middle a
storage of its own, so that its size and its offset are those that the program expects.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Literal, Protocol
from weakref import ref

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.schema.memory import RedZoneWrite
from stepscope.tracer.schema.record import Record

ZONE_BYTES = 4096
"""Size of each of the two red zones; a multiple of every alignment that kernels rely on."""
PATTERN = (0xFE, 0xFF)
"""Bytes of a red zone, which are NaN in bfloat16, float16, float32 and float64, so that reads show as well."""
DEVICES = ("cpu", "cuda")


class ZoneSink(Protocol):
    """The part of the recorder that is used here."""

    def write(self, record: Record) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


@dataclass
class _Guarded:
    """A buffer with red zones."""

    graph: int
    name: str
    storage: ref[Any]
    before: Any
    after: Any
    """Tensors of ZONE_BYTES bytes."""


class RedZones:
    """The red zones of a recording. Nothing here raises into the program."""

    def __init__(self, sink: ZoneSink) -> None:
        self._sink = sink
        self._guarded: dict[Any, list[_Guarded]] = {}
        """Guarded buffers by device."""
        self._patterns: dict[Any, Any] = {}
        self._told: set[tuple[Any, ...]] = set()
        self._lock = threading.RLock()

    def after_fork(self) -> None:
        """Replace the lock in a forked child, and forget the buffers of devices that the child cannot use."""
        self._lock = threading.RLock()
        self._guarded = {device: found for device, found in self._guarded.items() if device.type == "cpu"}

    def around(self, call: GraphCall, name: str, tensor: Any) -> Any:
        """Return a tensor with the sizes, strides, dtype and device of `tensor`, whose storage lies between red zones.

        It is `tensor` itself if that holds no bytes, is pinned or on another device, if the call is not recorded or is
        captured into a CUDA graph, or after an error.
        """
        started = perf_counter_ns()
        try:
            if not call.is_recorded or call.state == "captured" or tensor.device.type not in DEVICES:
                return tensor
            with without_modes(), self._lock:
                return self._around(call, name, tensor)
        except Exception as error:
            self._sink.failed("red zones", error)
            return tensor
        finally:
            call.cost_ns += perf_counter_ns() - started

    def _around(self, call: GraphCall, name: str, tensor: Any) -> Any:
        import torch

        size, device = tensor.untyped_storage().nbytes(), tensor.device
        if not size or (device.type == "cpu" and tensor.is_pinned()):
            return tensor
        whole = torch.empty(size + 2 * ZONE_BYTES, dtype=torch.uint8, device=device)
        before, middle, after = torch.split(whole, [ZONE_BYTES, size, ZONE_BYTES])
        storage = torch.utils.dlpack.from_dlpack(middle).untyped_storage()
        result = torch.empty(0, dtype=tensor.dtype, device=device)
        result.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
        guarded = _Guarded(call.graph, name, ref(storage), before, after)
        for zone in (before, after):
            zone.copy_(self._pattern(device))
        self._guarded.setdefault(device, []).append(guarded)
        return result

    def look(self, call: GraphCall, site: int) -> None:
        """Record the red zones that have changed, as the work of the launch that has just returned."""
        if not self._guarded or not call.is_recorded or call.state == "captured":
            return
        started = perf_counter_ns()
        try:
            with without_modes(), self._lock:
                for device in self._guarded:
                    self._look_at(device, call, site)
        except Exception as error:
            self._sink.failed("red zones", error)
            self._guarded.clear()
        call.cost_ns += perf_counter_ns() - started

    def _look_at(self, device: Any, call: GraphCall, site: int) -> None:
        import torch

        guarded, pattern = self._guarded[device], self._pattern(device)
        if not guarded:
            return
        zones = torch.stack([zone for one in guarded for zone in (one.before, one.after)])
        changed = (zones != pattern).any(1)
        if bool(changed.any()):
            for number in changed.nonzero().flatten().tolist():
                one, side = guarded[number // 2], number % 2
                self._tell(call, site, one, "after" if side else "before", zones[number] != pattern)
                (one.after if side else one.before).copy_(pattern)
        self._guarded[device] = [one for one in guarded if one.storage() is not None]

    def _tell(self, call: GraphCall, site: int, one: _Guarded, side: Literal["before", "after"], changed: Any) -> None:
        key = call.graph, site, one.graph, one.name, side
        if key not in self._told:
            self._told.add(key)
            found = changed.nonzero().flatten().tolist()
            distance = found[0] if side == "after" else ZONE_BYTES - 1 - found[-1]
            launch = len(call.rows) // 3 - 1
            place = call.graph, call.number, call.step, site, launch
            self._sink.write(RedZoneWrite(*place, one.graph, one.name, side, distance, len(found)))

    def _pattern(self, device: Any) -> Any:
        import torch

        if device not in self._patterns:
            self._patterns[device] = torch.tensor(PATTERN * (ZONE_BYTES // 2), dtype=torch.uint8, device=device)
        return self._patterns[device]
