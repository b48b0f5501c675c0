"""The figures of a recorded program are the same on every page, in the summary and in the report."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest

from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_bytes, format_count, format_ns
from tests.logs.demo import record_demo
from tests.logs.memory_logs import training
from tests.logs.unpacking import whole_report
from tests.viewer.client import Client


@pytest.fixture(scope="module", params=["synthetic", pytest.param("demo", marks=pytest.mark.slow)])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    folder = tmp_path_factory.mktemp("recorded")
    if request.param == "demo":
        record_demo(folder)
    else:
        training(4).write(folder / "recorded.log")
    with open_trace(folder) as opened:
        yield opened


def text_of(page: str) -> str:
    page = re.sub(r"(?s)<(script|style|template)\b.*?</\1>|<span class=\"term-text\".*?</span>", " ", page)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).replace("?", " ").split())


def shown(trace: Trace, path: str) -> str:
    answer = Client(trace).get(path)
    assert answer.status_code == 200
    return text_of(answer.text)


def steps(trace: Trace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Client(trace).get("/steps.json").json()["steps"]
    assert found
    return found


@pytest.mark.slow
def test_the_number_of_launches(trace: Trace) -> None:
    facts = summary(trace)
    launches = facts["counts"]["launches"]
    assert sum(row["launches"] for row in steps(trace)) == launches
    kernels = Client(trace).get("/kernels.json").json()["kernels"]
    assert sum(row["launches"] or 0 for row in kernels if row["kind"] != "subgraph") == launches
    graphs = Client(trace).get("/graphs.json").json()["graphs"]
    assert sum(row["launches"] or 0 for row in graphs) == launches
    for page in (shown(trace, "/"), text_of(whole_report(trace))):
        assert f"Launches {format_count(launches)} " in page
    count = format_count(launches)
    assert re.search(rf"\b{count} launches\b|[Ll]aunches +{count}\b", summary_text(trace))


@pytest.mark.slow
def test_the_duration_and_the_launches_of_a_step(trace: Trace) -> None:
    listed, report = shown(trace, "/steps"), text_of(whole_report(trace))
    for row in steps(trace):
        duration = format_ns(row["duration_ns"])
        assert f"step {row['step']} {duration} " in listed
        assert f"step {row['step']} {duration} " in report
        page = shown(trace, f"/steps/{row['step']}?log={row['log']}")
        assert f"duration {duration} " in page
        assert f" launches {format_count(row['launches'])} " in page
        timeline = Client(trace).get(f"/steps/{row['step']}/timeline.json?log={row['log']}").json()
        assert sum(timeline["launches"]["count"]) == row["launches"]


@pytest.mark.slow
def test_the_peak_of_memory(trace: Trace) -> None:
    memory = summary(trace)["memory"]
    peak = format_bytes(memory["peak_bytes"])
    assert f" {peak}," in shown(trace, "/memory").replace(" ,", ",")
    assert peak in summary_text(trace)
    for graph in summary(trace)["graphs"]:
        for name in ("measured", "estimated"):
            bytes_ = graph[f"{name}_peak_bytes"]
            if bytes_ is not None:
                assert f"{format_bytes(bytes_)} {name}" in shown(trace, "/")
                assert f"{format_bytes(bytes_)} {name}" in shown(trace, "/memory")
                page = shown(trace, f"/graphs/{graph['graph']}/memory")
                assert f"{name} peak {format_bytes(bytes_)}" in page


def test_the_time_of_compiles(trace: Trace) -> None:
    compiles = summary(trace)["compiles"]
    known = [row["duration_ns"] for row in compiles if row["duration_ns"] is not None]
    if known:
        whole = format_ns(sum(known))
        assert f"Compile time {whole} " in shown(trace, "/")
        assert f"Compile time {whole} in " in shown(trace, "/compile-time")
        assert f"Compile time {whole} " in text_of(whole_report(trace))
        assert whole in summary_text(trace)
    listed = shown(trace, "/compile")
    for row in compiles:
        if row["duration_ns"] is not None:
            page = shown(trace, f"/compile/{row['compile_id'].replace('/', '_')}?log=0")
            assert f"duration {format_ns(row['duration_ns'])} " in page
            assert f" {format_ns(row['duration_ns'])} " in listed


def test_the_number_of_findings(trace: Trace) -> None:
    found = summary(trace)["findings"]
    page = Client(trace).get("/?findings=all").text
    assert page.count('<li class="finding ') == len(found)
    report = whole_report(trace)
    assert report.count('<li class="finding ') == len(found)
    said = summary_text(trace)
    assert all(row["title"] in " ".join(said.split()) for row in found)
