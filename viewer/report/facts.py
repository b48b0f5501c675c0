"""The facts of a run that PyTorch's template for bug reports asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepscope.tracer.schema.machine import Machine
from stepscope.viewer.overview.rows import RunRow
from stepscope.viewer.text.formats import format_bytes

MOST_ALIKE = 4
"""Maximum number of different values of one fact that are listed."""


@dataclass(frozen=True)
class Fact:
    name: str
    value: str | None
    """None if the log does not say it."""
    is_code: bool = False
    """Whether the value is text of the program or the machine rather than a number or a version."""


@dataclass(frozen=True)
class FactList:
    """A list that is shown behind a click."""

    title: str
    lines: list[str]
    when_empty: str


@dataclass(frozen=True)
class TicketFacts:
    facts: list[Fact]
    lists: list[FactList]


def ticket_facts(runs: Sequence[RunRow]) -> TicketFacts:
    """Return the facts of all runs; where runs differ, each value with its log."""
    described = [run for run in runs if run.crash_run in (None, 1)] or list(runs)
    tables = [dict(_facts(run)) for run in described]
    names = dict.fromkeys(name for table in tables for name in table)
    facts = [
        Fact(name, _joined([table.get(name) for table in tables], described), name in ("Command", "CPU", "GPU"))
        for name in names
    ]
    first = next((run for run in described if run.machine is not None), None)
    return TicketFacts(facts, list(_lists(first, described)))


def _facts(run: RunRow) -> Iterator[tuple[str, str | None]]:
    machine, is_recorded = run.machine, run.stepscope is not None  # else PyTorch alone wrote the log
    yield "stepscope", run.stepscope
    yield "PyTorch", _torch(run)
    yield "Python", (machine.python_build if machine else None) or run.python
    yield "Triton", run.triton or ("not imported" if is_recorded else None)
    yield "CUDA of the build", run.cuda or ("none" if is_recorded else None)
    if machine is not None:
        if machine.hip_version:
            yield "ROCm of the build", machine.hip_version
        yield "cuDNN", machine.cudnn_version or "not in use"
        yield "GPU driver", machine.gpu_driver or "none found"
    gpus = [device for device in run.devices if not device.startswith("cpu")]
    if gpus:
        abilities = f" (compute capability {', '.join(machine.gpu_capabilities)})" if machine else ""
        yield "GPU", ", ".join(gpus) + abilities
    cpu = next((device for device in run.devices if device.startswith("cpu")), None)
    if machine is None:
        yield "CPU", cpu
    else:
        parts = (machine.cpu, cpu, machine.architecture, machine.cpu_capability)
        yield "CPU", ", ".join(part for part in parts if part) or None
        yield "Memory", format_bytes(machine.memory_bytes) if machine.memory_bytes else None
        yield "Operating system", ", ".join(part for part in (machine.os, machine.kernel) if part) or None
        yield "C library", machine.libc
        yield "C++ compiler", machine.cpp_compiler or "none found"
    alone = "not distributed" if is_recorded else f"rank {run.rank}" if run.rank is not None else None
    yield "Ranks", f"rank {run.rank} of {run.world_size}" if run.world_size else alone
    yield "Recording level", run.level
    yield "Command", " ".join(run.argv) or None


def _torch(run: RunRow) -> str | None:
    machine = run.machine
    if run.torch is None or machine is None:
        return run.torch
    git = f" (git {machine.torch_git[:12]}" if machine.torch_git else " ("
    return f"{run.torch}{git}{', debug build' if machine.torch_is_debug else ', release build'})".replace("(, ", "(")


def _joined(values: Sequence[str | None], runs: Sequence[RunRow]) -> str | None:
    """Return the value that all runs share, or each value with the first log that has it."""
    if len(set(values)) == 1:
        return values[0]
    first = {value: run.log for value, run in zip(reversed(values), reversed(runs), strict=True)}
    shown = [f"{value or 'not recorded'} (log {log})" for value, log in sorted(first.items(), key=lambda item: item[1])]
    rest = [f"and {len(shown) - MOST_ALIKE} more"] if len(shown) > MOST_ALIKE else []
    return "; ".join([*shown[:MOST_ALIKE], *rest])


def _lists(run: RunRow | None, runs: Sequence[RunRow]) -> Iterator[FactList]:
    config = next((one.config for one in runs if one.config), {})
    yield FactList(
        "Settings that differ from their defaults",
        [f"{name} = {value!r}" for name, value in sorted(config.items())],
        "No setting of Dynamo, Inductor or AOTAutograd differs from its default."
        if any(one.stepscope is not None for one in runs)
        else "Not recorded: PyTorch alone wrote the log.",
    )
    machine: Machine | None = run.machine if run is not None else None
    if machine is None:
        return
    yield FactList(
        "Environment variables of PyTorch, Triton, CUDA and OpenMP",
        [f"{name}={value}" for name, value in machine.variables.items()],
        "None is set.",
    )
    yield FactList(
        "Installed packages",
        [f"{name}=={version}" for name, version in machine.packages.items()],
        "None of the packages that bug reports ask for was found.",
    )
    yield FactList("Build of PyTorch", machine.torch_build, "PyTorch does not say how it was built.")
