"""The pages about values: what they show, what they say when there is nothing, and names that are no plain names."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.overview.rows import Counts, Finding
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values import page as values_page
from stepscope.viewer.values import report as values_report
from stepscope.viewer.values.filters import spread_text
from stepscope.viewer.values.rows import Spread
from stepscope.viewer.web import render
from stepscope.viewer.web.addresses import slug
from stepscope.viewer.web.frame import FindingLink, PageFrame
from tests.logs import memory_logs, overflow_log, synthetic
from tests.logs.synthetic import LogBuilder
from tests.logs.unpacking import whole_report
from tests.viewer.client import Client

Opened = Callable[[LogBuilder | bytes], Trace]

HOSTILE = "</script><img src=x onerror=alert(1)>'\"&/..%2F?#{{7*7}} ✖‮"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    with open_trace(overflow_log.recorded(8).write(tmp_path_factory.mktemp("trace") / "values.log")) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(trace: Trace) -> Client:
    return Client(trace)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    names = {"kernel": HOSTILE, "buffer": HOSTILE, "mm": "a/b.json"}
    log = overflow_log.recorded(8, names=names)
    with open_trace(log.write(tmp_path_factory.mktemp("trace") / "hostile.log")) as opened:
        yield Client(opened)


@pytest.mark.slow
def test_kernel_page_says_what_varies_and_what_never_does(client: Client) -> None:
    text = re.sub(r"<[^>]+>|\s+", " ", client.get("/kernels/extern_kernels.mm").text)
    text = re.sub(" +", " ", text)
    assert "max 64 … 65,504" in text
    assert "no NaN, −inf, zero, subnormal" in text
    assert "Launches 8" in text


def test_buffer_page_shows_versions_with_their_numbers(client: Client) -> None:
    html = client.get("/graphs/0/buffers/buf0").text
    assert 'data-plot="buffer"' in html
    assert "65,504" in html
    assert "[1, 1]" in html, "the first infinity, as an index"
    assert '/steps/5?log=0&amp;launch=20"' in html


def test_page_data_holds_only_what_is_drawn(client: Client) -> None:
    found = re.search(r'id="page-data">(.*?)</script>', client.get("/graphs/0/buffers/buf0").text, re.DOTALL)
    assert found
    assert json.loads(found[1])["buffer"]["sites"] == []
    assert client.get("/graphs/0/buffers/buf0.json").json()["detail"]["sites"]


def test_a_memory_statement_leads_to_its_line_without_code_too(opened: Opened) -> None:
    client = Client(opened(memory_logs.training()))
    lines = re.findall(r'href="/graphs/0#(L\d+)"', client.get("/graphs/0/buffers/buf0").text)
    graph = client.get("/graphs/0").text
    assert lines
    assert "source is not in this log" in graph
    assert [graph.count(f' id="{line}"') for line in lines] == [1] * len(lines)


def test_values_page_lists_the_worst_first(client: Client) -> None:
    worst = client.get("/values.json").json()["worst"]
    assert [(row["kernel"], row["health"], row["first_step"], row["cells"]) for row in worst] == [
        ("cpp_fused_relu_0", "nan", 5, 3),
        ("extern_kernels.mm", "positive_infinity", 5, 3),
    ]


def test_curve_begins_with_the_statistic_of_the_address(client: Client) -> None:
    asked = "/curves.json?site=0&argument=2&moment=after"
    assert client.get(asked).json()["statistic"] == "largest"
    assert client.get(f"{asked}&statistic=mean").json()["statistic"] == "mean"
    assert client.get(f"{asked}&statistic=nothing").json()["statistic"] == "largest"
    shown = client.get(asked).json()
    assert [(row["name"], row["shown_as"]) for row in shown["others"]] == [
        ("arg0_1", "before"),
        ("arg1_1", "before"),
        ("buf0", "after"),
    ]
    assert shown["curve"]["limit"] == overflow_log.LIMIT


@pytest.mark.slow
def test_rows_of_several_processes_say_whose_they_are(tmp_path: Path) -> None:
    for rank in range(2):
        overflow_log.recorded(4, rank=rank, world_size=2, pid=4711 + rank).write(tmp_path / f"rank_{rank}.log")
    with open_trace(tmp_path) as opened:
        client = Client(opened)
        detail = client.get("/kernels/extern_kernels.mm.json").json()["detail"]
        assert {(row["log"], row["site"]) for row in detail["arguments"]} == {(0, 0), (1, 4)}
        assert {row["log"] for row in detail["launches"]} == {0, 1}
        assert client.get("/graphs/1/buffers/buf0.json").json()["detail"]["log"] == 1
        assert client.get("/curves.json?site=4&argument=2").json()["curve"]["log"] == 1
        for path in ("/kernels/extern_kernels.mm", "/graphs/1/buffers/buf0", "/curves?site=4&argument=2"):
            assert "rank 1" in re.sub(r"<header.*?</nav>", "", client.get(path).text, flags=re.DOTALL), path


@pytest.mark.slow
def test_parts_of_a_complex_argument_are_rows_of_their_own(tmp_path: Path) -> None:
    log = LogBuilder().record(synthetic.run(level="values"))
    log.record(overflow_log.graph())
    parts = replace(overflow_log.layout(), argument=[0, 0, 2, 0], part=["real", "imag", None, None])
    log.record(
        replace(parts, dtype=["complex64", "complex64", "float16", "float16"], looked_at=[overflow_log.NUMEL] * 4)
    )
    log.record(synthetic.calls(0, 0, synthetic.MONOTONIC_NS)).record(overflow_log.values(0, 64.0))
    with open_trace(log.write(tmp_path / "complex.log")) as opened:
        client = Client(opened)
        rows = client.get("/kernels/extern_kernels.mm.json").json()["detail"]["arguments"]
        assert [(row["argument"], row["part"], row["moment"], row["rows"]) for row in rows] == [
            (0, "real", "before", 1),
            (0, "imag", "before", 1),
            (2, None, "after", 1),
        ]
        html = client.get("/kernels/extern_kernels.mm").text
        for part in ("real", "imag"):
            assert client.get(f"/curves?site=0&argument=0&part={part}&moment=before").status_code == 200
            assert f"part={part}" in html


@pytest.mark.parametrize("path", ["/kernels/extern_kernels.mm", "/graphs/0/buffers/buf0", "/values"])
def test_without_values_the_pages_say_how_to_record_them(opened: Opened, path: str) -> None:
    client = Client(opened(synthetic.recorded()))
    assert "stepscope run --level values -- python train.py" in client.get(path).text


def test_a_run_that_was_asked_for_values_is_not_told_to_ask_for_them(opened: Opened) -> None:
    text = Client(opened(synthetic.recorded(level="values"))).get("/values").text
    assert "--level values" not in text
    assert "/problems#not-recorded" in text


@pytest.mark.slow
def test_hostile_names_have_pages_and_stay_text(hostile: Client) -> None:
    paths = [f"/kernels/{slug(HOSTILE)}", f"/graphs/0/buffers/{slug(HOSTILE)}", f"/kernels/{slug('a/b.json')}"]
    for path in [*paths, "/kernels", "/graphs/0/buffers", "/values", "/curves?site=0&argument=2", "/graphs/0", "/"]:
        answer = hostile.get(path)
        assert answer.status_code == 200, path
        assert "<img" not in answer.text
        assert "{{7*7}}" in answer.text or "49" not in answer.text
    assert hostile.get(f"{paths[0]}.json").json()["detail"]["row"]["kernel"] == HOSTILE
    assert hostile.get(f"{paths[1]}.json").json()["detail"]["row"]["buffer"] == HOSTILE


@pytest.mark.slow
def test_every_link_of_the_pages_leads_somewhere(hostile: Client) -> None:
    seen: set[str] = set()
    for path in ("/kernels", "/graphs/0/buffers", "/values", "/curves?site=0&argument=2", f"/kernels/{slug(HOSTILE)}"):
        seen |= set(re.findall(r'href="(/[^"#]*)', hostile.get(path).text))
    for href in sorted(seen):
        if not href.startswith("/static"):
            assert hostile.get(href.replace("&amp;", "&")).status_code in {200, 303}, href


def test_a_window_of_the_map_and_its_worst_launch(client: Client) -> None:
    window = "first_site=0&last_site=1&first_step=4&last_step=6"
    heat = client.get(f"/values.json?{window}").json()["heat"]
    assert (heat["steps"], len(heat["sites"]), heat["launches"]) == ([4, 5, 6], 2, [])
    html = client.get(f"/values?{window}").text
    assert "Launch sites 1 to 2 of 4 in order of execution, steps 4 to 6 of 8" in html
    assert '/values?first_site=0&amp;last_site=1&amp;first_step=1&amp;last_step=3&amp;log=0"' in html
    assert client.get(f"/values/launch?{window}").headers["location"] == "/steps/5?log=0&launch=21"
    for wrong in ("first_step=6&last_step=4", "log=3", "first_site=x", "first_site=-1"):
        assert client.get(f"/values?{wrong}").status_code == 404
        assert client.get(f"/values/launch?{wrong}").status_code == 404
    assert "No launches are in this part" in client.get("/values?first_step=100").text
    assert client.get("/values/launch?first_step=100").status_code == 404


def test_the_page_says_what_a_cell_joins(trace: Trace) -> None:
    from stepscope.viewer.values.queries.heatmap import heat_map

    page = values_page.values_page_of(trace, heat_map(trace, 0, most_rows=2, most_columns=3))
    template = render.environment().get_template("values/page.html")
    shown = {"frame": frame(Counts(1, 0, 0, 0, 4, 32, 32, 8, None)), "section": "Values", "import_map": ""}
    html = template.render(**render.context_of(page), **shown)
    assert "Each cell combines up to 2 launch sites and 3 steps and shows the worst." in html


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.1, 65504.0, "0.1 … 65,504"),
        (0, 0, "0"),
        ([4, 8], [6, 8], "[4, 8] … [6, 8]"),
        (None, None, "–"),
        (True, True, "1"),
    ],
)
def test_spreads(low: object, high: object, expected: str) -> None:
    assert spread_text(Spread("x", low, high, 2)) == expected


def test_evidence_of_a_finding_is_said_in_a_line(trace: Trace) -> None:
    from stepscope.viewer.overview.queries.overview import overview

    evidence = {
        "in": ["buf16 finite", "<b>"],
        "out": ["NaN in 4,992 of 8,192 elements"],
        "inside": "Nothing inside can be seen.",
        "step": 2,
    }
    finding = Finding("nonfinite", "critical", "NaN made", "rule", evidence, "/steps/2?log=0")
    shown = replace(overview(trace), findings=[finding])
    template = render.environment().get_template("overview/page.html")
    html = template.render(overview=shown, frame=frame(shown.counts), section="Overview", import_map="")
    assert "<li>buf16 finite</li><li>&lt;b&gt;</li>" in html
    assert "NaN in 4,992 of 8,192 elements" in html
    assert "Nothing inside can be seen." in html
    assert html.count("Nothing inside") == 1
    assert '<ol id="finding-links" hidden><li><a href="/x">title</a></li></ol>' in html


def frame(counts: Counts) -> PageFrame:
    link = FindingLink("title", "critical", "/x")
    return PageFrame([], ["train.py"], 0, 0, None, 0, "0", counts, [link])


def data_of(html: str) -> dict[str, Any]:
    found = re.search(r'id="report-data">([^<]*)<', html)
    assert found
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    return data


def test_report_holds_values_of_found_launches_and_their_plots(trace: Trace) -> None:
    html = whole_report(trace)
    data = data_of(html)
    assert {"20", "21"} & set(data["values"])
    assert all(not page["launch"]["values"] for panels in data["panels"] for page in panels)
    assert {"/values?log=0", "/graphs/0/buffers/buf0", "/curves?site=0&argument=2&moment=after"} <= set(data["plots"])
    for route in data["plots"]:
        assert f'data-route="{route.replace("&", "&amp;")}"' in html
    assert len(html) < 600_000


def test_report_lists_the_worst_buffers(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values_report, "MOST_LISTED", 2)
    monkeypatch.setattr(values_report, "MOST_BUFFERS", 3)
    html = whole_report(trace)
    shown = re.search(r'data-route="/graphs/0/buffers">(.*?)<div class="page"', html, re.DOTALL)
    assert shown
    assert re.findall(r'href="#(/graphs/0/buffers/[^"]*)"', shown[1])[0] == "/graphs/0/buffers/buf0"
    assert "the worst 2 of" in shown[1]
    assert len([route for route in data_of(html)["plots"] if "/buffers/" in route]) == 3
    assert html.count('data-route="/graphs/0/buffers/') == 3


@pytest.mark.slow
def test_report_without_values_says_so(opened: Opened) -> None:
    html = whole_report(opened(synthetic.recorded()))
    assert data_of(html)["values"] is None
    assert 'data-route="/values?log=0"' in html
    assert "stepscope run --level values" in html


@pytest.mark.slow
def test_report_of_hostile_names(tmp_path: Any) -> None:
    log = overflow_log.recorded(8, names={"kernel": HOSTILE, "buffer": HOSTILE})
    with open_trace(log.write(tmp_path / "hostile.log")) as opened:
        for redacted in (False, True):
            assert "<img" not in whole_report(opened, redact=redacted)
