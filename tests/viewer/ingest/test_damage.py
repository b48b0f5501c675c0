"""Broken logs: nothing good is lost, everything bad is counted with its place, nothing raises."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from stepscope.tracer.schema.constants import FORMAT_VERSION
from stepscope.tracer.schema.record import to_payload
from stepscope.viewer.compiles.queries.compiles import compile_detail, list_compiles
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.findings import all_findings
from stepscope.viewer.graphs.queries.graphs import list_graphs
from stepscope.viewer.ingest.damage import PLACES_KEPT
from stepscope.viewer.overview.queries.damage import problem_counts, problems
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.queries.runs import list_steps
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.records.queries.artifacts import list_records, record_detail
from stepscope.viewer.steps.queries.steps import timeline
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, calls, compile_records, graph, recorded, run

Open = Callable[[LogBuilder | bytes], Trace]


def total(trace: Trace) -> int:
    return list_records(trace).total


def lines_of(data: bytes, start: bytes) -> tuple[int, int]:
    """(line, byte) of the first line that begins with `start`."""
    byte = data.index(b"\n" + start) + 1
    return data.count(b"\n", 0, byte) + 1, byte


def test_a_line_that_is_no_record(opened: Open) -> None:
    log = compile_records(LogBuilder())
    good = total(opened(log))
    data = log.data.replace(b"\nV0314", b"\nWarning: something printed here\nV0314", 1)
    trace = opened(data)
    assert problem_counts(trace) == {"not_a_record": 1}
    (problem,) = problems(trace)
    assert (problem.line, problem.byte) == lines_of(data, b"Warning")
    assert problem.text == "Warning: something printed here"
    assert total(trace) == good


def test_a_broken_header_keeps_its_payload_and_all_others(opened: Open) -> None:
    log = compile_records(LogBuilder())
    data = log.data.replace(b'{"artifact":', b'{"artifact"', 1)
    trace = opened(data)
    assert problem_counts(trace) == {"broken_header": 1}
    assert total(trace) == total(opened(log))
    (row,) = list_records(trace, kind="unreadable").rows
    detail = record_detail(trace, row.record)
    assert detail is not None
    assert detail.payload == '{"key": "abc"}'
    assert "unreadable" in detail.metadata


def test_a_wrong_md5_keeps_the_record(opened: Open) -> None:
    data = compile_records(LogBuilder()).data.replace(b'"key": "abc"', b'"key": "xyz"')
    trace = opened(data)
    assert problem_counts(trace) == {"wrong_md5": 1}
    (row,) = list_records(trace, kind="fx_graph_cache_miss").rows
    detail = record_detail(trace, row.record)
    assert detail is not None
    assert detail.payload == '{"key": "xyz"}'


TORN = compile_records(LogBuilder()).artifact("dump", b"first line\nsecond line\n" * 20)


@pytest.fixture(scope="module")
def whole_total(tmp_path_factory: pytest.TempPathFactory) -> int:
    folder = tmp_path_factory.mktemp("whole")
    with open_trace(TORN.write(folder / "x.log"), index_dir=folder) as whole:
        return total(whole)


@pytest.mark.parametrize("removed", range(1, 400, 13))
def test_a_torn_end_costs_at_most_the_last_record(opened: Open, whole_total: int, removed: int) -> None:
    torn = opened(TORN.data[:-removed])
    assert total(torn) >= whole_total - 1
    assert problem_counts(torn) == ({} if removed == 1 else {"truncated": 1})


def test_a_missing_payload(opened: Open) -> None:
    data = compile_records(LogBuilder()).data.replace(b'\n\t{"key": "abc"}', b"")
    trace = opened(data)
    assert problem_counts(trace) == {"missing_payload": 1}
    assert list_records(trace, kind="fx_graph_cache_miss").total == 1


@pytest.mark.parametrize(("old", "new"), [(b'"abc"', b'"\xff\xfe"'), (b"/src/model.py", b"/s\xffc/model.py")])
def test_bytes_that_are_not_utf8(opened: Open, old: bytes, new: bytes) -> None:
    log = compile_records(LogBuilder())
    trace = opened(log.data.replace(old, new, 1))
    assert problem_counts(trace) == {"not_utf8": 1}
    assert total(trace) == total(opened(log))
    assert "\ufffd" in "".join(str(record_detail(trace, row.record)) for row in list_records(trace).rows)


def test_nul_bytes(opened: Open) -> None:
    data = compile_records(LogBuilder()).data.replace(b'"abc"', b'"\x00bc"')
    assert problem_counts(opened(data)) == {"nul_bytes": 1}


def test_crlf_is_one_note_and_payloads_are_whole(opened: Open) -> None:
    log = recorded()
    trace = opened(log.data.replace(b"\n", b"\r\n"))
    plain = opened(log)
    assert problem_counts(trace) == {"crlf": 1}
    assert total(trace) == total(plain)
    for row in list_records(plain).rows:
        here, there = record_detail(trace, row.record), record_detail(plain, row.record)
        assert here is not None
        assert there is not None
        assert (here.payload, here.metadata) == (there.payload, there.metadata)


def test_payload_lines_that_an_editor_emptied(opened: Open) -> None:
    log = LogBuilder().artifact("note", b"first\n\nsecond\n")
    data = log.data.replace(b"\n\t\n", b"\n\n")
    trace = opened(data + log.artifact("more", b"x").data[len(log.data) :])
    detail = record_detail(trace, 0)
    assert detail is not None
    assert detail.payload is not None
    assert detail.payload.startswith("first\n\nsecond")


def test_a_byte_order_mark_and_blank_lines(opened: Open) -> None:
    log = compile_records(LogBuilder())
    trace = opened(b"\xef\xbb\xbf\n\n" + log.data + b"\n\n")
    assert problem_counts(trace) == {}
    assert total(trace) == total(opened(log))


IDS = '"frame_id": 0, "frame_compile_id": 0}'
ABSURD = [
    ('{"str": ["x", 4000000000]}', {}),
    ('{"str": ["x", 99999999999999999999999]}', {"absurd_value": 1}),
    ('{"str": 7}', {"absurd_value": 1}),
    ('{"dynamo_start": {"stack": [{"line": "x", "name": 3, "filename": []}, 7]}, ' + IDS, {}),
    ('{"dynamo_start": {"stack": []}, "frame_id": -4, "frame_compile_id": 0}', {"absurd_value": 1}),
    ('{"dynamo_start": {"stack": []}, "frame_id": "a", "frame_compile_id": [1]}', {"absurd_value": 1}),
    ('{"compilation_metrics": 5, ' + IDS, {"absurd_value": 1}),
    ('{"compilation_metrics": {"duration_us": 1e400, "fail_type": 4, "restart_reasons": 5}, ' + IDS, {}),
    ('{"artifact": 3}', {}),
    ('{"artifact": {"name": ["x"]}}', {}),
    ('{"artifact": {"name": "\\ud800", "encoding": NaN}}', {}),
    ("[1, 2]", {"broken_header": 1}),
    ('{"frame_id": 0}', {"broken_header": 1}),
    ("{" + '"a":{' * 100_000, {"broken_header": 1}),
    ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", {"broken_header": 1}),
    ('{"never_heard_of": {}}', {}),
]


@pytest.mark.parametrize(("header", "expected"), ABSURD, ids=range(len(ABSURD)))
def test_absurd_headers(opened: Open, header: str, expected: dict[str, int]) -> None:
    log = compile_records(LogBuilder())
    line = b"V0314 09:26:54.000000 4711 torch/x.py:1] " + header.encode() + b"\n"
    trace = opened(log.data + line + log.artifact("after", b"{}").data)
    assert problem_counts(trace) == expected
    assert list_records(trace, kind="after").total == 1
    summary_text(trace)
    orjson.dumps(summary(trace))
    for row in list_compiles(trace):
        compile_detail(trace, row.log, row.compile_id)


@pytest.mark.parametrize(
    "prefix",
    [
        "V0314 09:26:54.000000 " + "9" * 40 + " a.py:1]",
        "V9999 99:99:99.999999 1 a.py:1]",
        "V0230 01:01:01.000000 4711 a.py:1]",
    ],
)
def test_absurd_prefixes(opened: Open, prefix: str) -> None:
    data = compile_records(LogBuilder()).data + f'{prefix} {{"link": {{"name": "n", "url": "u"}}}}\n'.encode()
    trace = opened(data)
    assert problem_counts(trace)["absurd_value"] == 1
    assert list_records(trace, kind="link").total == 1


BROKEN_PAYLOADS = [
    ("run", b"[]"),
    ("run", b'{"format_version": "one"}'),
    ("graph", b"{}"),
    ("graph", orjson.dumps({**to_payload(graph()), "sites": [{"site": 1}]})),
    ("graph", orjson.dumps({**to_payload(graph()), "functions": "call"})),
    ("provenance", b'{"graph": 0, "frames": 3, "sites": []}'),
    ("tensors", b'{"graph": 0, "call": 0, "site": 0, "tensors": [{}]}'),
    ("steps", b'{"step": [9223372036854775808], "kind": ["train"], "by": ["user"], "start_ns": [1], "end_ns": [2]}'),
    ("steps", b'{"step": [1, 2], "kind": ["train"], "by": ["user"], "start_ns": [1], "end_ns": [2]}'),
    ("launches", b'{"calls": {}, "site": [], "start_ns": [], "end_ns": []}'),
    ("skipped", b'{"what": 1, "why": null}'),
    ("overhead", b'{"hook_ns": 1.5}'),
    ("end", b"not json"),
]


@pytest.mark.parametrize(("kind", "payload"), BROKEN_PAYLOADS)
def test_payloads_of_the_wrong_form(opened: Open, kind: str, payload: bytes) -> None:
    log = recorded(end=False).artifact(f"stepscope_{kind}", payload)
    trace = opened(log)
    assert problem_counts(trace) == {"broken_payload": 1}
    assert overview(trace).counts.launches == 12
    (problem,) = problems(trace)
    assert problem.text.startswith(f"stepscope_{kind}: ")


@pytest.mark.parametrize(
    "change",
    [
        {"site": [0, 1]},
        {"start_ns": [1, 2, 3, 4.5]},
        {"end_ns": [None, 1, 2, 3]},
        {"calls": {"launches": [2, 3]}},
        {"calls": {"launches": [-1, 5]}},
        {"calls": {"call": [1]}},
        {"calls": {"thread": [2**70, 1]}},
        {"calls": {"state": [1, 2]}},
    ],
)
def test_batches_whose_columns_do_not_fit(opened: Open, change: dict[str, object]) -> None:
    batch = to_payload(calls(0, 0, MONOTONIC_NS))
    inner = change.get("calls")
    changed = {**batch, "calls": {**batch["calls"], **inner}} if isinstance(inner, dict) else {**batch, **change}
    log = recorded(end=False).artifact("stepscope_launches", json.dumps(changed).encode())
    trace = opened(log)
    assert problem_counts(trace) == {"broken_payload": 1}
    assert overview(trace).counts.launches == 12


def test_launches_of_a_lost_graph_are_kept(opened: Open) -> None:
    data = recorded().data.replace(b'"stepscope_graph"', b'"stepscope_grap_"')
    trace = opened(data)
    assert overview(trace).counts.launches == 16
    assert problem_counts(trace)["unknown_graph"] == 1
    (row,) = [row for row in list_graphs(trace) if row.local_graph == 0]
    assert row.not_recorded == "its graph record is missing or broken"
    shown = timeline(trace, 0, 0)
    assert shown is not None
    assert {site["kernel"] for site in shown.sites.values()} == {"site 0", "site 1", "site 2", "site 3"}


def test_a_step_whose_records_are_lost_begins_with_its_first_call(opened: Open) -> None:
    data = recorded().data.replace(b'"stepscope_steps"', b'"stepscope_step_"')
    steps = list_steps(opened(data))
    assert [(row.step, row.launches, row.end_ns) for row in steps] == [(0, 3, None), (1, 6, None), (2, 3, None)]


def test_two_ranks_in_one_file(opened: Open) -> None:
    log = LogBuilder().torch("link", {}, rank=0).torch("link", {}, rank=1).torch("link", {}, rank=0)
    trace = opened(log)
    assert problem_counts(trace) == {"mixed_ranks": 1}
    assert total(trace) == 3


def test_places_are_bounded_and_all_are_counted(opened: Open) -> None:
    many = 3 * PLACES_KEPT
    trace = opened(compile_records(LogBuilder()).data + b"noise\n" * many)
    assert problem_counts(trace) == {"not_a_record": many}
    assert len(problems(trace)) == PLACES_KEPT
    assert overview(trace).problems == many


def test_unknown_events_are_kept_and_named(opened: Open) -> None:
    trace = opened(compile_records(LogBuilder()).torch("tea_time", {}).torch("tea_time", {}))
    assert list_records(trace, kind="tea_time").total == 2
    assert overview(trace).notes[-1].startswith("2 records of a kind that this stepscope does not know: tea_time")
    assert problem_counts(trace) == {}


def test_terminal_control_characters_do_not_reach_the_terminal(opened: Open) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e"
    log = compile_records(LogBuilder(), fail_type=evil, fail_reason=evil, co_name=evil)
    text = summary_text(opened(log))
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert all(len(line) <= 100 for line in text.split("\n"))


def test_no_finding_without_evidence(opened: Open) -> None:
    log = compile_records(recorded(end=False), fail_type="Boom", fail_reason="it broke")
    findings = all_findings(opened(log))
    assert [finding.kind for finding in findings] == ["crash", "compile_failure"]
    assert all(finding.evidence and finding.rule for finding in findings)


class TestFiles:
    """What is no log at all."""

    def sentence(self, path: Path | str) -> str:
        with pytest.raises(StepscopeError) as caught:
            open_trace(path)
        assert caught.value.exit_code == 2
        message = str(caught.value)
        assert "\n" not in message
        return message

    def test_nothing_there(self, tmp_path: Path) -> None:
        assert "There is no file" in self.sentence(tmp_path / "missing.log")

    def test_empty_file(self, tmp_path: Path) -> None:
        (tmp_path / "x.log").touch()
        assert "is empty" in self.sentence(tmp_path / "x.log")

    @pytest.mark.parametrize(
        "content", [b"\x89PNG\r\n\x1a\n" + bytes(200), b"import torch\nprint(1)\n", b"V but not\n"]
    )
    def test_not_a_log(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "x.log").write_bytes(content)
        assert "is not a log" in self.sentence(tmp_path / "x.log")

    def test_a_folder_without_logs(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("hello")
        assert "contains no log" in self.sentence(tmp_path)

    def test_a_folder_of_empty_logs(self, tmp_path: Path) -> None:
        (tmp_path / "dedicated_log_torch_trace_x.log").touch()
        assert "empty" in self.sentence(tmp_path)

    def test_an_empty_log_among_others(self, tmp_path: Path) -> None:
        (tmp_path / "dedicated_log_torch_trace_x.log").touch()
        recorded().write(tmp_path / "sub" / "stepscope_trace_rank_0_1_x.log")
        with open_trace(tmp_path) as trace:
            assert problem_counts(trace) == {"empty_file": 1}
            assert overview(trace).counts.launches == 12

    def test_a_file_with_the_name_of_a_log_among_others(self, tmp_path: Path) -> None:
        (tmp_path / "dedicated_log_torch_trace_x.log").write_text("hello\n")
        recorded().write(tmp_path / "stepscope_trace_rank_0_1_x.log")
        with open_trace(tmp_path) as trace:
            assert problem_counts(trace) == {"not_a_record": 1, "not_a_log": 1}

    def test_a_newer_format(self, tmp_path: Path) -> None:
        newer = FORMAT_VERSION + 1
        path = LogBuilder().record(run(format_version=newer)).write(tmp_path / "x.log")
        message = self.sentence(path)
        assert f"format version {newer}, this stepscope reads up to {FORMAT_VERSION}: upgrade stepscope" in message

    def test_a_cut_gz_gives_what_it_holds(self, tmp_path: Path) -> None:
        data = gzip.compress(recorded().data * 50)
        (tmp_path / "x.log.gz").write_bytes(data[: len(data) // 2])
        with open_trace(tmp_path / "x.log.gz") as trace:
            assert problem_counts(trace)["truncated"] >= 1
            assert total(trace) > 10
