"""A CUDA driver without a device: streams run what was submitted to them when the test says so."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any


class FakeDriver:
    """What `stepscope.tracer.runtime.device.marks` calls. Memory is the host's own."""

    def __init__(self, *, can_share_files: bool = True) -> None:
        self.can_share_files = can_share_files
        self.capturing: list[tuple[int, int]] | None = None
        """Marks (address, value) of the CUDA graph that is being captured."""
        self.queue: deque[tuple[int, int]] = deque()
        self.is_held = False
        self.error = 0
        self._pinned: list[Any] = []
        self._trial: list[tuple[int, int]] = []

    def run(self, most: int = 1 << 30) -> None:
        """Let the device go on, by so many marks."""
        while self.queue and most:
            address, value = self.queue.popleft()
            ctypes.c_uint64.from_address(address).value = value
            most -= 1

    def replay(self, graph: list[tuple[int, int]]) -> None:
        self.queue.extend(graph)
        if not self.is_held:
            self.run()

    def cuStreamWriteValue64(self, stream: int, address: int, value: int, flags: int) -> int:
        if self.error:
            return self.error
        if self.capturing is not None:
            self.capturing.append((address, value))
        else:
            self.replay([(address, value)])
        return 0

    def cuMemHostRegister_v2(self, address: Any, size: int, flags: int) -> int:
        return 0 if self.can_share_files else 801

    def cuMemHostAlloc(self, address: Any, size: int, flags: int) -> int:
        self._pinned.append(ctypes.create_string_buffer(size))
        address._obj.value = ctypes.addressof(self._pinned[-1])
        return 0

    def cuMemHostGetDevicePointer_v2(self, device: Any, host: Any, flags: int) -> int:
        device._obj.value = host.value
        return 0

    def cuStreamCreate(self, stream: Any, flags: int) -> int:
        stream._obj.value = 99
        return 0

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:
        self.capturing = []
        return 0

    def cuMemsetD32Async(self, address: int, value: int, count: int, stream: int) -> int:
        assert self.capturing is not None
        self.capturing.append((address, value))
        return 0

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:
        self._trial, self.capturing = self.capturing or [], None
        graph._obj.value = 98
        return 0

    def cuGraphInstantiateWithFlags(self, instance: Any, graph: Any, flags: int) -> int:
        return 0

    def cuGraphLaunch(self, instance: Any, stream: Any) -> int:
        self.replay(self._trial)
        return 0

    def cuStreamSynchronize(self, stream: Any) -> int:
        return 0

    def cuGraphDestroy(self, graph: Any) -> int:
        return 0

    def cuStreamDestroy_v2(self, stream: Any) -> int:
        return 0

    def cuStreamQuery(self, stream: Any) -> int:
        return self.error

    def cuGetErrorName(self, code: int, name: Any) -> int:
        name._obj.value = b"CUDA_ERROR_ILLEGAL_ADDRESS"
        return 0

    def cuGetErrorString(self, code: int, text: Any) -> int:
        text._obj.value = b"an illegal memory access was encountered"
        return 0
