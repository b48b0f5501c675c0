"""Writes a ticket as a zip archive: the report, its markdown text, and the packed logs with their launch rings."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Mapping

from stepscope.tracer.schema.ring_format import RING_SUFFIX
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.report.fit import LARGER, rendered
from stepscope.viewer.report.markdown import render_markdown
from stepscope.viewer.report.ticket import Say, Ticket, silent
from stepscope.viewer.text.clean import well_formed
from stepscope.viewer.text.formats import format_bytes

_TIME = (1980, 1, 1, 0, 0, 0)
"""Time of every member, so that equal contents give equal archives."""
_FORMS = (".gz", ".zst")


def archive(ticket: Ticket, most_bytes: int | None, say: Say = silent) -> bytes:
    """Return the archive, of at most `most_bytes` bytes. Logs that no finding names are left out first, then the other
    logs, then parts of the report. A redacted ticket has no logs, because they hold all that was removed."""
    logs = {} if ticket.redaction is not None else _packed_logs(ticket, say)
    if ticket.redaction is not None:
        ticket.contents.left_out.append("the logs, which hold everything that was removed")
    html = rendered(ticket, [], None, say)
    data = _zipped(ticket, html, logs)
    named = {finding.log for finding in ticket.contents.overview.findings}
    for log in sorted(logs, key=lambda log: (log in named, -sum(map(len, logs[log].values())))):
        if most_bytes is None or len(data) <= most_bytes:
            break
        ticket.left_out.append(f"log {log}, {next(iter(logs.pop(log)))}")
        html = rendered(ticket, [], None, say)
        data = _zipped(ticket, html, logs)
    while most_bytes is not None and len(data) > most_bytes:
        try:
            html = rendered(ticket, [], len(html) - 1, say)
        except StepscopeError:
            raise StepscopeError(
                f"The smallest archive of this trace has {format_bytes(len(data))}: {LARGER}"
            ) from None
        data = _zipped(ticket, html, logs)
    return ticket.checked("The archive", data)


def _packed_logs(ticket: Ticket, say: Say) -> dict[int, dict[str, bytes]]:
    """Return for each log that can be read its members by name: the packed log, and its ring."""
    found: dict[int, dict[str, bytes]] = {}
    taken: set[str] = set()
    for number, log in enumerate(ticket.trace.logs):
        say(f"packing log {number + 1} of {len(ticket.trace.logs)}")
        name = well_formed(log.path.name)
        for form in _FORMS:
            name = name.removesuffix(form)
        name = f"{number}_{name}" if name in taken else name
        taken.add(name)
        try:
            data = ticket.trace.log_bytes(number, 0, log.size)
        except StepscopeError:
            ticket.left_out.append(f"log {number}, which cannot be read any more")
            continue
        found[number] = {f"logs/{name}.gz": gzip.compress(data, 6, mtime=0)}
        if log.ring is not None:
            found[number][f"logs/{name}{RING_SUFFIX}"] = log.ring
    return found


def _zipped(ticket: Ticket, html: bytes, logs: Mapping[int, Mapping[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "report.md", render_markdown(ticket).encode())
        _add(archive, "report.html", html)
        for members in logs.values():
            for name, data in members.items():
                _add(archive, name, data)
    return out.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    member = zipfile.ZipInfo(name, _TIME)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, data)
