"""The operations of matrix products, from the sizes of their arguments at each launch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isqrt, prod
from operator import itemgetter
from typing import Any

from stepscope.viewer.graphs.queries.tensors_in_force import IN_FORCE
from stepscope.viewer.graphs.rows import SiteRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_INPUTS = """
    SELECT s.site, s.kernel, coalesce(g.matmul_precision = 'highest', false)
    FROM sites s LEFT JOIN graphs g ON g.graph = s.graph
    WHERE s.kind = 'extern' AND regexp_matches(s.kernel, '(^|[.])(mm|bmm|addmm|baddbmm)([.](default|out|dtype))?$')
      AND ($1 IS NULL OR s.kernel = $1)
"""
_SIZES = f"""
    SELECT t.site, t.local_call, t.argument, a.role, t.dtype, TRY_CAST(t.size AS BIGINT[])
    FROM {IN_FORCE} t JOIN arguments a ON a.site = t.site AND a.argument = t.argument
    WHERE list_contains($1, t.site) ORDER BY t.site, t.local_call, t.place
"""
_RAN = "SELECT site, count(*) FROM launches WHERE list_contains($1, site) GROUP BY site"
_RAN_FROM = """
    SELECT l.site, p.local_call, count(*)
    FROM (SELECT l.site, c.local_call FROM launches l JOIN calls c ON c.call = l.call
          WHERE list_contains($1, l.site)) l
    ASOF JOIN (SELECT unnest($1) AS site, unnest($2) AS local_call) p
         ON p.site = l.site AND l.local_call >= p.local_call
    GROUP BY ALL
"""


@dataclass(frozen=True)
class Operations:
    """What the launches of a kernel compute."""

    operations: int
    """Multiplications and additions, of all its launches together."""
    dtype: str
    is_full_precision: bool
    """Whether products of float32 were compiled to be computed in float32."""


@dataclass(frozen=True)
class _Tensor:
    role: str
    dtype: str
    size: Sequence[int] | None


def kernel_operations(trace: Trace, kernel: str | None = None) -> dict[str, Operations | None]:
    """Return the operations by name of kernel, of all matrix products or of one; None if a size is unknown.

    Kernels that are no matrix product, and those that were never launched, are missing."""
    sites = {site: (name, is_full) for site, name, is_full in sql.rows(trace, _INPUTS, [kernel])}
    spans = _spans(trace, list(sites))
    launched = _launches(trace, spans)
    found: dict[str, list[Operations | None]] = defaultdict(list)
    for (site, local_call), launches in launched.items():
        name, is_full = sites[site]
        each = product_operations(spans[site].get(local_call, {}).values())
        found[name].append(None if each is None else Operations(each[0] * launches, each[1], is_full))
    return {name: _sum(parts) for name, parts in found.items()}


def launch_operations(trace: Trace, site: SiteRow) -> Operations | None:
    """Return what one launch of a site computes, whose arguments are those of that launch; None if it is unknown."""
    known = sql.rows(trace, f"{_INPUTS} AND s.site = $2", [site.kernel, site.site])
    tensors = [
        _Tensor(argument.role, tensor["dtype"], tensor["size"])
        for argument in site.arguments
        for tensor in argument.tensors[:1]
    ]
    each = product_operations(tensors) if known and len(tensors) == len(site.arguments) else None
    return None if each is None else Operations(*each, is_full_precision=known[0][2])


def product_operations(tensors: Iterable[_Tensor]) -> tuple[int, str] | None:
    """Return the operations and the dtype of a product, from its factors and its result; None if they are unclear.

    The sizes of the factors are m x k and k x n, that of the result is m x n, in either layout; the product of their
    numbers of elements is (m k n)**2, with a batch of b matrices b**3 (m k n)**2."""
    inputs: list[_Tensor] = []
    outputs: list[_Tensor] = []
    for tensor in tensors:
        (inputs if tensor.role == "in" else outputs).append(tensor)
    used = [*inputs[-2:], *outputs]
    sizes = [tensor.size for tensor in used if tensor.size is not None]
    dtypes = {tensor.dtype for tensor in used}
    if len(inputs) < 2 or len(outputs) != 1 or outputs[0].role != "out" or len(sizes) != 3 or len(dtypes) != 1:
        return None
    batch = sizes[0][0] if len(sizes[0]) == 3 else 1
    if len({len(size) for size in sizes}) != 1 or len(sizes[0]) not in (2, 3) or not batch:
        return None
    elements = prod(prod(size) for size in sizes)
    multiplications = isqrt(elements // batch**3) * batch
    if multiplications**2 * batch != elements:  # the sizes are not those of a product
        return None
    return 2 * multiplications, dtypes.pop()


def _spans(trace: Trace, sites: list[int]) -> dict[int, dict[int, dict[int, _Tensor]]]:
    """Return the arguments by site and by the call from which on they hold."""
    spans: dict[int, dict[int, dict[int, _Tensor]]] = {site: {} for site in sites}
    for (site, local_call), rows in groupby(sql.rows(trace, _SIZES, [sites]), key=itemgetter(0, 1)):
        before = spans[site][max(spans[site])] if spans[site] else {}
        here: dict[int, Any] = {argument: _Tensor(role, dtype, size) for _, _, argument, role, dtype, size in rows}
        spans[site][local_call] = dict(sorted({**before, **here}.items()))
    return spans


def _launches(trace: Trace, spans: Mapping[int, Mapping[int, object]]) -> dict[tuple[int, int], int]:
    """Return the number of launches by site and by the call from which on their arguments hold."""
    constant = {site: min(calls, default=-1) for site, calls in spans.items() if len(calls) < 2}
    found = {(site, constant[site]): count for site, count in sql.rows(trace, _RAN, [list(constant)])}
    changing = [(site, call) for site, calls in spans.items() if site not in constant for call in calls]
    if changing:
        columns = [[site for site, _ in changing], [call for _, call in changing]]
        found |= {(site, call): count for site, call, count in sql.rows(trace, _RAN_FROM, columns)}
    return found


def _sum(parts: Sequence[Operations | None]) -> Operations | None:
    known = [part for part in parts if part is not None]
    dtypes = {part.dtype for part in known}
    if len(known) < len(parts) or len(dtypes) != 1:
        return None
    is_full = all(part.is_full_precision for part in known)
    return Operations(sum(part.operations for part in known), dtypes.pop(), is_full)
