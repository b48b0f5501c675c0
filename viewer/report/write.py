"""Writes a report for a ticket: one HTML file that needs no server and no network."""

from __future__ import annotations

import base64
import gzip
from types import SimpleNamespace
from typing import Any

from markupsafe import Markup

from stepscope.viewer.graphs.queries.source_folder import source_folder
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.summary import summary
from stepscope.viewer.redaction.redactor import Redactor
from stepscope.viewer.report.contents import Contents
from stepscope.viewer.report.links import without_dead_links
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import to_json
from stepscope.viewer.text.source_links import SourceLinks
from stepscope.viewer.web import assets, registry, render
from stepscope.viewer.web.frame import frame
from stepscope.viewer.web.parts import failures


def scripts() -> list[str]:
    """Return the scripts that a report loads first: its own, and those of the capabilities with pages in it."""
    of_rooms = [f"#js/{capability.folder}/report.js" for capability in registry.in_report()]
    return ["#js/core/page.js", "#js/report/page.js", *(name for name in of_rooms if name in assets.script_modules())]


def render_report(
    trace: Trace, *, redact: bool = False, note: str | None = None, source_link: str | None = None
) -> str:
    """Return the text of the file, with `note` on its first page.

    Lines of model source link to `source_link`, a template that `source_links.checked` accepts.
    With `redact`, the file contains only texts that provably come from no program, file or machine, and no note."""
    contents, answer = collect(trace), summary(trace)
    if redact:
        redactor = Redactor()
        contents, answer = redactor.redact(contents), redactor.redact(answer)
        contents.left_out += ["source and generated code", *(["the note"] if note else [])]
    data: dict[str, Any] = {}
    for capability in registry.in_report():
        module = capability.module("report")
        data |= module.data(contents) if hasattr(module, "data") else {}
    names = scripts()
    template = render.environment(root="#", redacted=redact).get_template("report/page.html")
    links = SourceLinks(source_link, source_folder(trace)) if source_link and not redact else None
    with render.linking_source(links):
        html = template.render(
            contents=SimpleNamespace(**vars(contents), **contents.shown),
            note=None if redact else note,
            frame=frame(contents.overview),
            section="Overview",
            summary=answer,
            css=Markup(assets.content(assets.SHEET).decode()),
            theme=Markup(assets.content("js/core/theme.js").decode()),
            rooms=[capability.folder for capability in registry.in_report()],
            scripts=names,
            imports=assets.inlined_import_map(*names),
            packed=packed(data),
        )
    return without_dead_links(html, {graph: len(lines) for graph, lines in data.get("wrappers", {}).items()})


def packed(data: Any) -> str:
    return base64.b64encode(gzip.compress(to_json(data).encode(), 9, mtime=0)).decode()


def collect(trace: Trace) -> Contents:
    """Collect the contents of the report; a part that fails is left out and named."""
    contents = Contents(overview(trace))
    with failures() as failed:
        for capability in registry.in_report():
            capability.module("report").collect(trace, contents)
    contents.failed = failed
    if contents.overview.counts.records:
        contents.left_out.append("the records themselves and their payloads")
    return contents
