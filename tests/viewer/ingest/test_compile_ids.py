"""Compile ids that are counted anew, after torch._dynamo.reset() and in other processes of a log; compiles without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest

from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.record import Record, artifact_name, to_payload
from stepscope.viewer.compiles.queries.compiles import compile_detail, list_compiles
from stepscope.viewer.compiles.queries.events import list_compile_events
from stepscope.viewer.ingest import logs
from stepscope.viewer.records.queries.artifacts import list_records
from stepscope.viewer.search.queries.jump import jumps
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs import compile_logs
from tests.logs.compile_summary_logs import MICROS
from tests.logs.synthetic import LogBuilder, graph, run, tensors
from tests.viewer.client import Client

Opened = Callable[[LogBuilder], Trace]


@pytest.fixture(params=[False, True], ids=["by lines", "at once"])
def opened(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    monkeypatch.setattr(logs, "AT_ONCE_BYTES", 0 if request.param else 1 << 40)
    with ExitStack() as traces:
        yield lambda log: traces.enter_context(open_trace(log.write(tmp_path / "x.log")))


def compiled(log: LogBuilder, frame: int, name: str, micros: int, number: int = 0) -> LogBuilder:
    """A compile as PyTorch logs it: its spans begin before its stack and end behind its metrics."""
    ids = compile_logs.ids(frame, number)

    def span(phase: str, at: int) -> None:
        event = {"name": "dynamo", "ph": phase, "ts": at, "tid": 0, "args": {"compile_id": f"{frame}/{number}"}}
        log.torch("chromium_event", {}, orjson.dumps(event), **ids)

    if number:
        log.artifact("recompile_reasons", f"{frame}/{number - 1}: L['x'] == 1".encode(), "string", **ids)
    span("B", micros)
    log.torch("dynamo_start", compile_logs.stack(("/src/model.py", 10, name, "")), **ids)
    compile_logs.metrics(log, frame, number, co_name=name)
    span("E", micros + 1000)
    return log


def shown(trace: Trace) -> list[tuple[str, str | None, int]]:
    return [(row.compile_id, row.function, row.attempts) for row in list_compiles(trace)]


def test_tensors_that_an_export_describes_are_no_compile(opened: Opened) -> None:
    log = LogBuilder().torch("describe_tensor", {"id": 0, "describer_id": 0}, **compile_logs.ids(0, 0))
    assert shown(opened(log)) == []


def test_after_a_reset_all_ids_are_told_apart(opened: Opened) -> None:
    log = LogBuilder()
    compiled(log, 0, "one", 1_000)
    compiled(log, 1, "two", 3_000)
    compiled(log, 0, "three", 5_000)
    compiled(log, 0, "three", 7_000, number=1)
    compiled(log, 2, "four", 9_000)
    compiled(log, 0, "five", 11_000)
    trace = opened(log)
    assert shown(trace) == [
        ("0/0", "one", 1), ("1/0", "two", 1), ("r1:0/0", "three", 1), ("r1:0/1", "three", 1), ("r1:2/0", "four", 1),
        ("r2:0/0", "five", 1),
    ]  # fmt: skip
    for row in list_compiles(trace):
        found = compile_detail(trace, 0, row.compile_id)
        assert found is not None
        kinds = [record.event for record in list_records(trace, compile_id=row.compile_id).rows]
        assert kinds[-4:] == ["chromium_event", "dynamo_start", "compilation_metrics", "chromium_event"]
        assert len(kinds) == (5 if row.compile_id == "r1:0/1" else 4)
        assert [span.duration_ns for span in found.spans] == [1_000_000]
    (jump,) = jumps(trace, "r1:0/1")
    assert "Compile r1:0/1" in Client(trace).get(jump.page).text
    (event,) = list_compile_events(trace)
    assert (event.compile_id, event.cause, event.frame_id) == ("r1:0/1", "r1:0/0: L['x'] == 1", "r1:0")


def test_a_restart_is_no_reset(opened: Opened) -> None:
    log = LogBuilder()
    for attempt in (0, 1):
        log.torch("dynamo_start", compile_logs.stack(compile_logs.FORWARD), **compile_logs.ids(0, 0, attempt))
    compile_logs.metrics(log, 0, 0)
    assert shown(opened(log)) == [("0/0", "forward", 2)]


def test_processes_in_one_log_have_ids_of_their_own(opened: Opened) -> None:
    one, two = LogBuilder(pid=1), LogBuilder(pid=2)
    records = [compiled(log, 0, name, 1_000).data.split(b"\nV") for log, name in ((one, "one"), (two, "two"))]
    mixed = [text.strip(b"\n").removeprefix(b"V") for pair in zip(*records, strict=True) for text in pair]
    log = LogBuilder()
    log.data = b"".join(b"V%s\n" % text for text in mixed)
    trace = opened(log)
    assert sorted(shown(trace)) == [("0/0", "one", 1), ("r1:0/0", "two", 1)]
    assert sql.rows(trace, "SELECT DISTINCT pid FROM records WHERE compile_id = 'r1:0/0'") == [(2,)]
    assert sql.rows(trace, "SELECT compile_id, duration_ns FROM spans ORDER BY 1") == [
        ("0/0", 1_000_000),
        ("r1:0/0", 1_000_000),
    ]


def test_what_has_no_id_takes_the_time_of_the_spans_around_it(opened: Opened) -> None:
    log = LogBuilder()

    def event(name: str, phase: str, micros: int) -> None:
        about = {"name": name, "ph": phase, "ts": MICROS + micros, "tid": 0, "args": {"compile_id": "None"}}
        log.torch("chromium_event", {}, orjson.dumps(about))

    for start in (1_000, 50_000):
        event("compile_fx_aot", "B", start)
        event("GraphLowering.run", "B", start + 100)
        log.artifact("before_pre_grad_graph", b"graph", "string")
        event("GraphLowering.run", "E", start + 200)
        event("compile_fx_aot", "E", start + 7_000)
    event("elsewhere", "B", 90_000)
    event("elsewhere", "E", 99_000)
    found = sql.rows(opened(log), "SELECT compile_id, duration_ns, start_unix_ns FROM compiles")
    assert found == [("-", 14_000_000, (MICROS + 1_000) * 1000)]


def test_a_recorded_graph_is_of_the_compile_that_made_it(opened: Opened) -> None:
    log = LogBuilder().record(run())
    compiled(log, 0, "one", 1_000).record(graph(0))
    compiled(log, 0, "two", 3_000).record(graph(1))
    assert sql.rows(opened(log), "SELECT compile_id FROM graphs ORDER BY graph") == [("0/0",), ("r1:0/0",)]


def test_what_has_no_id_is_one_compile(opened: Opened) -> None:
    trace = opened(compile_logs.without_id())
    (row,) = list_compiles(trace)
    assert (row.compile_id, row.function, row.file, row.line, row.artifacts) == ("-", "main", "/src/pack.py", 6, 5)
    client = Client(trace)
    page = client.get("/compile/-.json").json()
    assert [(stage["name"], len(stage["graphs"])) for stage in page["stages"] if stage["graphs"]] == [
        ("pre_grad", 1), ("forward", 1), ("post_grad", 1), ("code", 1),
    ]  # fmt: skip
    panes = client.get("/compile/-/provenance.json").json()["panes"]
    assert panes["code_to_post"].startswith("PyTorch's map of kernels and nodes")
    assert all(pane["text"] for pane in panes["panes"])
    assert "without a compile id" in client.get("/compile/-").text
    (jump,) = jumps(trace, "compile -")
    assert client.get(jump.page).status_code == 200


def about(log: LogBuilder, record: Record, frame: int = 0) -> LogBuilder:
    """One of stepscope's records with a compile in its header, as torch counts when it is written."""
    return log.artifact(artifact_name(record), orjson.dumps(to_payload(record)), **compile_logs.ids(frame, 0))


