"""Builds the context of the page that lists compiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepscope.viewer.compiles.queries.compiles import list_compiles, output_codes
from stepscope.viewer.compiles.queries.stack_trie import StackTrie, stack_trie
from stepscope.viewer.compiles.rows import CompileRow
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import Page, Request
from stepscope.viewer.web.order import Order, in_order, order_of, order_parameters
from stepscope.viewer.web.parameters import LOG, OFFSET, TEXT, number, text

COMPILES_PER_PAGE = 100
STACKS_PER_PAGE = 200
SORTS: dict[str, Callable[[CompileRow], Any]] = {
    "start": lambda row: (row.log, row.start_unix_ns or 0),
    "status": lambda row: row.shown_status,
    "frame": lambda row: (row.function or "", row.file or "", row.line or 0),
    "attempts": lambda row: row.attempts,
    "duration": lambda row: row.duration_ns,
    "cache": lambda row: row.cache,
    "artifacts": lambda row: row.artifacts,
    "reason": lambda row: row.failure or row.recompile_reason or row.graph_break_reason,
}


@dataclass(frozen=True)
class CompilesPage:
    compiles: list[CompileRow]
    """Compiles that match, at most `limit`, starting at `offset`."""
    output_codes: list[int]
    """Number of Inductor wrappers in the log for each of `compiles`."""
    total: int
    """Number of compiles that match."""
    all_compiles: int
    statuses: list[tuple[str, int]]
    """Number of compiles with each status, most frequent first, before `status` is applied."""
    status: str | None
    text: str | None
    log: int | None
    sort: str
    reverse: bool
    offset: int
    limit: int
    trie: StackTrie
    """Stacks of all compiles that match."""


def compiles_page(trace: Trace, request: Request) -> CompilesPage:
    everything = list_compiles(trace)
    status, wanted, log = request.text("status"), request.text("text"), request.optional_id("log")
    order, offset = order_of(request, SORTS, "Compiles"), max(0, request.number("offset") or 0)
    matching = [row for row in everything if (log is None or row.log == log) and _holds(row, wanted)]
    statuses = Counter(row.shown_status for row in matching).most_common()
    matching = [row for row in matching if status is None or row.shown_status == status]
    trie = stack_trie(trace, matching, max(0, request.number("stacks") or 0), STACKS_PER_PAGE)
    order = Order(order.sort or "start", order.reverse)
    rows = in_order(matching, SORTS, order)[offset : offset + COMPILES_PER_PAGE]
    return CompilesPage(
        compiles=rows,
        output_codes=output_codes(trace, rows),
        total=len(matching),
        all_compiles=len(everything),
        statuses=statuses,
        status=status,
        text=wanted,
        log=log,
        sort=order.sort or "start",
        reverse=order.reverse,
        offset=offset,
        limit=COMPILES_PER_PAGE,
        trie=trie,
    )


def _holds(row: CompileRow, text: str | None) -> bool:
    if text is None:
        return True
    held = (row.compile_id, row.frame, row.file, row.failure, row.recompile_reason, row.graph_break_reason)
    return any(text.lower() in part.lower() for part in held if part)


LISTED = (
    text("status", "Only compiles that ended with this status."),
    TEXT,
    LOG,
    *order_parameters(SORTS),
    OFFSET,
    number("stacks", "The number of stacks to pass over."),
)
ROUTES = (Page("/compile", "compiles/list.html", "Compile", CompilesPage, compiles_page, LISTED),)
