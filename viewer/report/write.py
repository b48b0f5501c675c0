"""Writes a report for a ticket: one HTML file that needs no server and no network."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from markupsafe import Markup

from stepscope.viewer.graphs.queries.source_folder import source_folder
from stepscope.viewer.ingest.report_logs import HEAD
from stepscope.viewer.report.facts import ticket_facts
from stepscope.viewer.report.links import without_dead_links
from stepscope.viewer.report.packed_logs import PackedFile, packed_logs
from stepscope.viewer.report.packed_pages import packed, with_packed_pages
from stepscope.viewer.report.shared_code import with_shared_code
from stepscope.viewer.report.ticket import Ticket, gather
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.source_links import SourceLinks
from stepscope.viewer.web import assets, registry, render
from stepscope.viewer.web.frame import frame

_NOT_SHOWN = ("records/views", "search/search")
"""Styles of pages that no report has."""
_PACKED_SHEETS = [
    sheet for sheet in (*assets.SHEETS, "compiles/runs") if sheet not in (*assets.FIRST_SHEETS, *_NOT_SHOWN)
]
"""Styles of the packed pages, which are packed, too."""
MOST_LOG_BYTES = 4_000_000
"""Maximum size of the packed logs in a report, by default."""


def scripts() -> list[str]:
    """Return the scripts that a report loads first: its own, and those of the capabilities with pages in it."""
    of_rooms = [f"#js/{capability.folder}/report.js" for capability in registry.in_report()]
    return ["#js/core/page.js", "#js/report/page.js", *(name for name in of_rooms if name in assets.script_modules())]


def render_report(
    trace: Trace,
    *,
    redact: bool = False,
    note: str | None = None,
    keep: frozenset[str] = frozenset(),
    source_link: str | None = None,
) -> str:
    """Return the text of the file, with `note` on its first page, and without the log.

    Lines of model source link to `source_link`, a template that `source_links.checked` accepts.
    With `redact`, the file contains only texts that provably come from no program, file or machine, and no note."""
    return render_ticket(gather(trace, redact=redact, note=note, keep=keep, source_link=source_link))


def embedded_logs(ticket: Ticket, most_bytes: int) -> list[PackedFile]:
    """Return the packed logs for the report; none if it is redacted."""
    return [] if ticket.redaction is not None else packed_logs(ticket.trace, most_bytes)


def render_ticket(ticket: Ticket, logs: Sequence[PackedFile] = ()) -> str:
    """Return the text of the file with the packed `logs`. Raises StepscopeError if it holds what is redacted."""
    contents, redaction = ticket.contents, ticket.redaction
    data: dict[str, Any] = {}
    for capability in registry.in_report():
        module = capability.module("report")
        data |= module.data(contents) if hasattr(module, "data") else {}
    contents.left_out = list(dict.fromkeys(contents.left_out))  # a second rendering says the same again
    names = scripts()
    template = render.environment(root="#", redacted=redaction is not None).get_template("report/page.html")
    source = SourceLinks(ticket.source_link, source_folder(ticket.trace)) if ticket.source_link else None
    with render.linking_source(source):
        html = template.render(
            contents=SimpleNamespace(**vars(contents), **contents.shown),
            facts=ticket_facts(contents.overview.runs),
            redaction=redaction,
            removed_for_size=ticket.left_out,
            logs=logs,
            generator=Markup(HEAD.decode()),
            note=ticket.note,
            frame=frame(contents.overview),
            section="Overview",
            summary=ticket.answer,
            css=Markup(assets.compact_sheets(assets.FIRST_SHEETS)),
            theme=Markup(assets.content("js/core/theme.js").decode()),
            rooms=[capability.folder for capability in registry.in_report()],
            scripts=packed(
                {
                    "roots": names,
                    "modules": assets.modules_of(*names),
                    "css": assets.compact_sheets(_PACKED_SHEETS),
                }
            ),
            start=Markup(assets.content("js/report/start.js").decode()),
        )
    html = without_dead_links(html, {graph: len(lines) for graph, lines in data.get("wrappers", {}).items()})
    html = with_packed_pages(html, with_shared_code(data))
    ticket.checked("The report", html.encode())
    return html
