"""Compares kernels with what their machine can do at most, as `stepscope measure` found it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from stepscope.tracer.schema.machine import CPU, MEMORY
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.steps.rows import LaunchDetail
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.kernel_bytes import KernelBytes, kernel_bytes
from stepscope.viewer.values.queries.kernel_operations import Operations, kernel_operations, launch_operations
from stepscope.viewer.values.queries.kernels import SUBGRAPH, KernelRow

NOT_MEASURED = "the machine was not measured: run `stepscope measure` there before you record"
NO_RATE = "`stepscope measure` did not measure products of this dtype"
UNKNOWN_WORK = "what it must compute does not follow from the sizes of its arguments"
UNKNOWN_SIZES = "the size of a factor is not known, or the factors have different dtypes"
OTHER_PRECISION = "products of float32 may have been computed in a lower precision, whose limit is not measured"
OTHER_GPUS = "the log does not tell which kind of GPU the kernel ran on"
# Generated code that fuses a product of its own, by the names that Inductor gives its templates.
_GENERATED = """
    SELECT kernel FROM sites GROUP BY kernel HAVING bool_and(
        (kind = 'triton' AND NOT regexp_matches(kernel, '^triton_tem|flex_attention|flex_decoding')) OR
        (kind = 'cpp' AND NOT regexp_matches(
            kernel, '(^|_)(gemm|mm|bmm|addmm|baddbmm|mv|addmv|linear|conv[a-z0-9]*|convolution|attention)(_|$)')))
