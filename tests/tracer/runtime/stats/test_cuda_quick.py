"""The compiled code that starts readings on CUDA hands the driver what Python would, and leaves the rest to Python.

A driver and tensors of its own stand in for CUDA's: the test needs no device.
"""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stepscope.tracer.inductor.device_launch import Loaded
from stepscope.tracer.runtime import compiled
from stepscope.tracer.runtime.stats import cuda_quick
from stepscope.tracer.runtime.stats.snapshots import DeviceBlock

BASE, ROW_BYTES, ROWS = 1 << 20, 152, 40
LOADED = Loaded(function=0x77, shared_bytes=512, threads=128)
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)  # fmt: skip
_CAPTURING = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))


class Driver:
    """A driver that notes what it is asked to start, whose stream and answers a test sets."""

    def __init__(self) -> None:
        self.stream, self.error, self.capture = 5, 0, 0
        self.words = 8
        self.started: list[tuple[Any, ...]] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.launch, self.capturing = _LAUNCH(self._launch), _CAPTURING(self._capturing)

    def _launch(self, *arguments: Any) -> int:
        parameters = arguments[9]
        words = [ctypes.c_int64.from_address(parameters[i]).value for i in range(self.words)]
        self.started.append((*arguments[:9], words))
        self.meanwhile()
        return self.error

    def _capturing(self, _stream: int, status: Any) -> int:
        status[0] = self.capture
        return 0


class Tensor:
    """What has an address."""

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


class World:
    """A point of two tensors with a kernel for four, the rows of its arena, and the readings that Python did."""

    def __init__(self, library: Any, driver: Driver) -> None:
        self.driver = driver
        self.open_rows = library.OpenRows(BASE, ROW_BYTES, ROWS)
        self.loaded: Loaded | None = LOADED
        self.by_python: list[list[int]] = []
        self.rest = [0, 0, 30, 0, 11, 12, 13, 14]
        driver.words = 2 + 4 + len(self.rest) + 2

    def __call__(self, tensors: Sequence[Tensor]) -> str:
        self.by_python.append([tensor.address for tensor in tensors])
        return "by Python"

    def point(self, *, has_reader: bool = True) -> Any:
        return cuda_quick.make_point(
            "group", self if has_reader else None, 0, self.open_rows, self.loaded, programs=9, counts=[30, 0],
            takes=4, table=1234, rest=self.rest,
        )  # fmt: skip


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def world(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> World:
    def set_up(library: Any) -> None:
        addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in (driver.launch, driver.capturing)]
        library.set_up(*addresses, lambda device: driver.stream + device, DeviceBlock)

    monkeypatch.setattr(compiled, "_found", {})
    monkeypatch.setattr(cuda_quick, "_set_up", set_up)
    return World(compiled.load("stepscope_cuda_readings", cuda_quick.SOURCE, set_up), driver)


def test_the_driver_gets_the_arguments_of_the_kernel(world: World, driver: Driver) -> None:
    point, snapshot = world.point(), object()
    world.open_rows.open(5, 7, snapshot)
    group, block = point((Tensor(0x100), Tensor(0x200)))
    words = [BASE + 7 * ROW_BYTES, 1234, 0x100, 0x200, 0, 0, *world.rest, 0, 0]
    assert driver.started == [(0x77, 9, 1, 1, 128, 1, 1, 512, 5, words)]
    assert group == "group"
    assert (block._snapshot, block._first, block._end) == (snapshot, 7, 9)
    assert not world.by_python
    assert world.open_rows.close() == 9


def test_readings_take_consecutive_rows_until_none_are_left(world: World, driver: Driver) -> None:
    point = world.point()
    world.open_rows.open(5, ROWS - 5, object())
    blocks = [point([Tensor(1), Tensor(2)])[1] for _ in range(3)]
    assert [(block._first, block._end) for block in blocks[:2]] == [(35, 37), (37, 39)]
    assert blocks[2] == "by Python"
    assert len(driver.started) == 2
    assert world.open_rows.close() == 39


@pytest.mark.parametrize("what", ["closed", "other stream", "capture", "driver's error", "freed"])
def test_python_reads_where_the_rows_cannot_be_used(world: World, driver: Driver, what: str) -> None:
    point, addresses = world.point(), [0x100, 0]
    world.open_rows.open(6 if what == "other stream" else 5, 0, object())
    if what == "closed":
        assert world.open_rows.close() == 0
        assert world.open_rows.close() == -1
    driver.capture = int(what == "capture")
    driver.error = 700 if what == "driver's error" else 0
    if what == "freed":
        addresses[0] = 0
    assert point([Tensor(address) for address in addresses]) == ("group", "by Python")
    assert world.by_python == [addresses]
    assert len(driver.started) == (what == "driver's error")


def test_a_point_without_a_reader_says_that_python_must_read(world: World) -> None:
    point = world.point(has_reader=False)
    assert point([Tensor(1), Tensor(2)]) is None
    world.open_rows.open(5, 0, object())
    assert point([Tensor(1), Tensor(2)]) is not None


def test_rows_that_nothing_else_refers_to_are_let_go(world: World) -> None:
    class Arena:
        """What a snapshot refers to."""

    arena: Any = Arena()
    arena.rows, world.open_rows = world.open_rows, None
    arena.rows.open(5, 0, arena)
    gone = weakref.ref(arena)
    del arena
    gc.collect()
    assert gone() is None


def test_a_tensor_without_elements_needs_no_memory(world: World, driver: Driver) -> None:
    world.open_rows.open(5, 0, object())
    assert world.point()([Tensor(0x100), Tensor(0)])[1]._end == 2
    assert len(driver.started) == 1


def test_rows_are_closed_only_when_the_kernel_was_started(world: World, driver: Driver) -> None:
    events: list[str] = []
    started, closing = threading.Event(), threading.Event()

    def close() -> None:
        started.wait(10)
        closing.set()
        world.open_rows.close()
        events.append("closed")

    def meanwhile() -> None:
        started.set()
        closing.wait(10)
        events.append("started")

    driver.meanwhile = meanwhile
    world.open_rows.open(5, 0, object())
    thread = threading.Thread(target=close)
    thread.start()
    world.point()([Tensor(1), Tensor(2)])
    thread.join()
    assert events == ["started", "closed"]


def test_wrong_tensors_are_an_error(world: World) -> None:
    point = world.point()
    world.open_rows.open(5, 0, object())
    with pytest.raises(ValueError, match="not 2 tensors"):
        point([Tensor(1)])
    with pytest.raises(AttributeError, match="data_ptr"):
        point([Tensor(1), None])
    with pytest.raises(TypeError, match="sequence"):
        point(None)
    assert world.open_rows.close() == 0


def test_a_kernel_that_needs_more_is_left_to_triton(world: World) -> None:
    world.loaded = None
    assert world.point() is None


def test_without_a_driver_python_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver(_library: Any) -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(compiled, "_found", {})
    monkeypatch.setattr(cuda_quick, "_set_up", no_driver)
    assert cuda_quick.open_rows(BASE, ROW_BYTES, ROWS) is None
