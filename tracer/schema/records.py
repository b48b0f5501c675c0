"""The schema of a stepscope log: one frozen dataclass per kind of record.

A log is written in TORCH_TRACE's line grammar (see `log_format`). It contains torch's own structured
records and ours; ours are `artifact` records named ``stepscope_<kind>`` whose JSON payload is one of the
dataclasses below, field for field. Names contain the units: `_ns` for nanoseconds, `_bytes` for bytes. Times are
`time.perf_counter_ns()` unless the name contains `unix`; `Run` has the same moment on both clocks.
Unknown values are ``None``, never 0. Readers ignore fields they do not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from stepscope.tracer.schema import (
    gaps,
    graphs,
    judging,
    launches,
    layer_checks,
    losses,
    memory,
    parameters,
    process_ends,
    profiles,
    raised_calls,
    repeats,
    scalars,
    states,
    statistics,
    steps,
    tuning,
    values,
)
from stepscope.tracer.schema.machine import Machine
from stepscope.tracer.schema.record import Record, records_of

_MODULES = (
    graphs, launches, steps, scalars, values, statistics, judging, layer_checks, memory, gaps, raised_calls,
    process_ends, profiles, tuning, states, parameters, losses, repeats,
)  # fmt: skip


@dataclass(frozen=True)
class Run(Record):
    """The first record of a log: what ran, where it ran, and how it was recorded."""

    KIND: ClassVar[str] = "run"

    format_version: int
    stepscope_version: str
    python_version: str
    torch_version: str | None
    triton_version: str | None
    cuda_version: str | None
    devices: list[str]
    rank: int | None
    world_size: int | None
    pid: int
    parent_pid: int
    argv: list[str]
    config: dict[str, Any]
    """The settings of torch._dynamo, torch._inductor and torch._functorch that differ from their defaults, by dotted
    name."""
    level: str
    monotonic_ns: int
    unix_ns: int
    utc_offset_s: int
    forked: bool = False
    """Whether the process was forked from a recorded process, `parent_pid`; it may call `os._exit`, so that the log has
    no `end` record."""
    guesses_steps: bool = False
    """Whether the steps of calls are preliminary, and `StepMarks` decide which step each call belongs to."""
    loads_data: bool = False
    """Whether the process is a worker of a `DataLoader`; its steps are those of the process that it feeds."""
    machine: Machine | None = None
    """The machine and the installed software; None if another process wrote the record, or in older logs."""


RECORD_TYPES: tuple[type[Record], ...] = (Run, *(kind for module in _MODULES for kind in records_of(module)))
