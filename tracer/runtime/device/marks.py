"""Lets a CUDA device write marks into the launch ring, in the order of its streams, that show what it has finished.

After every few launches and at the end of each call a mark is enqueued (``cuStreamWriteValue64``, 3 to 10 us on the
host and 2 us on an H200); nothing waits for it. Marks take at most 0.25 % of the host's time: any more are skipped,
and the next mark covers them. Inside a CUDA graph marks are nodes of the graph (``cuStreamWriteValue64``, else
``cuMemsetD32Async``), fewer of them, and each replay writes them again.

If the pages of the ring's file cannot be shared with the device (on most disk file systems), marks are written to
pinned memory and copied into the file whenever the host enqueues one; they are then a little late.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

from stepscope.tracer.inductor.device_launch import raw_stream_of
from stepscope.tracer.log.launch_ring import CallInRing, LaunchRing, is_blocking
from stepscope.tracer.schema.ring_format import (
    HEADER_WORDS,
    MARK_WORDS,
    MOST_STREAMS,
    POSITION_BITS,
    STREAMS_AT,
    WORD,
    RingHeader,
)


class Flag(Protocol):
    """Enqueues a mark on a stream, after some launches of a call and at its end."""

    due: Sequence[int]
    """Earliest time of the next call after a launch, in ns; it does not apply at the end of a call."""

    def __call__(self, call: CallInRing) -> None: ...


_PORTABLE_AND_MAPPED = 3
_NO_ERRORS = 0, 600, 3, 4, 201, 400, 709
"""Results of a query that do not show a failed device: success, not ready, and a driver, context or stream that does
not exist (any more)."""
_DEFAULT = 0
"""Handle of the current device's default stream."""
_RELAXED_CAPTURE = 2
_NON_BLOCKING_STREAM = 1
_AUTO_FREE_ON_LAUNCH = 1
"""Flag with which torch instantiates its graphs."""
_MARK_BYTES = MARK_WORDS * WORD
SHARE = 400
"""Ratio of the host's time to the time of marks, at least."""
SAVED_NS = 1_000_000_000
"""Maximum idle time that marks may catch up on, so that short programs and first calls after a compile get many."""
GRAPH_FLAGS = 4
"""Number of flags per mark inside a CUDA graph, where each mark takes time of the device."""


class _NoMarks(Exception):
    """Raised if the driver cannot write marks."""


