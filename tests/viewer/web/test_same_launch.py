"""A launch has one number wherever it stands: on pages, in findings, reports and exports, and in the search box."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.viewer.exports.write import export
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.report.markdown import render_markdown
from stepscope.viewer.report.ticket import gather
from stepscope.viewer.repro.write import launch_in_step
from stepscope.viewer.search.queries.jump import jumps
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.unpacking import data_of, whole_report
from tests.logs.value_logs import FINE, NAN, Program, ValueLog, attention
from tests.viewer.client import Client

KERNELS = ("extern_kernels.bmm", "cpp_fused__softmax_0", "extern_kernels.bmm", "cpp_fused_log_0")
"""Kernels of the four launches of a step, three by one graph and one by another."""
STEPS, BAD_STEP = 3, 2
EXPECTED = [(rank, step, kernel) for rank in (0, 1) for step in range(STEPS) for kernel in KERNELS]
"""Rank, step and kernel of each launch by its number."""
BAD = [EXPECTED.index((rank, BAD_STEP, KERNELS[-1])) for rank in (0, 1)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    folder = tmp_path_factory.mktemp("trace")
    for rank in (0, 1):
        programs = attention(), Program(1, "inference", "1/0").launch(KERNELS[-1], ["primals_1"], ["buf0"], "cpp")
        log = ValueLog(*programs, pid=4711 + rank, rank=rank, world_size=2)
        for step in range(STEPS):
            log.call(programs[0], step)
            log.call(programs[1], step, buf0_after=NAN if step == BAD_STEP else FINE)
        log.end().write(folder / f"stepscope_trace_rank_{rank}_{4711 + rank}_aa.log")
    with open_trace(folder) as opened:
        yield opened


def test_tables(trace: Trace) -> None:
    query = "SELECT launch, launches.log, step, kernel FROM launches JOIN sites USING (site) ORDER BY launch"
    assert sql.rows(trace, query) == [(number, *known) for number, known in enumerate(EXPECTED)]


def test_findings_and_the_first_page(trace: Trace) -> None:
    text = summary_text(trace)
    assert [line.strip() for line in text.splitlines() if line.startswith("  launch ")] == [
        f"launch {BAD[0]} of step {BAD_STEP}"  # the other log has the same finding
    ]
    found = summary(trace)["findings"]
    assert [(one["launch"], one["evidence"]["launch"]) for one in found] == [(number, number) for number in BAD]
    page = Client(trace).get("/").text
    for rank, number in enumerate(BAD):
        assert f'href="/steps/{BAD_STEP}?log={rank}&amp;launch={number}"' in page


@pytest.mark.parametrize("number", [0, 7, 11, 14, 23])
def test_pages_of_one_launch(trace: Trace, number: int) -> None:
    client = Client(trace)
    rank, step, kernel = EXPECTED[number]
    shown = client.get(f"/launches/{number}.json").json()["launch"]
    assert (shown["launch"], shown["log"], shown["step"], shown["site"]["kernel"]) == (number, rank, step, kernel)
    of_step = [other for other, known in enumerate(EXPECTED) if known[:2] == (rank, step)]
    timeline = client.get(f"/steps/{step}.json?log={rank}").json()["timeline"]
    assert timeline["launches"]["launch"] == of_step
    link = f'href="/steps/{step}?log={rank}&amp;launch={number}">step {step} · launch {number}</a>'
    assert link in client.get(f"/kernels/{kernel}").text
    written = next(one["buffer"] for one in shown["site"]["arguments"] if one["role"] == "out")
    assert link in client.get(f"/graphs/{shown['graph']['graph']}/buffers/{written}").text
    for typed in (f"launch {number}", f"#{number}", str(number)):
        jump = jumps(trace, typed)[0]
        assert (jump.kind, jump.label) == ("launch", f"launch {number}")
        assert client.get(jump.page).headers["location"] == f"/steps/{step}?log={rank}&launch={number}"
    assert launch_in_step(trace, of_step.index(number) + 1, step, rank) == number


def test_the_page_of_values(trace: Trace) -> None:
    for rank, number in enumerate(BAD):
        assert f"step {BAD_STEP} · launch {number}<" in Client(trace).get(f"/values?log={rank}").text


@pytest.mark.slow
def test_reports(trace: Trace) -> None:
    report, text = whole_report(trace), render_markdown(gather(trace))
    assert f"open launch {BAD[0]}<" in report
    assert f"launch {BAD[0]}" in text
    assert f'href="#/steps/{BAD_STEP}?log=1&amp;launch={BAD[1]}"' in report
    shown = {number: step["step"] for step in data_of(report)["steps"] for number in _launches(step)}
    assert {number: EXPECTED[number][1] for number in shown} == shown
    assert set(BAD) <= set(shown)


def _launches(step: dict[str, dict[str, list[int]]]) -> list[int]:
    return step["launches"]["launch"]


def test_the_chrome_trace(trace: Trace, tmp_path: Path) -> None:
    export(trace, "chrome", "", tmp_path)
    found: dict[int, tuple[int, int, str]] = {}
    for path in tmp_path.iterdir():
        rank = int(re.findall(r"rank_(\d)", path.name)[0])
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        launches = (event for event in events if event.get("cat") == "launch")
        found |= {one["args"]["launch"]: (rank, one["args"]["step"], one["name"]) for one in launches}
    assert found == dict(enumerate(EXPECTED))
