"""Leaves out the least useful parts of a report until it fits a size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.report.contents import Contents
from stepscope.viewer.report.packed_logs import PackedFile
from stepscope.viewer.report.ticket import Say, Ticket, silent
from stepscope.viewer.report.write import render_ticket
from stepscope.viewer.text.formats import format_bytes

LARGER = "give a larger --max-size, or use --markdown, which is at most 65 kB."


def rendered(ticket: Ticket, logs: list[PackedFile], most_bytes: int | None, say: Say = silent) -> bytes:
    """Return the HTML file with the packed `logs`, of at most `most_bytes` bytes; `ticket.left_out` names what had to
    be left out. Raises StepscopeError if that is impossible."""
    say("writing the pages")
    html = render_ticket(ticket, logs).encode()
    if most_bytes is None:
        return html
    if len(html) > most_bytes and logs:
        ticket.left_out.append("the packed log")
        html = render_ticket(ticket).encode()
    for what, leave_out in _PARTS:
        if len(html) <= most_bytes:
            return html
        say(f"leaving out {what}")
        if leave_out(ticket.contents):
            ticket.left_out.append(what)
            html = render_ticket(ticket).encode()
    if len(html) > most_bytes:
        raise StepscopeError(f"The smallest report of this trace has {format_bytes(len(html))}: {LARGER}")
    return html


def _code(contents: Contents) -> bool:
    pages = contents.shown.get("graphs", [])
    contents.shown["graphs"] = [replace(page, detail=replace(page.detail, code=None)) for page in pages]
    return any(page.detail.code for page in pages)


def _plots(contents: Contents) -> bool:
    return _emptied(contents, "values", maps=[], magnitudes=[], curves=[])


def _buffers(contents: Contents) -> bool:
    return _emptied(contents, "values", buffers=[], lists=[])


def _panels(contents: Contents) -> bool:
    panels = contents.shown.get("panels", [])
    contents.shown["panels"] = [[] for _ in panels]
    return any(panels)


def _steps(contents: Contents) -> bool:
    """Keep the steps that findings name, or the first one."""
    steps, named = contents.shown.get("steps", []), contents.named_pages()
    kept = [pair for pair in steps if f"/steps/{pair[0].step}?log={pair[0].log}" in named] or steps[:1]
    contents.shown["steps"] = kept
    return len(kept) < len(steps)


def _compiles(contents: Contents) -> bool:
    return _cleared(contents, "compiles")


def _memory(contents: Contents) -> bool:
    contents.mini_curves = []
    return _emptied(contents, "memory", graphs=[], recompute=[])


def _graphs(contents: Contents) -> bool:
    return _cleared(contents, "graphs")


def _cleared(contents: Contents, name: str) -> bool:
    was = bool(contents.shown.get(name))
    contents.shown[name] = []
    return was


def _emptied(contents: Contents, name: str, **parts: Any) -> bool:
    whole = contents.shown.get(name)
    was = whole is not None and any(getattr(whole, part) for part in parts)
    if whole is not None:
        contents.shown[name] = replace(whole, **parts)
    return was


_PARTS: tuple[tuple[str, Callable[[Contents], bool]], ...] = (
    ("the generated code", _code),
    ("the heat maps and curves of values", _plots),
    ("the arguments of launches", _panels),
    ("the pages of buffers", _buffers),
    ("the steps that no finding names", _steps),
    ("the memory curves of graphs", _memory),
    ("the comparison", lambda contents: _cleared(contents, "comparison")),
    ("the pages of compiles", _compiles),
    ("the pages of graphs", _graphs),
)
"""Parts with what each leaves out, the least useful first. Each returns whether there was anything."""
