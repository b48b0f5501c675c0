"""Checks damaged logs end to end: a plain reader reads the same, and every page, finding and answer is there.

Several cases are logs of one folder, so that one index serves them; `failing` says which of them fail alone.
"""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import orjson

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.report.ticket import gather
from stepscope.viewer.report.write import render_ticket
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.fuzz.cases import Case
from tests.logs.plain_reader import FORM, places, records
from tests.viewer.client import Client
from tests.viewer.crawling import EVERY_PAGE, crawl

GROUP = 250
"""Cases of one folder. The pages of a larger folder cost little more, so a case costs less."""
MOST_PAGES, TWIN_EVERY = 20, 3
NOT_SHOWN = "could not be shown"
"""Words of a page that lacks a part because of an error."""
_LEFT_OUT = {"newer_format", "not_a_log", "empty_file", "not_read", "launcher_prefix"}


def failing(cases: Sequence[Case], with_report: bool = False) -> list[tuple[Case | None, str]]:
    """Return the cases that fail, each with the traceback; None stands for cases that fail only together."""
    together = _error(cases, with_report)
    if together is None:
        return []
    if len(cases) == 1:
        return [(cases[0], together)]
    half = len(cases) // 2
    found = [*failing(cases[:half], with_report), *failing(cases[half:], with_report)]
    return found or [(None, together)]


def _error(cases: Sequence[Case], with_report: bool) -> str | None:
    try:
        check(cases, with_report)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # DuckDB and Rust raise errors that are no exceptions
        return traceback.format_exc()
    return None


def write(case: Case, folder: Path) -> Path:
    path = folder / f"stepscope_trace_rank_{case.number}.log{case.suffix}"
    path.write_bytes(case.data if case.packed is None else case.packed)
    if case.ring is not None:
        path.with_name(f"{path.name}.ring").write_bytes(case.ring)
    return path


def check(cases: Sequence[Case], with_report: bool = False) -> None:
    """Raise AssertionError, or any other error, if something is lost or cannot be shown."""
    with tempfile.TemporaryDirectory() as text:
        logs = Path(text, "logs")
        logs.mkdir()
        by_name = {write(case, logs).name: case for case in cases}
        try:
            opened = open_trace(logs, index_dir=Path(text, "index"))
        except StepscopeError as error:
            if len(cases) == 1 and (not records(cases[0].data) or "format version" in str(error)):
                return  # the only log is no log any more, or is of a newer format
            raise
        with opened as trace:
            for number, log in enumerate(trace.logs):
                _check_log(trace, number, by_name[log.path.name])
            _check_answers(trace)
            if with_report:
                _check_report(trace)


def _check_log(trace: Trace, number: int, case: Case) -> None:
    """Check that records and damaged lines are those of a plain reader."""
    found = sql.rows(trace, "SELECT reason, line, byte FROM problems WHERE log = ?", [number])
    if _LEFT_OUT & {reason for reason, *_ in found}:
        return
    asked = "SELECT line, byte, event FROM records WHERE log = ? ORDER BY byte"
    read = sql.rows(trace, asked, [number])
    assert read == [(one.line, one.byte, one.event or "unreadable") for one in records(case.data)], case[:3]
    form = {place for place in found if place[0] in FORM and (case.packed is None or place[1] is not None)}
    expected = places(case.data)
    assert form == expected, (case[:3], form ^ expected)


def _check_answers(trace: Trace) -> None:
    orjson.dumps(summary(trace))
    assert summary_text(trace)
    findings = all_findings(trace)
    pages = list(dict.fromkeys(finding.page for finding in findings))[: MOST_PAGES // 2]
    client = _Client(trace)
    start = (*EVERY_PAGE, *(page.partition("#")[0] for page in pages))
    seen = crawl(client, most=len(start) + MOST_PAGES, start=start)
    bad = {address: status for address, status in seen.items() if status >= 400}
    assert not bad, bad
    for number, (address, text) in enumerate([*client.pages.items()]):
        assert NOT_SHOWN not in text, (address, text[text.index(NOT_SHOWN) - 200 :][:400])
        if number % TWIN_EVERY == 0:
            path, _, query = address.partition("?")
            twin = client.get(f"{'/index' if path == '/' else path}.json?{query}")
            assert twin.status_code == 200, (address, twin.text[:400])
            orjson.loads(twin.content)


class _Client(Client):
    """Keeps the texts of the pages that it asks for."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.pages: dict[str, str] = {}

    def get(self, path: str, **options: Any) -> httpx.Response:
        answer = super().get(path, **options)
        if answer.status_code == 200 and answer.headers["content-type"].startswith("text/html"):
            self.pages[path] = answer.text
        return answer


def _check_report(trace: Trace) -> None:
    for redact in (False, True):
        ticket = gather(trace, redact=redact)
        assert not ticket.contents.failed, ticket.contents.failed
        assert "</html>" in render_ticket(ticket)
