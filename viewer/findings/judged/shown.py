"""What findings about judged buffers show alike."""

from __future__ import annotations

from typing import Any

from stepscope.viewer.findings.evidence import attributes
from stepscope.viewer.graphs.queries.graphs import code_of_graph
from stepscope.viewer.graphs.queries.kernel_code import cut
from stepscope.viewer.judged.rows import JudgedBufferRow
from stepscope.viewer.overview.rows import ProofLink
from stepscope.viewer.store.trace import Trace

MOST_CODE = 6000


def number(value: float | None, missing: str = "unknown") -> str:
    """Return a number with the digits that tell float32 values apart."""
    return missing if value is None else f"{value:.9g}"


def three_values(row: JudgedBufferRow) -> str:
    """Return the three values of the worst element, with its index. Records have no number for one that is not finite,
    and none of the three if the element is unknown."""
    where = f"{row.buffer}{row.index if row.index else ''}"
    three = row.compiled, row.eager, row.float64
    missing = "unknown" if three == (None, None, None) else "not finite"
    compiled, eager, double = (number(value, missing) for value in three)
    values = f"compiled {compiled}, eager {eager}, float64 {double}"
    return f"{where}: {values} ({row.dtype}, allowed error {number(row.allowed)})"


def recomputed(row: JudgedBufferRow) -> str:
    """Return the line of the recomputed code that makes the value of the buffer; a kernel may go on from there."""
    own = (line for line in row.fragment if line.startswith(f"{row.node} = "))
    return next(own, row.fragment[-1])


def how_many(row: JudgedBufferRow) -> str:
    total = 1
    for size in row.size:
        total *= size
    return f"{row.bad:,} of {total:,} elements {'is' if row.bad == 1 else 'are'} wrong"


def of_limit(row: JudgedBufferRow) -> str:
    """Return how far an error is from the limit."""
    return (
        "where no error is allowed" if row.of_limit is None else f"by up to {row.of_limit:.3g} times the allowed error"
    )


def evidence_of(trace: Trace, row: JudgedBufferRow) -> dict[str, Any]:
    """Return what programs read of a judged buffer, with the code of the kernel."""
    code = code_of_graph(trace, row.graph)
    part = cut(code, row.kernel, row.kind, None) if code is not None else None
    names = ("node", "rules", "how", "dtype", "size", "index", "compiled", "eager", "float64", "allowed", "of_limit")
    return {
        **attributes(row, "step", "launch", *names, "bad", "fragment", "inputs", "files"),
        "code": part.text[:MOST_CODE] if part is not None else None,
    }


def page_of(row: Any) -> str:
    launch = f"&launch={row.launch}" if row.launch is not None else ""
    return f"/steps/{row.step}?log={row.log}{launch}"


def links_of(row: Any) -> list[ProofLink]:
    code = ProofLink("open graph and code", f"/graphs/{row.graph}?site={row.site}")
    return [ProofLink(f"open launch {row.launch}", page_of(row)), code] if row.launch is not None else [code]