def compiles_of(trace: Trace, prefix: str = "stepscope_") -> list[tuple[str, str | None]]:
    found = "SELECT name, compile_id FROM records WHERE starts_with(name, ?) ORDER BY record"
    return [(name.removeprefix("stepscope_"), compile_id) for name, compile_id in sql.rows(trace, found, [prefix])]


def test_our_records_are_of_the_compile_of_their_graph(opened: Opened) -> None:
    """A header says what torch counts; after a reset that is another compile than the one of an older graph."""
    log = about(compiled(LogBuilder().record(run()), 0, "first", 1_000_000), graph(0, compile_id="0/0"))
    compiled(log, 0, "second", 2_000_000)
    about(about(log, graph(1, compile_id="0/0")), tensors())
    trace = opened(log.artifact("stepscope_output_code_1", b"def call(args): ...", "string", **compile_logs.ids(0, 0)))
    assert compiles_of(trace) == [
        ("run", None), ("graph", "0/0"), ("graph", "r1:0/0"), ("tensors", "0/0"), ("output_code_1", "r1:0/0"),
    ]  # fmt: skip
    assert [row.function for row in list_compiles(trace)] == ["first", "second"]
    detail = compile_detail(trace, 0, "0/0")
    assert detail is not None
    assert [row.name for row in detail.records if row.name] == ["stepscope_graph", "stepscope_tensors"]
    assert detail.row.artifacts == len([row for row in detail.records if row.payload_bytes is not None])


def test_records_without_ids_are_found_by_their_graph(opened: Opened) -> None:
    """Older logs name no compile in the headers of our records."""
    log = compiled(LogBuilder().record(run()), 0, "first", 1_000_000).record(graph(0, compile_id="0/0"))
    assert compiles_of(opened(log.record(tensors()))) == [("run", None), ("graph", "0/0"), ("tensors", "0/0")]


def test_a_forked_child_has_not_compiled_what_it_inherits(opened: Opened) -> None:
    log = about(about(LogBuilder().record(run(forked=True)), graph(0, compile_id="0/0")), tensors())
    trace = opened(log)
    assert list_compiles(trace) == []
    assert compiles_of(trace) == [("run", None), ("graph", None), ("tensors", None)]
    assert Client(trace).get("/records").status_code == 200


def test_a_record_of_no_graph_is_of_the_compile_in_its_header(opened: Opened) -> None:
    log = compiled(LogBuilder().record(run()), 1, "first", 1_000_000)
    trace = opened(about(log, Skipped("recompute mismatches", "too many"), frame=1))
    assert compiles_of(trace) == [("run", None), ("skipped", "1/0")]
