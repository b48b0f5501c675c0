"""The report: one file that needs nothing, and its redacted form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from stepscope.tracer.aoti.printed_log import UNKNOWN_END
from stepscope.viewer.graphs import report as graphs_report
from stepscope.viewer.report import write as report_write
from stepscope.viewer.steps import report as steps_report
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web import assets, registry
from tests.logs import compile_summary_logs, synthetic
from tests.logs.synthetic import LogBuilder
from tests.logs.unpacking import data_of, whole_report

Opened = Callable[[LogBuilder | bytes], Trace]


@pytest.mark.slow
def test_report_needs_nothing_else(opened: Opened) -> None:
    html = whole_report(opened(synthetic.recorded()))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", html)
    assert not re.search(r'(?:src|href)="(?!data:|#)', html)
    assert "default-src 'none'" in html
    assert len(html.encode()) < 1_000_000


def test_report_holds_the_scripts_that_it_uses_and_no_others() -> None:
    known, roots = assets.script_modules(), {*report_write.scripts()}
    held = assets.modules_of(*report_write.scripts())
    named = {name: set(re.findall(r'"(#js/[^"]+)"', known[name].read_text("utf-8"))) for name in held}
    assert roots.union(*named.values()) == set(held) < set(known)


@pytest.mark.slow
@pytest.mark.parametrize("room", [capability.folder for capability in registry.in_report()])
def test_a_report_without_a_capability_lacks_its_pages_alone(
    room: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = opened(synthetic.recorded())
    of_all = set(re.findall(r'data-route="([^"?]*)', whole_report(trace)))
    others = tuple(capability for capability in registry.CAPABILITIES if capability.folder != room)
    monkeypatch.setattr(registry, "CAPABILITIES", others)
    html = whole_report(trace)
    kept = set(re.findall(r'data-route="([^"?]*)', html))
    assert {"/", "left out"} <= kept < of_all or room in ("compare", "memory", "ranks")
    assert f"#js/{room}/report.js" not in report_write.scripts()


def test_a_note_is_text_on_the_first_page(opened: Opened) -> None:
    trace = opened(synthetic.recorded())
    first = whole_report(trace, note="seen with <b>driver 555</b>").partition('data-route="/steps')[0]
    assert "seen with &lt;b&gt;driver 555&lt;/b&gt;" in first
    assert "report-note" not in whole_report(trace).partition("<main")[2]


@pytest.mark.slow
def test_report_is_the_same_each_time(opened: Opened) -> None:
    trace = opened(synthetic.recorded())
    assert whole_report(trace) == whole_report(trace)


@pytest.mark.slow
def test_calls_whose_times_nobody_measured_have_their_launches(opened: Opened) -> None:
    """As those are that a debug printer told of: when a call ended is not known."""
    log = LogBuilder(4711).record(synthetic.run()).record(synthetic.graph())
    for number in range(2):
        batch = synthetic.calls(10 * number, 0, synthetic.MONOTONIC_NS + 5_000 * number)
        ends = [UNKNOWN_END] * len(batch.end_ns)
        log.record(replace(batch, calls=replace(batch.calls, state=["printed", "printed"]), end_ns=ends))
    data = data_of(whole_report(opened(log)))
    assert [len(launches) for _, launches in data["calls"]] == [4, 4]


@pytest.mark.slow
def test_launches_of_equal_calls_share_their_description(opened: Opened) -> None:
    data = data_of(whole_report(opened(synthetic.recorded(steps=3))))
    assert [len(panels) for panels in data["panels"]] == [4]
    described = [launch for _, launches in data["calls"] for launch in launches]
    shown = [launch for timeline in data["steps"] for launch in timeline["launches"]["launch"]]
    assert sorted(described) == sorted(shown)


@pytest.mark.slow
def test_dynamic_calls_keep_their_own_shapes(opened: Opened) -> None:
    log = LogBuilder().record(synthetic.run())
    log.record(synthetic.graph(dynamic=True)).record(synthetic.tensors(0, 4)).record(synthetic.tensors(10, 6))
    for call in (0, 10):
        log.record(synthetic.calls(call, call // 10, synthetic.MONOTONIC_NS + call * 1_000))
    data = data_of(whole_report(opened(log)))
    assert len(data["panels"]) == 2


def test_report_says_what_it_leaves_out(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_report, "MOST_STEPS", 1)
    monkeypatch.setattr(steps_report, "MOST_PANELS", 0)
    monkeypatch.setattr(graphs_report, "MOST_CODE_CHARS", 10)
    html = whole_report(opened(synthetic.recorded(steps=3)))
    assert "2 of 3 steps" in html
    assert "arguments and code of 4 launches" in html
    assert data_of(html)["panels"] == [[]]
    assert "generated code of 1 graphs" in html


def test_script_end_in_a_name_stays_data(opened: Opened) -> None:
    log = LogBuilder().record(synthetic.run(argv=["</script><img src=x onerror=alert(1)>.py"]))
    html = whole_report(opened(log))
    assert "<img" not in html


def test_report_of_a_log_that_pytorch_wrote(opened: Opened) -> None:
    html = whole_report(opened(synthetic.compile_records(LogBuilder())))
    assert "stepscope run -- python train.py" in html


def test_links_to_compiles_lead_to_their_pages(opened: Opened) -> None:
    log = compile_summary_logs.compiled(compile_summary_logs.compiled(LogBuilder(), 0, 0), 0, 0)
    html = whole_report(opened(log))
    pages = set(re.findall(r'data-route="([^"]+)"', html))
    links = set(re.findall(r'href="#(/compile/[^"#]+)', html))
    assert "/compile/r1%3A0_0?log=0" in links <= pages
    places = re.findall(r'href="#(/compile/[^"#]+#artifacts)"', html)
    assert places
    assert all(html.count(f' id="{place}"') == 1 for place in places)


@pytest.mark.slow
def test_redacted_report_holds_no_source_path_or_argument(opened: Opened) -> None:
    trace = opened(synthetic.recorded(argv=["/home/someone/train.py", "--token", "hunter2"]))
    open_text, text = (
        html + json.dumps(data_of(html)) for html in (whole_report(trace), whole_report(trace, redact=True))
    )
    for secret in (
        "/src/model.py",
        "/src/",
        "hunter2",
        "y = (x @ w).relu()",
        "empty_strided_cpu",
        "someone",
        "model.py",
    ):
        assert secret in open_text, secret
        assert secret not in text, secret
    assert re.search(r"file_\d+\.py", text)
    assert "cpp_fused_relu_0" in text
    assert "[4, 8]" in text
