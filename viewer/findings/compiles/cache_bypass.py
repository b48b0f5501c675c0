"""A compile could not use the FX graph cache or the AOTAutograd cache, and PyTorch logged the reason. Every process
compiles it anew. There is one finding per reason, or per pair of reasons where a compile bypassed both caches."""

from __future__ import annotations

import re

from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.findings.evidence import MOST_EXAMPLES, Evidence, Timed, as_subject, grouped, place_of, rule_of
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural

SUMMARY = "A compile could not use a cache"

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Address of a Python object, which is another one in each process."""


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per set of reasons over the run."""
    compiles = grouped(evidence.compile_events("cache_bypass"), lambda event: (event.log, event.compile_id))
    return [_finding(same) for same in grouped(compiles, lambda events: frozenset(map(_reason, events)))]


def _reason(event: CompileEvent) -> str:
    return _ADDRESS.sub("", event.cause)


def _finding(compiles: list[list[CompileEvent]]) -> Timed:
    events = compiles[0]
    first = events[0]
    more = f" and {plural(len(compiles) - 1, 'other compile')}" if len(compiles) > 1 else ""
    return first.time_ns, Finding(
        kind="cache_bypass",
        severity="info",
        title=f"The compile of {as_subject(first.name)}{more} bypassed the cache: {_reason(events[-1])}",
        rule=rule_of(__doc__),
        evidence={
            "compiles": len(compiles),
            "compile_ids": [same[0].compile_id for same in compiles[:MOST_EXAMPLES]],
            "reasons": list(dict.fromkeys(map(_reason, events))),
        },
        **place_of(first),
    )
