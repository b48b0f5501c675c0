"""The path of a NaN or an infinity: each launch from the origin to the NaN that wrote the value or passed it on."""

from __future__ import annotations

from typing import Any

from stepscope.viewer.findings.values import describe as text
from stepscope.viewer.findings.values.operations import source_line
from stepscope.viewer.findings.values.origins import Case, Hop, Tracer, bad_inputs
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.values.queries.values import LIMITS

_MOST_LINKS = 12


def chain(trace: Trace, tracer: Tracer, case: Case) -> list[dict[str, Any]]:
    """Return the launches on the path of `case`, the origin first, as evidence."""
    hops = [*(case.grown_from.hops if case.grown_from else []), case.hop]
    if len(hops) > _MOST_LINKS:
        hops = [*hops[: _MOST_LINKS // 2], *hops[-_MOST_LINKS // 2 :]]
    return [_link(trace, tracer, hop) for hop in hops]


def _link(trace: Trace, tracer: Tracer, hop: Hop) -> dict[str, Any]:
    site, was_read = tracer.site(hop.flow.site), hop.row.moment == "before"
    came_in = was_read and hop.argument.held == "input"
    link: dict[str, Any] = {
        "step": hop.flow.step,
        "launch": hop.flow.launch,
        "ordinal": launch_place(trace, hop.flow.launch).ordinal,
        "kernel": site.kernel,
        "buffer": hop.argument.buffer,
        "argument": hop.argument.name,
        "what": text.what([hop.row]) + (" came in" if came_in else ""),
        "source": text.place(source_line(site)),
        "out": text.describe(text.label(hop.argument), hop.row),
    }
    if not was_read:
        largest = text.largest_read(hop.flow.inputs)
        link |= {
            "in": text.read(hop.flow.inputs),
            "largest": largest[1] if largest is not None else None,
            "dtype": hop.row.dtype,
            "limit": LIMITS.get(hop.row.dtype),
            "inputs_finite": not bad_inputs(hop.flow, text.is_bad),
        }
    return link | {"elements": hop.row.elements}
