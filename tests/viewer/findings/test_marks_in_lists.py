"""Signs of findings beside the rows of lists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.memory import growth as growths
from stepscope.viewer.store.trace import Trace
from tests.logs import compile_summary_logs as summary_logs
from tests.logs.memory_logs import training
from tests.logs.memory_records import mismatch, recompute
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]
ROW = re.compile(r"<tr>(?:(?!</tr>).)*</tr>", re.DOTALL)
MARK = re.compile(r'<a class="quiet (\w+)-sign" href="([^"]*)" title="[^"]*" aria-label="([^"]*)">(.)</a>')


def marked(page: str) -> list[tuple[str, tuple[str, str, str, str]]]:
    """Return (text of the row's first link, mark) of each mark in the tables of a page."""
    rows = [row for row in ROW.findall(page) if MARK.search(row)]
    return [(re.findall(r"<a[^>]*>([^<]*)</a>", row)[0], mark) for row in rows for mark in MARK.findall(row)]


@pytest.mark.parametrize(
    ("page", "row"),
    [
        ("/graphs", "graph 0"),
        ("/steps", "step 4"),
        ("/kernels", None),
        ("/graphs/0/buffers", "buf2"),
    ],
)
def test_a_leak_is_marked_where_its_place_is_listed(
    opened: Open, monkeypatch: pytest.MonkeyPatch, page: str, row: str | None
) -> None:
    monkeypatch.setattr(growths, "LEAST_BYTES", 1)
    monkeypatch.setattr(growths, "WARNED_BYTES", 1)
    trace = opened(training(6, keep=99, end=False))
    (finding,) = (found for found in all_findings(trace) if found.kind == "growth")
    found = [(name, mark) for name, mark in marked(Client(trace).get(page).text) if mark[0] == "warning"]
    assert found == [(row or finding.kernel, ("warning", finding.page, f"warning finding: {finding.title}", "▲"))]


def test_compiles_that_a_finding_names_are_marked(opened: Open) -> None:
    trace = opened(summary_logs.with_recompiles())
    wanted = {compile_id for finding in all_findings(trace) for compile_id in finding.compile_ids}
    assert wanted
    assert {row for row, _ in marked(Client(trace).get("/compile").text)} == wanted


def test_a_list_without_findings_has_no_column_for_them(opened: Open) -> None:
    page = Client(opened(training(6))).get("/graphs").text
    assert "graph 0" in page
    assert ">finding</th>" not in page


@pytest.mark.parametrize("page", ["/memory", "/steps"])
def test_a_leak_is_marked_on_the_curve_of_live_bytes(opened: Open, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    monkeypatch.setattr(growths, "LEAST_BYTES", 1)
    monkeypatch.setattr(growths, "WARNED_BYTES", 1)
    trace = opened(training(6, keep=99, end=False))
    (finding,) = (found for found in all_findings(trace) if found.kind == "growth")
    held = re.search(r'id="page-data">([^<]*)<', Client(trace).get(page).text)
    assert held
    marks = {mark["step"]: mark for mark in json.loads(held[1])["marks"]}
    assert marks[finding.step] == {"step": finding.step, "severity": "warning", "sign": "▲", "title": finding.title}


def test_findings_about_the_memory_of_a_graph_are_marked_at_their_nodes(opened: Open) -> None:
    trace = opened(training(3).record(mismatch()).record(recompute(graph=0, compile_id="0/0")))
    findings = {finding.kind: finding for finding in all_findings(trace)}
    page = Client(trace).get("/graphs/0/memory").text
    held = re.search(r'id="page-data">([^<]*)<', page)
    assert held
    marks = {mark["title"]: (mark["snode"], mark["snode_index"], mark["sign"]) for mark in json.loads(held[1])["marks"]}
    assert marks == {findings[kind].title: ("op1", 1, "▲") for kind in ("lifetime_mismatch", "recompute_mismatch")}
    shown = page.partition("Findings about the memory of this graph")[2].partition("</ul>")[0]
    links = re.findall(r'href="([^"]*)"', shown)
    assert findings["recompute_mismatch"].page in links
    assert any("snode=1" in link for link in links)
    assert "Findings about the memory" not in Client(trace).get("/graphs/1/memory").text
