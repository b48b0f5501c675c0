"""Queries for saved tensors with their logs, steps, kernels and arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries import values
from stepscope.viewer.values.rows import SavedTensorRow

_PLACES = """
    SELECT t.tensor, l.path, n.step, s.kernel, a.name AS argument
    FROM saved_tensors t
    LEFT JOIN logs l ON l.log = t.log
    LEFT JOIN launches n ON n.launch = t.launch
    LEFT JOIN sites s ON s.site = t.site
    LEFT JOIN arguments a ON a.site = t.site AND a.argument = t.argument
"""


class _TensorSite(NamedTuple):
    tensor: int
    path: str
    step: int | None
    kernel: str | None
    argument: str | None


@dataclass(frozen=True)
class SavedTensorPlace:
    """A saved tensor with its log, step, kernel and argument; None if unknown."""

    row: SavedTensorRow
    log_path: str
    step: int | None
    kernel: str | None
    argument: str | None


def saved_tensors(trace: Trace) -> list[SavedTensorPlace]:
    """Return all saved tensors in order of time."""
    sites = {site.tensor: site for site in sql.records(_TensorSite, trace, _PLACES)}
    return [_place(row, sites[row.tensor]) for row in values.saved_tensors(trace)]


def saved_tensor(trace: Trace, tensor: int) -> SavedTensorPlace | None:
    """Return the saved tensor of this id, or None."""
    row = values.saved_tensor(trace, tensor)
    site = sql.record(_TensorSite, trace, f"{_PLACES} WHERE t.tensor = ?", [tensor])
    return _place(row, site) if row and site else None


def _place(row: SavedTensorRow, site: _TensorSite) -> SavedTensorPlace:
    return SavedTensorPlace(row, log_path=site.path, step=site.step, kernel=site.kernel, argument=site.argument)