class DeviceMarks:
    """The marks of this process. Never raises; calls `say` once with the reason if there are none."""

    def __init__(self, ring: LaunchRing, say: Callable[[str], None]) -> None:
        self._ring, self._say = ring, say
        self._driver: Any = None
        self._is_off = False
        self._write_in_graph: Callable[[int, int, int], int] | None = None
        """Function that adds a write of (stream, address, value) to a CUDA graph; None if that is not possible."""
        self._address = 0
        self._copied_from: memoryview | None = None
        """Memory that the device writes to; None if that is the ring itself."""
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._slots = iter(range(MARK_WORDS - MOST_STREAMS - 1))  # the last word is for the trial
        self._free_slots: list[int] = []
        self._lock = threading.RLock()  # a signal handler may run a graph meanwhile
        self._raw_stream: Callable[[int], int] | None = None
        """Function that returns the current stream of a device; None until the driver is set up."""
        self._is_blocking = is_blocking()
        self.due = [0]
        """Time from which the next mark may be enqueued, in ns."""

    def begin(self, call: CallInRing, device: int | None) -> Flag | None:
        """Return the function to call after some launches of `call` and at its end, or None if it gets no marks."""
        if self._is_off or call.block is None or device is None:
            return None
        if call.state == "captured":
            return self._in_graph(call, device)
        stream = self.stream(device)
        if stream is not None:
            call.stream = stream.index
        return stream

    def stream(self, device: int) -> _Stream | None:
        """Return the current stream of a device, which must not be capturing; None if it cannot be marked."""
        if self._is_off or (self._raw_stream is None and not self._begin()):
            return None
        assert self._raw_stream is not None
        handle = self._raw_stream(device)
        return self._streams.get((device, handle)) or self._new_stream(device, handle)

    def give_back(self, slots: Iterable[int]) -> None:
        """Release the slots of CUDA graphs that are gone."""
        self._free_slots += [slot for slot in slots if slot >= 0]

    def device_error(self) -> str | None:
        """Return the error of a device with marked streams, or None; does not wait."""
        for _, handle in self._streams:
            code = self._driver.cuStreamQuery(ctypes.c_void_p(handle))
            if code not in _NO_ERRORS:
                self.copy()
                return self._text(code)
        return None

    def copy(self) -> None:
        """Copy the marks into the file if the device does not write them there itself."""
        if self._copied_from is not None and self._ring.header is not None:
            for index in range(len(self._streams)):
                self._ring.header[HEADER_WORDS + index] = self._copied_from[index]
            first, used = HEADER_WORDS + MOST_STREAMS, self._ring.header[RingHeader.GRAPH_SLOTS]
            self._ring.header[first : first + used] = self._copied_from[MOST_STREAMS : MOST_STREAMS + used]

    def forget(self) -> None:
        """Stop marking: in a forked child, which cannot use CUDA, or at the end."""
        self._is_off = True

    def write(self, stream: int, index: int, value: int) -> None:
        """Enqueue a mark on a stream."""
        if not self._is_off and self._driver.cuStreamWriteValue64(stream, self._address + WORD * index, value, 0):
            self._is_off = True  # the device has failed, which the program's next CUDA call reports

    def capture(self, stream: int, slot: int, value: int) -> None:
        """Add a mark to the CUDA graph that a stream captures."""
        if self._write_in_graph is not None:
            self._write_in_graph(stream, self._address + WORD * (MOST_STREAMS + slot), value)

    def send(self, device: int, stream: int, index: int, value: int) -> None:
        """Enqueue a mark if one is due."""
        began = perf_counter_ns()
        if began < self.due[0] or (stream == _DEFAULT and not _is_current(device)):
            return
        self.write(stream, index, value)
        if self._copied_from is not None:
            self.copy()
        if not self._is_blocking:
            ended = perf_counter_ns()
            self.due[0] = max(self.due[0], ended - SAVED_NS) + (ended - began) * SHARE

    def _new_stream(self, device: int, handle: int) -> _Stream | None:
        with self._lock:
            index, header = len(self._streams), self._ring.header
            if (device, handle) not in self._streams and (index == MOST_STREAMS or header is None):
                return None
            if (device, handle) not in self._streams:
                assert header is not None
                header[STREAMS_AT + 2 * index], header[STREAMS_AT + 2 * index + 1] = device, handle
                header[RingHeader.STREAMS] = index + 1
                self._streams[device, handle] = _Stream(self, device, handle, index)
            return self._streams[device, handle]

    def _in_graph(self, call: CallInRing, device: int) -> Flag | None:
        if self._write_in_graph is None or self._raw_stream is None:
            return None
        slot = self._free_slots.pop() if self._free_slots else next(self._slots, None)
        if slot is None or self._ring.header is None:
            return None
        self._ring.header[RingHeader.GRAPH_SLOTS] = max(self._ring.header[RingHeader.GRAPH_SLOTS], slot + 1)
        self._ring.header[HEADER_WORDS + MOST_STREAMS + slot] = 0  # its last value is that of a graph that is gone
        if self._copied_from is not None:
            self._copied_from[MOST_STREAMS + slot] = 0
        call.graph_slot = slot
        flag = GraphSlot(self, self._raw_stream(device), device, slot)
        flag(call)
        return flag

    def _begin(self) -> bool:
        with self._lock:
            if self._raw_stream is None and not self._is_off:
                try:
                    self._driver = _load()
                    self._share()
                    self._write_in_graph = self._try_in_graph()
                    if self._write_in_graph is None:
                        self._say("this driver does not support marks inside CUDA graphs")
                    self._raw_stream = raw_stream_of()
                except (OSError, AttributeError, _NoMarks) as error:
                    self._is_off = True
                    self._say(f"{error}")
            return not self._is_off

    def _share(self) -> None:
        """Map the marks of the ring, or else pinned memory, for the device."""
        host, driver = self._ring.marks_address, self._driver
        if not host or driver.cuMemHostRegister_v2(ctypes.c_void_p(host), _MARK_BYTES, _PORTABLE_AND_MAPPED):
            pinned = ctypes.c_void_p()
            self._check(driver.cuMemHostAlloc(ctypes.byref(pinned), _MARK_BYTES, _PORTABLE_AND_MAPPED))
            assert pinned.value is not None
            host = pinned.value
            memory = (ctypes.c_char * _MARK_BYTES).from_address(host)
            self._copied_from = memoryview(memory).cast("B").cast("q")
            self._copied_from[:] = memoryview(bytes(_MARK_BYTES)).cast("q")
        else:
            self._ring.keep_memory()
        address = ctypes.c_uint64()
        self._check(driver.cuMemHostGetDevicePointer_v2(ctypes.byref(address), ctypes.c_void_p(host), 0))
        self._address = address.value

    def _try_in_graph(self) -> Callable[[int, int, int], int] | None:
        """Return a function that adds a mark to a CUDA graph, after trying it with a graph of our own, or None."""
        driver = self._driver
        ways: list[Callable[[int, int, int], int]] = [
            lambda stream, address, value: driver.cuStreamWriteValue64(stream, address, value, 0),
            lambda stream, address, value: driver.cuMemsetD32Async(address, value, 1, stream),
        ]
        for number, way in enumerate(ways, 1):
            if self._works_in_graph(way, number):
                return way
        return None

    def _works_in_graph(self, way: Callable[[int, int, int], int], value: int) -> bool:
        driver, last = self._driver, MARK_WORDS - 1
        stream, graph, instance = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self._check(driver.cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING_STREAM))
        try:
            self._check(driver.cuStreamBeginCapture_v2(stream, _RELAXED_CAPTURE))
            assert stream.value is not None
            failed = way(stream.value, self._address + WORD * last, value)
            if driver.cuStreamEndCapture(stream, ctypes.byref(graph)) or failed or not graph.value:
                return False
            if driver.cuGraphInstantiateWithFlags(ctypes.byref(instance), graph, _AUTO_FREE_ON_LAUNCH):
                return False
            if driver.cuGraphLaunch(instance, stream) or driver.cuStreamSynchronize(stream):
                return False
            assert self._ring.header is not None
            found = self._copied_from[last] if self._copied_from is not None else self._ring.header[HEADER_WORDS + last]
            return found == value
        finally:
            if instance.value:
                driver.cuGraphExecDestroy(instance)
            if graph.value:
                driver.cuGraphDestroy(graph)
            driver.cuStreamDestroy_v2(stream)

    def _check(self, code: int) -> None:
        if code:
            raise _NoMarks(self._text(code))

    def _text(self, code: int) -> str:
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self._driver.cuGetErrorName(code, ctypes.byref(name))
        self._driver.cuGetErrorString(code, ctypes.byref(text))
        return f"{(name.value or b'error').decode()} ({(text.value or str(code).encode()).decode()})"


