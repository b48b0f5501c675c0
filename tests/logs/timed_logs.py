"""Builds logs of runs whose launches take chosen times."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepscope.tracer.schema.graphs import LaunchKind
from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.steps import Steps
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder
from tests.logs.value_logs import Program, ValueLog

KERNELS = [f"cpp_fused_{name}" for name in ("relu_0", "exp_1", "sin_2", "tanh_3", "log_4")]
STEADY = 100_000
Spent = Callable[[str, int], int]


def program_of(kernels: Sequence[str], nodes: Mapping[str, Sequence[str]] | None, kind: LaunchKind) -> Program:
    program = Program()
    for number, kernel in enumerate(kernels):
        program.launch(kernel, [f"buf{number}"], [f"buf{number + 1}"], kind, fx=(nodes or {}).get(kernel, ()))
    return program


def run_of(spent: Spent, kernels: Sequence[str] = KERNELS, calls: int = 12, **changes: Any) -> LogBuilder:
    """Return the log of a run in which the n-th launch of a kernel takes ``spent(kernel, n)`` ns."""
    program = program_of(kernels, changes.pop("nodes", None), changes.pop("kind", "cpp"))
    log, at = ValueLog(program, level="launches", **changes), MONOTONIC_NS + 1_000_000
    for number in range(calls):
        start, starts, ends = at, [], []
        for kernel in kernels:
            starts.append(at)
            at += spent(kernel, number)
            ends.append(at)
        row = Calls([number], [0], [0], [number], [1], [None], [start], [at - start], [len(kernels)], ["ok"])
        log.log.record(Launches(row, list(range(len(kernels))), starts, ends))
        log.log.record(Steps([number], ["inference"], ["call"], [start], [at]))
        at += 1_000
    return log.end()


def noisy(seed: int, factors: Mapping[str, float] | None = None, machine: float = 1.0, spread: float = 0.05) -> Spent:
    """Return times that vary by `spread`; each kernel of `factors` takes longer, and all on a slower machine."""
    chance = random.Random(seed)
    return lambda kernel, _: round(STEADY * machine * (factors or {}).get(kernel, 1.0) * (1 + spread * chance.random()))
