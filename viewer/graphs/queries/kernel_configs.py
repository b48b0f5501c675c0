"""The configurations of Triton kernels."""

from __future__ import annotations

from typing import Any

from stepscope.viewer.graphs.rows import GraphRow
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace


def config_of(trace: Trace, graph: int, kernel: str) -> dict[str, int]:
    """Return the block sizes, ``num_warps`` and ``num_stages`` of a Triton kernel at run time, {} if unknown."""
    if not sql.has_rows(trace, "tuned_kernels"):
        return {}
    ran = sql.row(trace, "SELECT config FROM tuned_kernels WHERE graph = ? AND kernel = ?", [graph, kernel])
    return _config(sql.json_value(ran[0])) if ran is not None else {}


def compiled_config(trace: Trace, graph: GraphRow, kernel: str) -> dict[str, int]:
    """Return the configuration that PyTorch logged at compile time, {} if it did not.

    It is the only configuration, or the one that an earlier process found best.
    """
    found = sql.rows(
        trace,
        "SELECT record FROM records WHERE log = ? AND name = 'triton_kernel_info'"
        " AND compile_id IS NOT DISTINCT FROM ? ORDER BY record DESC",
        [graph.log, graph.compile_id],
    )
    for (record,) in found:
        try:
            kernels = loads(trace.payload(record))
        except ValueError:
            continue
        info = kernels.get(kernel) if isinstance(kernels, dict) else None
        if isinstance(info, dict):
            return _config(info.get("best_config") or info.get("only_config"))
    return {}


def _config(pairs: Any) -> dict[str, int]:
    """Return the numbers of ``[["XBLOCK", 128], ["num_warps", 4]]`` or of such an object, {} for another form."""
    try:
        found = {str(name): number for name, number in (pairs.items() if isinstance(pairs, dict) else pairs)}
    except (TypeError, ValueError):
        return {}
    fine = all(name.isidentifier() and type(number) is int and abs(number) < 2**31 for name, number in found.items())
    return found if fine else {}