"""
Bound = Literal["memory", "arithmetic"]
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Limit:
    """The least time that work takes on its machine."""

    bound: Bound
    least_ns: float
    rate: float
    """Bytes or operations per second that were measured."""


@dataclass(frozen=True)
class KernelLimit:
    """A kernel with the least time that its launches take; what is unknown is None."""

    kernel: str
    kind: str
    launches: int
    is_of_device: bool
    """Whether its time is that on the device."""
    time_ns: int | None
    """Time of those of its launches whose time was measured."""
    moved_bytes: int | None
    operations: int | None
    """Multiplications and additions of its launches, if it is a matrix product."""
    dtype: str | None
    bound: Bound | None
    rate: float | None
    """Bytes or operations per second that were measured."""
    least_ns: int | None
    """What those launches take at this rate."""
    share: float | None
    """The least time divided by the time; more than 1 if data came from a cache."""
    lost_ns: int | None
    """The time beyond the least time."""
    why_no_limit: str | None
    source: SourceLine | None


@dataclass(frozen=True)
class LaunchLimit:
    """The least time that a launch takes, and how near it came to it."""

    bound: Bound
    rate: float
    least_ns: int
    operations: int | None
    time_ns: int
    is_of_device: bool
    share: float


@dataclass(frozen=True)
class MachineLimits:
    """What the machines of a trace can do at most: figures by device, and how to find those of its GPUs."""

    figures: dict[str, dict[str, float]]
    gpu: str | None
    """Name of the only kind of GPU; None if there are several or none."""

    def of(self, is_cpu: bool) -> Figures:
        return self.figures.get(CPU if is_cpu else self.gpu or "", {})


def machine_limits(trace: Trace) -> MachineLimits:
    """Return the limits; of logs with different figures, the largest counts, so that no kernel seems worse."""
    figures: dict[str, dict[str, float]] = {}
    gpus: set[str] = set()
    for run in list_runs(trace):
        here = set(run.devices[1:])  # the first is the CPU
        gpus |= here
        for name, found in (run.machine.limits if run.machine is not None else {}).items():
            if name == CPU or name in here:
                known = figures.setdefault(name, {})
                known |= {what: max(figure, known.get(what, 0.0)) for what, figure in found.items() if figure > 0}
    return MachineLimits(figures, gpus.pop() if len(gpus) == 1 else None)


def kernel_limits(trace: Trace, rows: Iterable[KernelRow]) -> list[KernelLimit]:
    """Return the limits of kernels, those that lose the most time first, and those without a limit last."""
    rows = [row for row in rows if row.launches and row.kind != SUBGRAPH]
    kernel = rows[0].kernel if len(rows) == 1 else None
    limits, generated = machine_limits(trace), _generated(trace)
    moved, operations = trace.once(kernel_bytes), kernel_operations(trace, kernel)
    found = [_of_kernel(row, limits, moved.get(row.kernel), operations, generated) for row in rows]
    return sorted(found, key=lambda one: (one.lost_ns is None, -(one.lost_ns or 0), -(one.time_ns or 0)))


def launch_limit(trace: Trace, launch: LaunchDetail) -> LaunchLimit | None:
    """Return the limit of a launch; None if it is unknown."""
    site = launch.site
    devices = {tensor["device"] or "" for argument in site.arguments for tensor in argument.tensors}
    is_cpu, is_gpu = devices == {CPU}, bool(devices) and all(name.startswith("cuda") for name in devices)
    time_ns = launch.device_duration_ns if is_gpu else launch.duration_ns
    read, written = launch.read_bytes, launch.written_bytes
    if not (is_cpu or is_gpu) or not time_ns or read is None or written is None:
        return None
    figures = trace.once(machine_limits, most=1).of(is_cpu)
    operations = launch_operations(trace, site)
    is_generated = site.kernel in trace.once(_generated, most=1)
    limit = _limit(figures, read + written, operations, is_generated)
    if isinstance(limit, str):
        return None
    counted = operations.operations if operations is not None else None
    return LaunchLimit(
        limit.bound, limit.rate, round(limit.least_ns), counted, time_ns, is_gpu, limit.least_ns / time_ns
    )


def _of_kernel(
    row: KernelRow,
    limits: MachineLimits,
    moved: KernelBytes | None,
    operations: Mapping[str, Operations | None],
    generated: set[str],
) -> KernelLimit:
    work = operations.get(row.kernel)
    limit: Limit | str
    if row.why_no_bandwidth is not None or moved is None or moved.moved is None:
        limit = row.why_no_bandwidth or UNKNOWN_WORK
    elif row.kernel in operations and work is None:
        limit = UNKNOWN_SIZES
    elif not moved.is_cpu and limits.gpu is None:
        limit = OTHER_GPUS
    else:
        limit = _limit(limits.of(moved.is_cpu), moved.moved, work, row.kernel in generated)
    launches, timed = row.launches or 0, row.device_timed if row.is_of_device else row.timed
    least = limit.least_ns * timed / launches if isinstance(limit, Limit) else None
    time_ns = row.time_ns
    return KernelLimit(
        kernel=row.kernel,
        kind=row.kind,
        launches=launches,
        is_of_device=row.is_of_device,
        time_ns=time_ns,
        moved_bytes=row.moved_bytes,
        operations=work.operations if work is not None else None,
        dtype=work.dtype if work is not None else None,
        bound=limit.bound if isinstance(limit, Limit) else None,
        rate=limit.rate if isinstance(limit, Limit) else None,
        least_ns=round(least) if least is not None else None,
        share=least / time_ns if least is not None and time_ns else None,
        lost_ns=max(0, round(time_ns - least)) if least is not None and time_ns is not None else None,
        why_no_limit=None if isinstance(limit, Limit) else limit,
        source=row.source,
    )


def _limit(figures: Figures, moved: int, work: Operations | None, is_generated: bool) -> Limit | str:
    """Return the limit of work that moves `moved` bytes, or the reason why it is unknown.

    That of a sum of launches is at most the sum of their limits, because each may be bound by something else."""
    if not figures.get(MEMORY):
        return NOT_MEASURED
    memory = Limit("memory", moved * 1e9 / figures[MEMORY], figures[MEMORY])
    if is_generated:
        return memory
    if work is None:
        return UNKNOWN_WORK
    if work.dtype == "float32" and not work.is_full_precision:
        return OTHER_PRECISION
    rate = figures.get(work.dtype)
    if not rate:
        return NO_RATE
    arithmetic = Limit("arithmetic", work.operations * 1e9 / rate, rate)
    return max(memory, arithmetic, key=lambda limit: limit.least_ns)


def _generated(trace: Trace) -> set[str]:
    """Return the kernels of generated code that read and write their arguments element by element, or reduce them."""
    return {kernel for (kernel,) in sql.rows(trace, _GENERATED)}
