"""Every link in every kind of report leads to something in the file; what a finding points to is in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from stepscope.viewer.compiles import report as compiles_report
from stepscope.viewer.graphs import report as graphs_report
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.report.links import route_of, without_dead_links
from stepscope.viewer.steps import report as steps_report
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs import (
    compile_logs,
    compile_summary_logs,
    memory_logs,
    memory_records,
    overflow_log,
    rank_logs,
    synthetic,
)
from tests.logs.synthetic import LogBuilder
from tests.logs.unpacking import whole_report
from tests.viewer.conftest import sample_logs

Opened = Callable[[LogBuilder | bytes], Trace]


def memory() -> LogBuilder:
    log = memory_logs.training(keep=3, allocator=True, end=False)
    log.record(memory_records.mismatch()).record(memory_records.growth([(0, 4), (2, 4)], ["list of 3"]))
    return log.record(memory_records.recompute())


LOGS: dict[str, Callable[[], LogBuilder]] = {
    "launches": synthetic.recorded,
    "died": lambda: synthetic.recorded(end=False),
    "values": overflow_log.recorded,
    "memory": memory,
    "compiles": compile_logs.run,
    "breaks": compile_summary_logs.with_breaks,
    "recompiles": compile_summary_logs.with_recompiles,
    "caches": compile_summary_logs.with_caches,
    "draft_export": compile_summary_logs.with_draft_export,
    "pytorch_alone": lambda: synthetic.compile_records(LogBuilder()),
}


def dead_links(html: str) -> list[str]:
    """Links of the body that lead to nothing in it; places in code that a script shows are not looked at."""
    body = html.partition("<body")[2]
    routes = {route_of(unescape(route)) for route in re.findall(r'data-route="([^"]*)"', body)}
    ids = set(map(unescape, re.findall(r'\sid="([^"]*)"', body)))
    dead = []
    for href in map(unescape, re.findall(r'<a\b[^>]*?\shref="([^"]*)"', body)):
        address, _, place = href.removeprefix("#").partition("#")
        route = route_of(address)
        if href.startswith("#/"):
            there = not place or f"{route}#{place}" in ids or place in ids or re.fullmatch(r"L\d+", place)
            dead += [] if route in routes and there else [href]
        elif not href.startswith("https://example.org/") and (not href.startswith("#") or href[1:] not in ids):
            dead.append(href)
    return dead


@pytest.mark.slow
@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize("name", LOGS)
def test_no_link_is_dead(opened: Opened, name: str, redact: bool) -> None:
    html = whole_report(opened(LOGS[name]()), redact=redact)
    assert html.count(' href="#/') > 5
    assert not dead_links(html)


@pytest.mark.slow
def test_findings_about_ranks_lead_to_both_sides(tmp_path: Path) -> None:
    logs = rank_logs.with_change(3, changed=1, at=1, schedule=rank_logs.SCHEDULE[:2], operator="cos")
    with open_trace(rank_logs.write(tmp_path, logs)) as trace:
        pages = {finding.page for finding in overview(trace).findings if finding.kind == "rank_divergence"}
        for redact in (False, True):
            html = whole_report(trace, redact=redact)
            assert pages
            assert not dead_links(html)
            links = set(map(unescape, re.findall(r'<a href="#([^"]*)"', html)))
            assert pages <= links


def test_what_findings_point_to_comes_first(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_report, "MOST_STEPS", 0)
    monkeypatch.setattr(graphs_report, "MOST_GRAPHS", 0)
    monkeypatch.setattr(compiles_report, "MOST_COMPILES", 0)
    trace = opened(compile_summary_logs.with_breaks())
    html = whole_report(trace)
    findings = overview(trace).findings
    assert findings
    for finding in findings:
        assert f'data-route="{route_of(finding.page)}"' in html or finding.page == "/problems"
    assert not dead_links(html)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multi_rank_schedule", "comp_failure.log"])
def test_samples_have_no_dead_links(name: str, tmp_path: Path) -> None:
    folder = sample_logs()
    if folder is None:
        pytest.skip("no sample logs")
    for path in sorted((folder / name).iterdir()) if (folder / name).is_dir() else [folder / name]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with open_trace(tmp_path) as trace:
        assert not dead_links(whole_report(trace))


def test_a_dead_link_becomes_plain_text_and_a_dead_place_its_page() -> None:
    start = '<body><div data-route="/a"></div><a class="x" href="#/a">1</a>'
    html = f'{start}<a class="x" href="#/b">2</a><a href="#/a#L9">3</a>'
    assert without_dead_links(html, {}) == f'{start}<a class="x">2</a><a href="#/a">3</a>'


@pytest.mark.parametrize(
    ("address", "route"),
    [
        ("/steps/3?log=1&launch=7", "/steps/3?log=1"),
        ("/steps/3", "/steps/3?log=0"),
        ("/graphs/2/memory?call=4", "/graphs/2/memory"),
        ("/ranks/difference?right=2&aspect=graphs&left=1", "/ranks/difference?aspect=graphs&left=1&right=2"),
        ("/curves?moment=after&site=1&argument=0&statistic=max", "/curves?site=1&argument=0&moment=after"),
        ("/", "/"),
        ("", "/"),
    ],
)
def test_route_of(address: str, route: str) -> None:
    assert route_of(address) == route