class _Stream:
    """The marks of one stream, which contain a call's number and a position in it."""

    __slots__ = ("_device", "_handle", "_marks", "due", "index")

    def __init__(self, marks: DeviceMarks, device: int, handle: int, index: int) -> None:
        self._marks, self._device, self._handle, self.index = marks, device, handle, index
        self.due: Sequence[int] = marks.due

    def __call__(self, call: CallInRing) -> None:
        value = call.number << POSITION_BITS | (len(call.rows) + 1) // 3
        self._marks.send(self._device, self._handle, self.index, value)


class GraphSlot:
    """The marks of one captured call in a CUDA graph, which contain a position in the call."""

    __slots__ = ("_every", "_flags", "_handle", "_marks", "device", "due", "slot")

    def __init__(self, marks: DeviceMarks, handle: int, device: int, slot: int) -> None:
        self._marks, self._handle, self.device, self.slot = marks, handle, device, slot
        self._flags, self._every = 0, 1 if is_blocking() else GRAPH_FLAGS
        self.due: Sequence[int] = (0,)

    def __call__(self, call: CallInRing) -> None:
        self._flags += 1
        if (self._flags - 1) % self._every and not call.end_ns:
            return
        self._marks.capture(self._handle, self.slot, 1 << POSITION_BITS | (len(call.rows) + 1) // 3)


def _is_current(device: int) -> bool:
    import torch

    try:
        return torch.cuda.current_device() == device
    except Exception:  # it has failed, which the program's next CUDA call reports
        return False


def _load() -> Any:
    """Return the CUDA driver's library. Raises OSError or AttributeError if it or a function is missing."""
    driver: Any = ctypes.CDLL("libcuda.so.1")
    write = getattr(driver, "cuStreamWriteValue64_v2", None) or driver.cuStreamWriteValue64
    write.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint]
    driver.cuStreamWriteValue64 = write
    driver.cuMemHostRegister_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    driver.cuMemHostAlloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    driver.cuMemHostGetDevicePointer_v2.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
    driver.cuStreamBeginCapture_v2.argtypes = [ctypes.c_void_p, ctypes.c_int]
    driver.cuMemsetD32Async.argtypes = [ctypes.c_uint64, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p]
    driver.cuGraphInstantiateWithFlags.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulonglong]
    return driver
