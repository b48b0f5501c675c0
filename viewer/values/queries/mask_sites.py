"""Queries for launch sites that may write masks: the names that tell what they compute, and their kernels' sources."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_NAMED = """
    SELECT s.site, s.kernel, s.operator, s.aten, s.source_nodes, s.fx_nodes,
           coalesce(g.output_code, k.output_code) AS code
    FROM sites s JOIN graphs g ON g.graph = s.graph LEFT JOIN (
        SELECT wrapper_key, min(output_code) AS output_code FROM graphs GROUP BY wrapper_key
    ) k ON k.wrapper_key = g.wrapper_key
    WHERE s.site IN (SELECT unnest(?::BIGINT[]))
"""
_DEFINITION = re.compile(r"^(\w+) = async_compile\.", re.MULTILINE)


class NamedSite(NamedTuple):
    """A launch site with the names that tell what it computes; lists are JSON, which equal sites share."""

    site: int
    kernel: str
    operator: str | None
    aten: str | None
    source_nodes: str | None
    fx_nodes: str | None
    code: int | None
    """The record of the source of the generated wrapper, or None if no log has it."""

    @property
    def names(self) -> list[str]:
        lists = (self.aten, self.source_nodes, self.fx_nodes)
        return [*(name for one in lists for name in sql.json_value(one) or ()), self.operator or "", self.kernel]


def named_sites(trace: Trace, sites: Iterable[int]) -> list[NamedSite]:
    return sql.records(NamedSite, trace, _NAMED, [sorted({*sites})])


def kernel_sources(trace: Trace, code: int) -> dict[str, str]:
    """Return by name the sources of the kernels that the wrapper of a record defines."""
    text = trace.payload(code).decode("utf-8", "replace")
    sources: dict[str, str] = {}
    for definition in _DEFINITION.finditer(text):
        _, quote, source = text[definition.end() :].partition("'''")
        if quote:
            sources.setdefault(definition[1], source.partition("'''")[0])
    return sources
