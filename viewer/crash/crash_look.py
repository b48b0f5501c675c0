"""Reads the logs of one run of `stepscope run --crash` for its symptom and its suspect kernels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from stepscope.viewer.crash.queries.last_seen import ran_before
from stepscope.viewer.crash.queries.process_ends import process_ends, symptom
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.findings.crash.deaths import Death, deaths
from stepscope.viewer.findings.crash.suspects import suspect
from stepscope.viewer.graphs.queries.graphs import has_graphs, names_packages
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace

MOST_KERNELS, MOST_BEFORE = 64, 4


@dataclass(frozen=True)
class CrashLook:
    """An implementation of `stepscope.tracer.command.crash_runs.Look`."""

    symptom: str | None
    kernels: tuple[str, ...] = ()
    compiles: bool = False
    is_packaged: bool = False


def look(folder: Path) -> CrashLook:
    """Read the logs in `folder` with a temporary index, because later runs may append to the logs."""
    with TemporaryDirectory(prefix="stepscope-") as index:
        try:
            with open_trace(folder, index_dir=index) as trace:
                return _look(trace)
        except StepscopeError:  # no log could be written
            return CrashLook(None)


def _look(trace: Trace) -> CrashLook:
    died = deaths(trace)
    compiled = has_graphs(trace)
    told = [death.symptom for death in died if death.symptom is not None]
    told += [text for end in process_ends(trace).values() if (text := symptom(end, None)) is not None]
    return CrashLook(
        symptom=told[0] if told else "died" if died and not _timed_out(died) else None,
        kernels=_kernels(trace, died),
        compiles=compiled,
        is_packaged=not compiled or names_packages(trace),
    )


def _timed_out(died: list[Death]) -> bool:
    return any(death.end is not None and death.end.timed_out for death in died)


def _kernels(trace: Trace, died: list[Death]) -> tuple[str, ...]:
    """Return the kernels at which processes died, unfinished ones, and producers of their inputs or earlier ones."""
    names: list[str | None] = []
    for death in died:
        if death.kind != "exception" and death.blamed is not None:
            found = suspect(trace, death.blamed)
            names += [death.at.kernel, *(row.kernel for row in death.on_device)]
            if found and found.arguments:
                names += [producer.kernel for producer in found.producers]
            else:  # only names were printed
                names += [
                    row.kernel for row in ran_before(trace, death.run.log, death.blamed, MOST_BEFORE, death.blamed)
                ]
    return tuple(dict.fromkeys(name for name in names if name))[:MOST_KERNELS]
