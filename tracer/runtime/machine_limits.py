"""Measures what this machine can do at most, and keeps the figures for later recordings.

Memory is measured by a copy between two buffers that are larger than its caches: bytes read plus bytes written,
divided by the time of the fastest copy. Arithmetic is measured by a product of two square matrices of each dtype: two
operations for each multiplication with its addition, divided by the time of the fastest product. A recording never
measures; it only reads the figures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from stepscope.tracer.schema.machine import CPU, MEMORY

BUFFER_BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}
"""Size of each of the two buffers; no cache of a processor is as large."""
MATRIX_ROWS = {"cpu": (512, 2048), "cuda": (1024, 8192)}
"""Rows and columns of the matrices: of the first product, and of those that are measured."""
DTYPES = ("float32", "bfloat16", "float16")
ROUNDS = 10
_MOST_NS = 2_000_000_000
"""Time after which no further round of one measurement begins."""
_MOST_BYTES = 1 << 16

Figures = dict[str, dict[str, float]]


def figures_file() -> Path:
    """Return the file with the figures of all machines that share this folder of caches."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "stepscope", "machine_limits.json")


def known_limits(cpu: str | None) -> Figures:
    """Return the figures by device: ``cpu`` for a processor of this model and number of cores, and GPUs by name.

    What was not measured is missing; a file that cannot be read holds no figures."""
    stored = _stored()
    own = stored.get(_name_of(cpu))
    found = {name: figures for name, figures in stored.items() if not name.startswith("cpu ")}
    return found if own is None else {CPU: own, **found}


def measure(cpu: str | None) -> Figures:
    """Measure the CPU and each kind of GPU, keep the figures, and return them as `known_limits` does.

    Raises OSError if they cannot be kept, and RuntimeError if there is not enough memory."""
    import torch

    found = {_name_of(cpu): _figures(torch, "cpu", lambda: None)}
    for number in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(number)
        if name not in found:
            found[name] = _figures(torch, f"cuda:{number}", partial(torch.cuda.synchronize, number))
    file = figures_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    unfinished.write_bytes(orjson.dumps({**_stored(), **found}))
    os.replace(unfinished, file)
    return known_limits(cpu)


def _name_of(cpu: str | None) -> str:
    return f"cpu {cpu or 'unknown'}, {os.cpu_count()} cores"


def _stored() -> Figures:
    with suppress(OSError, RuntimeError, orjson.JSONDecodeError):  # no file, no home, or not what `measure` wrote
        with figures_file().open("rb") as file:
            read = orjson.loads(file.read(_MOST_BYTES))
        if isinstance(read, dict):
            return {name: _only_figures(figures) for name, figures in read.items() if isinstance(figures, dict)}
    return {}


def _only_figures(figures: dict[str, object]) -> dict[str, float]:
    return {
        what: float(figure)
        for what, figure in figures.items()
        if isinstance(figure, (int, float)) and not isinstance(figure, bool) and figure > 0
    }


def _figures(torch: Any, device: str, synchronize: Callable[[], None]) -> dict[str, float]:
    kind = device.partition(":")[0]
    size = BUFFER_BYTES[kind]
    source = torch.ones(size, dtype=torch.uint8, device=device)
    copying = partial(torch.zeros_like(source).copy_, source)
    found = {MEMORY: 2 * size * 1e9 / _least_ns(copying, synchronize)}
    del source, copying
    for dtype in DTYPES:
        found[dtype] = _operations_per_second(torch, dtype, device, MATRIX_ROWS[kind], synchronize)
    return found


def _operations_per_second(
    torch: Any, dtype: str, device: str, rows: tuple[int, int], synchronize: Callable[[], None]
) -> float:
    """Return the rate of large products, or that of small ones if the dtype is so slow that large ones take long."""
    best = 0.0
    for number in rows:
        left = torch.ones(number, number, dtype=getattr(torch, dtype), device=device)
        operations = 2 * number**3
        if best and operations * 1e9 / best > _MOST_NS:
            break
        multiplying = partial(torch.mm, left, left, out=torch.empty_like(left))
        best = max(best, operations * 1e9 / _least_ns(multiplying, synchronize))
    return best


def _least_ns(work: Callable[[], object], synchronize: Callable[[], None]) -> int:
    least, began = None, time.perf_counter_ns()
    for _ in range(ROUNDS):
        synchronize()
        started = time.perf_counter_ns()
        work()
        synchronize()
        ended = time.perf_counter_ns()
        least = ended - started if least is None else min(least, ended - started)
        if ended - began > _MOST_NS:
            break
    return max(1, least or 0)
