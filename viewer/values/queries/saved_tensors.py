"""Queries for saved tensors with their logs, steps, kernels and arguments."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.rows import SavedTensorRow

_PLACES = """
    SELECT t.tensor, t.launch, t.argument, t.item, t.moment, t.file, t.dtype, TRY_CAST(t.size AS BIGINT[]) AS size,
           t.tensor_bytes, t.sha256, t.log, l.path AS log_path, n.step, s.kernel, a.name AS argument_name
    FROM saved_tensors t
    LEFT JOIN logs l ON l.log = t.log
    LEFT JOIN launches n ON n.launch = t.launch
    LEFT JOIN sites s ON s.site = t.site
    LEFT JOIN arguments a ON a.site = t.site AND a.argument = t.argument
"""


@dataclass(frozen=True)
class SavedTensorPlace(SavedTensorRow):
    """A saved tensor with its log, step, kernel and argument; None if unknown."""

    log_path: str = ""
    step: int | None = None
    kernel: str | None = None
    argument_name: str | None = None


def saved_tensors(trace: Trace) -> list[SavedTensorPlace]:
    """Return all saved tensors in order of time."""
    return sql.records(SavedTensorPlace, trace, f"{_PLACES} ORDER BY t.log, t.launch, t.tensor")


def saved_tensor(trace: Trace, tensor: int) -> SavedTensorPlace | None:
    """Return the saved tensor of this id, or None."""
    return sql.record(SavedTensorPlace, trace, f"{_PLACES} WHERE t.tensor = ?", [tensor])
