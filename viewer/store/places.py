"""Where the index of a trace lies when it can lie beside the logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stepscope.viewer.ingest.sources import STDIN

INDEX_SUFFIX = ".stepscope.duckdb"


def beside(names: Sequence[str]) -> Path | None:
    """Beside the only log, or in the only folder; None for several names and for standard input."""
    if len(names) > 1 or names[0] == STDIN:
        return None
    trace = Path(names[0]).absolute()
    return trace / INDEX_SUFFIX if trace.is_dir() else trace.with_name(trace.name + INDEX_SUFFIX)
