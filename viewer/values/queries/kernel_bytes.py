"""The bytes that the launches of each kernel read and write, from the sizes of their arguments."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.tracer.schema.constants import UNRECORDED
from stepscope.viewer.graphs.queries.tensors_in_force import IN_FORCE
from stepscope.viewer.kernel_source.access_bounds import item_bytes
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

# An expanded dimension has stride 0 and is in memory once.
_NUMEL = (
    "coalesce(list_product([CASE WHEN strides[i] = 0 THEN 1 ELSE sizes[i] END FOR i IN range(1, len(sizes) + 1)]), 1)"
)
_BYTES = f"""
    WITH seen AS (
        SELECT t.site, t.argument, t.local_call, t.dtype, t.device,
               TRY_CAST(t.size AS BIGINT[]) AS sizes, TRY_CAST(t.stride AS BIGINT[]) AS strides
        FROM {IN_FORCE} t JOIN sites s ON s.site = t.site
        QUALIFY rank() OVER (PARTITION BY t.site, t.argument, t.local_call ORDER BY t.place DESC) = 1
    ), sized AS (
        SELECT site, argument, local_call, bool_and(device = 'cpu') AS is_cpu,
               CASE WHEN bool_and(sizes IS NOT NULL AND $2[list_position($1, dtype)] IS NOT NULL)
                    THEN sum({_NUMEL} * $2[list_position($1, dtype)]) END AS once
        FROM seen GROUP BY site, argument, local_call
    ), spans AS (
        SELECT a.site, z.local_call, z.is_cpu,
               lead(z.local_call) OVER (PARTITION BY a.site, a.argument ORDER BY z.local_call) AS until,
               z.once * CASE a.role WHEN 'in' THEN 1 WHEN 'out' THEN 1 WHEN 'inout' THEN 2 END AS moved
        FROM arguments a JOIN sites s ON s.site = a.site
        LEFT JOIN sized z ON z.site = a.site AND z.argument = a.argument
    ), per_site AS (
        SELECT site, bool_and(moved IS NOT NULL) AS is_known, bool_and(is_cpu) AS is_cpu,
               bool_and(until IS NULL) AS is_constant, sum(moved) AS moved FROM spans GROUP BY site
    ), changing AS (
        SELECT r.site, sum(p.moved * r.launches) AS moved
        FROM (SELECT l.site, c.local_call, count(*) AS launches FROM launches l JOIN calls c ON c.call = l.call
              WHERE l.site IN (SELECT site FROM per_site WHERE NOT is_constant) GROUP BY ALL) r
        JOIN spans p ON p.site = r.site AND r.local_call >= p.local_call
                        AND (p.until IS NULL OR r.local_call < p.until)
        GROUP BY r.site
    ), ran AS (SELECT site, count(*) AS launches FROM launches GROUP BY site)
    SELECT s.kernel, sum(ran.launches)::BIGINT, coalesce(bool_and(p.is_cpu), false),
           CASE WHEN bool_and(coalesce(p.is_known, false))
                THEN CAST(sum(CASE WHEN p.is_constant THEN p.moved * ran.launches ELSE g.moved END) AS BIGINT) END
    FROM ran JOIN sites s ON s.site = ran.site LEFT JOIN per_site p ON p.site = s.site
    LEFT JOIN changing g ON g.site = s.site
    GROUP BY s.kernel
"""


@dataclass(frozen=True)
class KernelBytes:
    """What all launches of a kernel move."""

    launches: int
    is_cpu: bool
    """Whether all of its arguments are in the memory of the CPU."""
    moved: int | None
    """The bytes of its inputs and outputs, those that are both twice. None if the size of one is unknown."""


def kernel_bytes(trace: Trace) -> dict[str, KernelBytes]:
    """Return the bytes of all kernels by name; kernels that were never launched are missing."""
    dtypes = [name for (name,) in sql.rows(trace, "SELECT DISTINCT dtype FROM tensors WHERE dtype <> ?", [UNRECORDED])]
    sizes = [item_bytes(name) for name in dtypes]
    rows = sql.rows(trace, _BYTES, [dtypes, sizes])
    return {name: KernelBytes(*facts) for name, *facts in rows}
