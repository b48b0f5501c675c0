"""Whatever fails costs itself only, is counted and has a name: a record, a row, a kind of finding, a part of a page."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.schema.steps import StepMarks, Steps
from stepscope.viewer import cli
from stepscope.viewer.findings.crash import crash
from stepscope.viewer.findings.values import storage_overlap
from stepscope.viewer.ingest.logs import read_logs
from stepscope.viewer.ingest.recorder.graph_rows import GraphRows
from stepscope.viewer.ingest.rows import IndexRows
from stepscope.viewer.overview.queries.damage import problem_counts, problems
from stepscope.viewer.overview.queries.overview import first_page, overview
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder, recorded
from tests.logs.unpacking import whole_report
from tests.viewer.client import Client
from tests.viewer.conftest import sample_logs
from tests.viewer.crash.test_crash import PID, ring

Open = Callable[[LogBuilder | bytes], Trace]
EDGE = 2**63 - 1


def fails(*_: Any, **__: Any) -> Any:
    raise OverflowError("int too large\nto convert")


def test_an_attempt_that_cannot_be_is_unknown(opened: Open) -> None:
    log = recorded().data + b'V0314 09:27:00.000000 4711 a.py:1] {"describe_storage": {"id": 3}, "frame_id": 0, ' \
        b'"frame_compile_id": 0, "attempt": %d}\n' % EDGE  # fmt: skip
    trace = opened(log)
    assert overview(trace).counts.launches == 12
    assert problem_counts(trace) == {"absurd_value": 1}


@pytest.mark.parametrize("number", [EDGE, -EDGE - 1, 2**63, 2**53 + 1])
def test_a_number_that_cannot_be_costs_its_record(opened: Open, number: int) -> None:
    bad = recorded(steps=1).data.replace(b'"site":[3,0,1,2]', b'"site":[3,0,1,%d]' % number)
    trace = opened(bad)
    assert overview(trace).counts.graphs == 1
    assert overview(trace).counts.launches == 0
    assert problem_counts(trace)["wrong_md5"] == 1
    assert "Launches.site is not a list of valid integers" in str(problems(trace))


def test_times_reach_further_than_other_numbers(opened: Open) -> None:
    log = recorded(steps=1).record(Steps([1], ["train"], ["user"], [2**60], [2**60 + 5]))
    assert overview(opened(log)).counts.steps == 2


@pytest.mark.slow
def test_a_machine_may_run_for_years_before_a_step_ends(opened: Open) -> None:
    after = 5 * 365 * 24 * 3600 * 10**9
    marks = StepMarks(["user", "user"], [0, 0], [None, None], [1, 1], [after, after + 5])
    trace = opened(recorded(steps=1, guesses_steps=True).record(marks))
    assert problem_counts(trace) == {}
    assert [step.by for step in overview(trace).steps] == ["user"]


@pytest.mark.parametrize("mark", [(1, 0, 1, EDGE), (1, 0, 1, -EDGE - 1), (1, EDGE, 1, 5), (1, 0, EDGE, 5)])
def test_a_step_mark_of_the_ring_that_cannot_be_costs_itself(tmp_path: Path, mark: Sequence[int]) -> None:
    path = recorded(end=False, pid=PID, guesses_steps=True).write(tmp_path / f"stepscope_trace_rank_0_{PID}_x.log")
    path.with_name(path.name + ".ring").write_bytes(ring([[8, 3, *mark, 0, 0]]))
    with open_trace(path) as trace:
        assert problem_counts(trace) == {"broken_ring": 1}
        assert {step.by for step in overview(trace).steps} == {"call"}


@pytest.mark.slow
def test_a_row_that_no_index_can_hold_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_bad_rows(*args: Any) -> IndexRows:
        rows = read_logs(*args)
        for number, text in ((2**63, "too large"), (8, "/src/kept.py"), ("no number", "x")):
            rows.add("strings", log=0, id=number, text=text)
        return rows

    monkeypatch.setattr("stepscope.viewer.ingest.logs.read_logs", with_bad_rows)
    with open_trace(recorded().write(tmp_path / "x.log")) as trace:
        assert overview(trace).counts.launches == 12
        found = trace.cursor().execute("SELECT id, text FROM strings ORDER BY id").fetchall()
        assert found == [(7, "/src/model.py"), (8, "/src/kept.py")]
        assert problem_counts(trace) == {"not_understood": 2}
        assert [problem.text[:28] for problem in problems(trace)] == ["a row of the table strings: "] * 2


def test_a_part_of_a_log_that_fails_costs_itself(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GraphRows, "add_tensors", fails)
    trace = opened(recorded())
    assert overview(trace).counts.launches == 12
    assert [problem.text for problem in problems(trace)] == [
        "tensors of a call: OverflowError: int too large\nto convert"
    ]


@pytest.mark.slow
def test_a_kind_of_finding_that_fails_is_told_of(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(storage_overlap, "find", fails)
    trace = opened(recorded(end=False))
    why = "OverflowError: int too large"
    answer = summary(trace)
    kinds = {finding["kind"]: finding for finding in answer["findings"]}
    assert set(kinds) == {"crash", "not_recorded"}
    assert kinds["not_recorded"]["title"] == f"Findings of the kind storage_overlap could not be determined ({why})"
    assert kinds["not_recorded"]["severity"] == "warning"
    gap = {"what": "findings: storage_overlap", "why": why, "log": None, "graph": None, "count": 1}
    assert gap in answer["ingest"]["not_recorded"]
    assert "Findings of the kind storage_overlap could not be determined" in summary_text(trace)
    assert "Findings of the kind storage_overlap could not be determined" in Client(trace).get("/").text
    assert "findings: storage_overlap" in Client(trace).get("/problems").text
    monkeypatch.setattr(crash, "find", lambda _: [])
    log = str(recorded().write(tmp_path / "x.log"))
    for kinds_of_check, code in (("storage_overlap", 1), ("nonfinite", 0)):
        monkeypatch.setattr(sys, "argv", ["stepscope", "check", log, "--fail-on", kinds_of_check])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == code, capsys.readouterr()


def test_a_part_of_a_page_that_fails_costs_itself(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.viewer.steps.page._run_curve", fails)
    client = Client(opened(recorded()))
    page = client.get("/steps")
    assert page.status_code == 200
    text = "The memory of the run could not be shown (OverflowError: int too large)."
    assert text in page.text
    assert client.get("/steps.json").json()["not_shown"] == [text]
    assert "not_shown" not in client.get("/graphs.json").json()


def test_a_part_of_the_first_page_that_fails_costs_itself(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.viewer.overview.queries.overview.list_steps", fails)
    trace = opened(recorded())
    text = "Steps could not be shown (OverflowError: int too large)."
    assert text in first_page(trace).notes
    assert text in Client(trace).get("/").text
    assert text.partition(" (")[0] in summary_text(trace)
    assert summary(trace)["counts"]["launches"] == 12


@pytest.mark.slow
@pytest.mark.parametrize(
    "failing",
    [
        {
            "steps.report.timeline": "Step 1",
            "steps.report.launch_deaths": "How processes died",
            "values.report._collect": "Values",
            "memory.report._collect": "Memory",
        },
        {
            "steps.report.launch_page_of": "Launch 1",
            "graphs.report.graph_page": "Graph 0",
            "values.page.kernel_page_of": "Kernel ",
        },
    ],
    ids=["outer", "inner"],
)
def test_parts_of_a_report_that_fail_cost_themselves(
    opened: Open, monkeypatch: pytest.MonkeyPatch, failing: dict[str, str]
) -> None:
    trace = opened(recorded())
    for name in failing:
        monkeypatch.setattr(f"stepscope.viewer.{name}", fails)
    report = whole_report(trace)
    for said in failing.values():
        assert re.search(rf"{said}[^<]* could not be shown \(OverflowError: int too large\)", report), said
    assert report.count("could not be shown") >= len(failing)
    assert 'data-route="/problems"' in report


def test_a_compile_of_which_only_chromium_events_are_there(opened: Open) -> None:
    event = b'{"name": "backend_compile", "ph": "B", "ts": 1743091661870099.0, "tid": 0, "args": {"compile_id": "0/0"}}'
    log = LogBuilder().torch("chromium_event", {}, event, frame_id=0, frame_compile_id=0, attempt=0)
    client = Client(opened(log))
    for path in ("/compile/0_0?log=0", "/compile/0_0.json?log=0", "/compile/0_0/provenance?log=0", "/compile"):
        assert client.get(path).status_code == 200


@pytest.mark.slow
def test_a_link_to_a_compile_without_records_leads_to_its_graph(opened: Open) -> None:
    whole = recorded().data
    lost = [line for line in whole.split(b"\nV") if b'"frame_id"' not in line]
    client = Client(opened(b"\nV".join(lost)))
    answer = client.get("/compile/0_0?log=0")
    assert (answer.status_code, answer.headers["location"]) == (303, "/graphs/0")
    assert client.get("/graphs/0").status_code == 200
    assert client.get("/compile/9_9?log=0").status_code == 404


@pytest.mark.parametrize(
    "name", ["attempt_at_int64_edge", "chromium_event_without_attempt", "values_site_at_int64_edge"]
)
def test_faulty_logs_open(name: str, tmp_path: Path) -> None:
    samples = sample_logs()
    log = samples.parent / "faults" / "logs" / f"{name}.log" if samples is not None else None
    if log is None or not log.is_file():
        pytest.skip("needs the logs")
    with open_trace(log) as trace:
        assert summary(trace)["ingest"]["skipped"]
        assert Client(trace).get("/").status_code == 200
