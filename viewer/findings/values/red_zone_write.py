"""With --red-zones, a launch wrote outside of a buffer: bytes before its beginning or after its end, which no launch
may write, had changed when the launch had returned. In a run without red zones this memory belongs to another tensor or
to the allocator. The buffers are those that generated code allocates, of all graphs, and the 4,096 bytes on each side
of them are compared after each launch; a write that is further away, or that writes the very bytes which are there, is
not seen. If another thread or stream of the program runs at the same time, its launch may be the one that wrote."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, open_buffer, open_launch, rule_of
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.queries.hidden_aliases import operator_name
from stepscope.viewer.graphs.rows import SiteRow
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.red_zones import ZoneWrite, zone_writes

SUMMARY = "A launch wrote outside of a buffer"
TITLE_IS_MEASURED = False

ZONE_BYTES = 4096


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per kernel and line of the model."""
    found = zone_writes(evidence.trace)
    sites = {site.site: site for site in site_rows(evidence.trace, sorted({one.site for one in found}))}
    groups = grouped(found, lambda one: (sites[one.site].kernel, source_line(sites[one.site])))
    return [_finding(evidence, group, sites[group[0].site]) for group in groups]


def _finding(evidence: Evidence, group: list[ZoneWrite], site: SiteRow) -> Timed:
    first, source = group[0], source_line(site)
    more = [f"It also wrote {_what(one, site)}" for one in group[1:] if _what(one, site) != _what(first, site)]
    link = [open_launch(first.launch)] if first.launch is not None else []
    return first.time_unix_ns, Finding(
        kind="red_zone_write",
        severity="critical",
        title=f"{operator_name(site.kernel)}{place(source)} wrote {_what(first, site)}, in step {first.step}",
        proof=[*_distance(first), *dict.fromkeys(more)],
        links=[*link, *open_buffer(evidence.trace, first.buffer_graph, first.buffer)],
        rule=rule_of(__doc__),
        evidence=attributes(first, "buffer_graph", "side", "distance", "changed_bytes"),
        page=f"/launches/{first.launch}" if first.launch is not None else f"/graphs/{first.graph}",
        rank=evidence.rank_of(first.log),
        launch=first.launch,
        kernel=site.kernel,
        source=source,
        **attributes(first, "step", "graph", "buffer", "log"),
    )


def _what(one: ZoneWrite, site: SiteRow) -> str:
    where = "past the end" if one.side == "after" else "before the beginning"
    other = f" of graph {one.buffer_graph}" if one.buffer_graph != site.graph else ""
    return f"{plural(one.changed_bytes, 'byte')} {where} of {one.buffer}{other}"


def _distance(one: ZoneWrite) -> list[str]:
    edge = "end" if one.side == "after" else "beginning"
    if one.distance:
        return [f"The nearest of these bytes is {plural(one.distance, 'byte')} away from the {edge} of the buffer."]
    if one.changed_bytes == ZONE_BYTES:
        return ["These are all bytes of the red zone, so that more may have been written beyond it."]
    return []
