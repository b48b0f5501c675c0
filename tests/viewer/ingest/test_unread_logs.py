"""A log that is left out is named, and keeps no other from being read; a log of ours is never taken for another's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from stepscope.tracer.schema.constants import FORMAT_VERSION
from stepscope.tracer.schema.record import to_payload
from stepscope.tracer.schema.steps import StepMarks
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.queries.damage import problem_counts, problems
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.queries.runs import list_runs, list_steps
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, calls, compile_records, recorded, run
from tests.viewer.client import Client
from tests.viewer.crawling import EVERY_PAGE, crawl

Open = Callable[[LogBuilder | bytes], Trace]
NEWER = FORMAT_VERSION + 1


def newer_beside_another(folder: Path) -> Path:
    recorded(format_version=NEWER).write(folder / "stepscope_trace_rank_0_1_a.log")
    recorded().write(folder / "stepscope_trace_rank_0_2_b.log")
    return folder


def test_a_log_of_a_newer_format_is_left_out_of_its_folder_and_named(tmp_path: Path) -> None:
    with open_trace(newer_beside_another(tmp_path)) as trace:
        assert overview(trace).counts.launches == 12
        assert problem_counts(trace) == {"newer_format": 1}
        (problem,) = problems(trace)
        assert problem.log == "stepscope_trace_rank_0_1_a.log"
        too_new = f"this log has format version {NEWER}, this stepscope reads up to {FORMAT_VERSION}: upgrade stepscope"
        assert problem.text == too_new
        (finding,) = all_findings(trace)
        assert (finding.kind, finding.severity, finding.log) == ("unread_log", "warning", 0)
        assert finding.title == f"stepscope_trace_rank_0_1_a.log was not read: {problem.text}"
        left_out, read = list_runs(trace)
        assert left_out.remark == f"a log of format version {NEWER}, which was not read"
        assert read.remark is None
        assert f"a log of format version {NEWER}" in summary_text(trace)
        assert "TORCH_TRACE" not in summary_text(trace)
        assert [answer["format_version"] for answer in summary(trace)["runs"]] == [NEWER, FORMAT_VERSION]


@pytest.mark.slow
def test_every_page_of_a_folder_with_a_log_of_a_newer_format(tmp_path: Path) -> None:
    with open_trace(newer_beside_another(tmp_path)) as trace:
        visited = crawl(Client(trace), most=60, start=EVERY_PAGE)
    assert {address: status for address, status in visited.items() if status >= 400} == {}


def test_nothing_but_logs_of_a_newer_format(tmp_path: Path) -> None:
    recorded(format_version=NEWER).write(tmp_path / "a.log")
    recorded(format_version=NEWER).write(tmp_path / "b.log")
    with pytest.raises(StepscopeError, match=r"a\.log: this log has format version .*: upgrade stepscope") as caught:
        open_trace(tmp_path)
    assert caught.value.exit_code == 2


def test_a_log_that_cannot_be_opened_is_a_finding(tmp_path: Path) -> None:
    recorded().write(tmp_path / "a.log")
    closed = recorded(pid=2).write(tmp_path / "stepscope_trace_b.log")
    closed.chmod(0)
    try:
        closed.read_bytes()
    except PermissionError:
        with open_trace(tmp_path) as trace:
            (finding,) = all_findings(trace)
            assert finding.title == "stepscope_trace_b.log was not read: Permission denied"
            assert list_runs(trace)[1].remark == "a log without a record"
        return
    pytest.skip("this user may read every file")


RUN = orjson.dumps(to_payload(run()))


def _without(data: bytes) -> bytes:
    first = data.index(b"\nV", data.index(b"stepscope_run"))
    return data[first + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a field of another type": lambda data: data.replace(b'"pid":4711', b'"pid":"one"', 1),
    "the form of another record": lambda data: data.replace(RUN, b"[]", 1),
    "no JSON": lambda data: data.replace(RUN, RUN[: len(RUN) // 2], 1),
    "a broken header": lambda data: data.replace(b'"name":"stepscope_run"', b'"name":"stepscope_run', 1),
    "another name": lambda data: data.replace(b"stepscope_run", b"stepscope_rum", 1),
    "gone": _without,
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_log_without_a_run_record_is_still_ours(damage: Callable[[bytes], bytes], opened: Open) -> None:
    log = recorded()
    data = damage(log.data)
    assert data != log.data
    trace, whole = opened(data), opened(log)
    assert problem_counts(trace)["no_run_record"] == 1
    assert [(finding.kind, finding.severity) for finding in all_findings(trace)] == [("unread_log", "warning")]
    facts = overview(trace)
    assert facts.counts.launches == 12
    assert facts.counts.steps == 3
    assert [(row.start_ns, row.duration_ns) for row in list_steps(trace)] == [
        (row.start_ns, row.duration_ns) for row in list_steps(whole)
    ]
    (row,) = facts.runs
    assert row.complete
    text = summary_text(trace)
    assert "run record is damaged or missing" in " ".join(text.split())
    assert "TORCH_TRACE" not in text
    assert "PyTorch wrote" not in text
    orjson.dumps(summary(trace))


def test_what_a_damaged_run_record_still_says_is_shown(opened: Open) -> None:
    trace = opened(recorded().data.replace(b'"pid":4711', b'"pid":"one"', 1))
    (row,) = list_runs(trace)
    assert (row.level, row.argv, row.torch, row.pid) == ("launches", ["train.py", "--lr", "0.1"], "2.13.0", 4711)


def test_steps_are_found_without_a_run_record(opened: Open) -> None:
    """Since format version 2 the recorder writes no steps, only what may end them."""
    log = recorded(steps=0, end=False, guesses_steps=True)
    ends = [MONOTONIC_NS + 5_000, MONOTONIC_NS + 15_000]
    for number, start_ns in enumerate((MONOTONIC_NS, MONOTONIC_NS + 10_000)):
        log.record(calls(10 * number, 7, start_ns))
    log.record(StepMarks(["user", "user"], [0, 0], [None, None], [1, 1], ends))
    trace, whole = opened(_without(log.data)), opened(log)
    assert [row.step for row in list_steps(whole)] == [0, 1]
    assert [(row.step, row.by) for row in list_steps(trace)] == [(row.step, row.by) for row in list_steps(whole)]


def test_a_log_that_pytorch_alone_wrote(opened: Open) -> None:
    trace = opened(compile_records(LogBuilder()))
    (row,) = list_runs(trace)
    assert (row.writer, row.remark) == ("torch", "TORCH_TRACE log")
    assert "TORCH_TRACE log" in summary_text(trace)
