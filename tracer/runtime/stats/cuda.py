"""Computes statistics of CUDA tensors, up to 64 per launch; the results arrive with the arena's next flush."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.tracer.inductor.device_launch import Launcher, capturing_of
from stepscope.tracer.runtime.stats import cuda_rows
from stepscope.tracer.runtime.stats.arena import EAGER_ROWS, Arena, arena_of, arenas
from stepscope.tracer.runtime.stats.cuda_quick import Point, make_point
from stepscope.tracer.runtime.stats.dtypes import name_of
from stepscope.tracer.runtime.stats.snapshots import ReadBlock, SkippedBlock

if TYPE_CHECKING:
    from torch import Tensor

SIZES = 1, 4, 16, 64
"""Numbers of tensors that the kernels take."""
PROGRAMS_PER_MULTIPROCESSOR = 4
"""Number of programs that run at the same time on a multiprocessor."""
MOST_REGISTERS = 64
"""Maximum registers per thread, so that four programs fit on a multiprocessor and saturate the bandwidth."""
NOT_LOADED = "its kernel was not loaded before the capture of the CUDA graph"
FREED = "its memory has been freed"

_launchers: dict[tuple[int, int, bool], Launcher] = {}


class _Group(NamedTuple):
    """Tensors of one launch."""

    first: int
    size: int
    takes: int
    has_views: bool
    programs: int
    table: list[int]
    """`cuda_rows.view_table` of each tensor; empty if all are contiguous."""
    rest: tuple[int, ...]
    """Arguments of the kernel after the addresses."""


def unreadable(tensor: Tensor) -> str | None:
    """Return why `CudaReader` cannot read a tensor, or None if it can."""
    if name_of(tensor.dtype) not in cuda_rows.KINDS:
        return f"{name_of(tensor.dtype)}: not read on CUDA"
    if cuda_rows.view_table(tensor.shape, tensor.stride(), tensor.itemsize) is None:
        return f"more than {cuda_rows.DIMENSIONS} dimensions that are not contiguous"
    return None


class CudaReader:
    """Reads tensors of one device, with the same dtype, size and stride each time. Keeps no tensor."""

    def __init__(self, tensors: Sequence[Tensor], most_bytes: int | None = None) -> None:
        """Create a reader; `unreadable` tensors are not read. Raises ValueError for more than `EAGER_ROWS` tensors."""
        if len(tensors) > EAGER_ROWS:
            raise ValueError(f"more than {EAGER_ROWS} tensors")
        import torch

        self.looked_at: list[int] = []
        self._device = tensors[0].device.index
        self._has_many_devices = torch.cuda.device_count() > 1
        self._arena: Arena | None = None
        self._is_capturing: Callable[[], bool] = capturing_of()
        self._launchers: list[Launcher] = []
        self._addresses: list[int] = []
        most = torch.cuda.get_device_properties(self._device).multi_processor_count * PROGRAMS_PER_MULTIPROCESSOR
        self._groups = [
            self._group(tensors[first : first + SIZES[-1]], first, most_bytes, most)
            for first in range(0, len(tensors), SIZES[-1])
        ]
        self._only: tuple[Arena, Launcher, int, int, tuple[Any, ...]] | None = None
        """Arguments of the launch if one launch on the only device is enough, else None."""
        self._quick: Point | None = None
        self._load()

    def __call__(self, tensors: Sequence[Tensor]) -> ReadBlock:
        """Start the reading on the current stream."""
        found = None if self._quick is None else self._quick(tensors)
        return self._read(tensors) if found is None else found[1]

    def point(self, group: object) -> Point | None:
        """Return what reads in compiled code, and returns `group` with the block; None if only Python can."""
        return self._point(group, self._read)

    def _point(self, group: object, reader: Callable[[Sequence[Tensor]], ReadBlock] | None) -> Point | None:
        if self._only is None:
            return None
        arena, launcher, programs, table, _ = self._only
        only = self._groups[0]
        return make_point(
            group, reader, arena.device, arena.open_rows, launcher.loaded, programs=programs, counts=self.looked_at,
            takes=only.takes, table=table, rest=only.rest[only.takes - only.size :],
        )  # fmt: skip

    def _read(self, tensors: Sequence[Tensor]) -> ReadBlock:
        only = self._only
        if only is None:
            return self._read_groups(tensors)
        addresses = [t.data_ptr() for t in tensors]
        if 0 in addresses and self._is_freed(addresses):
            return SkippedBlock(len(self.looked_at), FREED)
        arena, launcher, programs, table, rest = only
        return arena.read_one(launcher, programs, len(addresses), table, addresses, rest)

    def _read_groups(self, tensors: Sequence[Tensor]) -> ReadBlock:
        """Read with more than one launch, on one of several devices, or before the kernels are loaded."""
        arena = self._arena or self._load()
        if arena is None:
            return SkippedBlock(len(self.looked_at), NOT_LOADED)
        if self._has_many_devices:
            import torch

            with torch.cuda.device(self._device):
                return self._start(arena, tensors)
        return self._start(arena, tensors)

    def _is_freed(self, addresses: Sequence[int]) -> bool:
        return any(not at and count for at, count in zip(addresses, self.looked_at, strict=True))

    def _start(self, arena: Arena, tensors: Sequence[Tensor]) -> ReadBlock:
        addresses = [t.data_ptr() for t in tensors]
        if self._is_freed(addresses):
            return SkippedBlock(len(self.looked_at), FREED)
        launches = []
        for launcher, group, table in zip(self._launchers, self._groups, self._addresses, strict=True):
            if group.programs:
                chosen = addresses[group.first : group.first + group.size]
                arguments = (table, *chosen, *group.rest, *launcher.tail)
                launches.append((launcher, group.programs, group.first, arguments))
        return arena.read(launches, len(self.looked_at))

    def _group(self, tensors: Sequence[Tensor], first: int, most_bytes: int | None, most: int) -> _Group:
        numels = [tensor.numel() if unreadable(tensor) is None else 0 for tensor in tensors]
        kinds = [cuda_rows.KINDS.get(name_of(tensor.dtype), (0, 1)) for tensor in tensors]
        steps = [cuda_rows.sample_step(n, size, most_bytes) for n, (_, size) in zip(numels, kinds, strict=True)]
        units = list(map(cuda_rows.units_to_read, numels, [size for _, size in kinds], steps))
        per = cuda_rows.units_per_program(units, most)
        plans: list[int] = []
        tables: list[list[int]] = []
        start = 0
        for tensor, numel, (kind, size), step, read in zip(tensors, numels, kinds, steps, units, strict=True):
            form, table = cuda_rows.view_table(tensor.shape, tensor.stride(), size) or (0, [])
            plans.append(cuda_rows.plan(kind, size, form, start, per, step))
            tables.append(table or [0] * cuda_rows.TABLE_WORDS)
            self.looked_at.append(read * cuda_rows.UNIT // size if step > 1 else numel)
            start += cuda_rows.programs(numel, read, per)
        has_views = any(any(table) for table in tables)
        takes = next(n for n in SIZES if n >= len(tensors))
        padding = takes - len(tensors)
        numels += [0] * padding
        plans += [cuda_rows.plan(0, 1, 0, 0x7FFFFF, 1, 1)] * padding
        table = [number for table in tables for number in table] if has_views else []
        return _Group(first, len(tensors), takes, has_views, start, table, (*[0] * padding, *numels, *plans))

    def _is_loaded(self) -> bool:
        known = {arena.device: arena for arena in arenas()}.get(self._device)
        needed = [len(group.table) for group in self._groups if group.has_views]
        return (
            known is not None
            and known.tables.has_room(sum(needed))
            and all((self._device, group.takes, group.has_views) in _launchers for group in self._groups)
        )

    def _load(self) -> Arena | None:
        """Compile and load the kernels; return None if they are not loaded during a capture, which that would end."""
        if self._is_capturing() and not self._is_loaded():
            return None
        arena = arena_of(self._device)
        self._launchers = [_launcher(self._device, group.takes, group.has_views) for group in self._groups]
        self._addresses = [arena.tables.address(group.table) if group.has_views else 0 for group in self._groups]
        if len(self._groups) == 1 and self._groups[0].programs and not self._has_many_devices:
            only, launcher = self._groups[0], self._launchers[0]
            self._only = arena, launcher, only.programs, self._addresses[0], (*only.rest, *launcher.tail)
            self._quick = self._point(None, None)
        self._arena = arena
        return arena


def preload(device: int) -> None:
    """Compile and load all kernels; they cannot be loaded during a capture."""
    arena_of(device)
    for takes in SIZES:
        for has_views in (False, True):
            _launcher(device, takes, has_views)


def _launcher(device: int, takes: int, has_views: bool) -> Launcher:
    key = device, takes, has_views
    if key not in _launchers:
        import torch

        from stepscope.tracer.runtime.stats import cuda_entries

        constants = {"VIEWS": has_views, "PACKED": torch.cuda.get_device_capability(device) >= (9, 0)}
        with torch.cuda.device(device):
            _launchers[key] = Launcher(
                getattr(cuda_entries, f"read{takes}"), constants, num_warps=cuda_rows.WARPS, maxnreg=MOST_REGISTERS
            )
    return _launchers[key]
