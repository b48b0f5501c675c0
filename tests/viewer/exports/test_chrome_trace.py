"""The timeline as a Chrome trace: times by hand, every event's form, ranks on one clock, hostile logs."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import orjson
import pytest

from stepscope.tracer.schema.launches import DeviceTimes
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.exports.write import export
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import RUN_PEAK, start_of, training
from tests.logs.synthetic import MONOTONIC_NS, UNIX_NS, LogBuilder, calls, compile_records, graph, recorded, run
from tests.viewer.conftest import sample_logs

Open = Callable[[LogBuilder | bytes], Trace]
Event = dict[str, Any]
NEEDED = {"M": {"tid"}, "X": {"tid", "cat", "ts", "dur"}, "i": {"tid", "cat", "ts", "s"}, "C": {"cat", "ts"}}
NAMED = {"process_name": "name", "process_labels": "labels", "process_sort_index": "sort_index",
         "thread_name": "name", "thread_sort_index": "sort_index"}  # fmt: skip

KINETO = {"schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds"}


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def read(path: Path) -> list[Event]:
    """The events of a file, each checked against the format."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(data, parse_constant=no_constant)
    assert document.keys() - KINETO == {"displayTimeUnit", "otherData", "traceEvents"}
    events: list[Event] = document["traceEvents"]
    for event in events:
        check(event)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xi"} <= named
    assert {e["pid"] for e in events} == {e["pid"] for e in events if e["name"] == "process_name"}
    return events


def check(event: Event) -> None:
    assert event.keys() == {"ph", "name", "pid", "args"} | NEEDED[event["ph"]]
    assert isinstance(event["name"], str)
    assert isinstance(event["args"], dict)
    assert all(0 <= event[key] < 2**31 and isinstance(event[key], int) for key in ("pid", "tid") if key in event)
    assert all(event[key] >= 0 and isinstance(event[key], float) for key in ("ts", "dur") if key in event)
    if event["ph"] == "M":
        assert list(event["args"]) == [NAMED[event["name"]]]
    if event["ph"] == "C":
        assert all(isinstance(value, int) for value in event["args"].values())


def check_nesting(events: list[Event]) -> None:
    """Spans of a row lie in one another or apart; an outer one comes first."""
    rows: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            open_until = rows[event["pid"], event["tid"]]
            while open_until and open_until[-1] <= event["ts"] + 1e-4:
                open_until.pop()
            assert not open_until or event["ts"] + event["dur"] <= open_until[-1] + 1e-4
            open_until.append(event["ts"] + event["dur"])


def is_payload(line: bytes) -> bool:
    return line.startswith(b"\t")


def exported(trace: Trace, path: Path) -> list[Event]:
    written, count = export(trace, "chrome", "", path)
    events = read(written)
    assert count == len(events)
    return events


def rows_of(events: list[Event], pid: int = 1) -> dict[str, int]:
    return {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name" and e["pid"] == pid}


def shown(events: list[Event], row: int, pid: int = 1) -> list[tuple[str, float, float]]:
    return [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, row)]


def test_times_by_hand(opened: Open, tmp_path: Path) -> None:
    events = exported(opened(recorded(steps=2)), tmp_path / "t.json")
    check_nesting(events)
    rows = rows_of(events)
    assert rows == {"steps": 1, "compile": 2, "thread 1": 3, "thread 2": 4}
    assert shown(events, 1) == [("step 0", 0.0, 5.0), ("step 1", 10.0, 5.0)]
    assert shown(events, 2) == [("dynamo", 999_000.0, 1500.0)]
    fused = "cpp_fused_relu_0"
    assert shown(events, 3)[:6] == [
        ("0/0 forward", 0.5, 1.0), ("extern_kernels.mm", 0.6, 0.15), (fused, 0.8, 0.09), ("true_graph_0", 1.1, 0.32),
        ("0/0 forward · true_graph_0", 1.2, 0.2), (fused, 1.25, 0.1),
    ]  # fmt: skip
    assert shown(events, 4)[0] == ("0/0 forward", 10.6, 1.0)
    launch = next(e for e in events if e["name"] == fused)
    assert launch["args"] == {"launch": 1, "step": 0, "kind": "cpp", "source": "/src/model.py:12", "graph": 0}
    (name,) = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert name == "pid 4711 · log0.log"


def test_live_bytes(opened: Open, tmp_path: Path) -> None:
    events = exported(opened(training(3)), tmp_path / "t.json")
    check_nesting(events)
    counters = [e for e in events if e["ph"] == "C"]
    assert {e["name"] for e in counters} == {"live bytes cpu"}
    assert [e["ts"] for e in counters] == sorted(e["ts"] for e in counters)
    assert max(e["args"]["bytes"] for e in counters if e["ts"] < (start_of(1) - start_of(0)) / 1000) == RUN_PEAK
    assert counters[0]["ts"] == 0.5


def test_device_work_has_a_row_of_its_own(opened: Open, tmp_path: Path) -> None:
    log = recorded(steps=1).record(DeviceTimes([0, 0, 0], [0, 1, 2], [400, 300, 50], "events"))
    events = exported(opened(log), tmp_path / "t.json")
    check_nesting(events)
    row = rows_of(events)["device work of thread 1 (starts estimated)"]
    assert [(ts, dur) for _, ts, dur in shown(events, row)] == [(0.6, 0.4), (1.0, 0.3), (1.3, 0.05)]


def test_a_replay_is_one_span_on_its_thread(opened: Open, tmp_path: Path) -> None:
    batch = calls(0, 0, MONOTONIC_NS)
    replay = replace(batch, calls=replace(batch.calls, state=["replayed", "replayed"]))
    log = LogBuilder().record(run()).record(graph()).record(replay)
    log.record(DeviceTimes([0], [1], [30], "timestamps"))
    events = exported(opened(log), tmp_path / "t.json")
    assert [e["cat"] for e in events if e["ph"] == "X"] == ["step", "call", "call", "device"]


def test_a_launch_that_did_not_return_is_no_span(opened: Open, tmp_path: Path) -> None:
    batch = calls(0, 0, MONOTONIC_NS)
    raised = replace(batch, calls=replace(batch.calls, state=["ok", "raised"]), end_ns=[*batch.end_ns[:3], -1])
    events = exported(opened(LogBuilder().record(run()).record(graph()).record(raised)), tmp_path / "t.json")
    (instant,) = [e for e in events if e["ph"] == "i"]
    assert (instant["name"], instant["ts"], instant["args"]["returned"]) == ("true_graph_0", 0.6, False)
    (step,) = [e for e in events if e.get("cat") == "step"]
    assert step["args"]["ended"] == "not seen"


def test_ranks_stand_on_one_clock(tmp_path: Path) -> None:
    shift = 250_000
    for rank in (1, 0):
        log = recorded(rank=rank, world_size=2, pid=70 + rank, unix_ns=UNIX_NS + rank * shift)
        log.write(tmp_path / f"stepscope_trace_rank_{rank}_x.log")
    with open_trace(tmp_path) as trace:
        events = exported(trace, tmp_path / "t.json")
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {
        1: "rank 0 · pid 70 · stepscope_trace_rank_0_x.log", 2: "rank 1 · pid 71 · stepscope_trace_rank_1_x.log",
    }  # fmt: skip
    first = {pid: shown(events, rows_of(events, pid)["steps"], pid)[0][1] for pid in names}
    assert first == {1: 0.0, 2: 250.0}
    assert {pid: shown(events, rows_of(events, pid)["compile"], pid)[0][1] for pid in names} == {
        1: 999_000.0, 2: 999_000.0,
    }  # fmt: skip


def test_a_log_without_a_clock_begins_with_its_first_record(opened: Open, tmp_path: Path) -> None:
    log = compile_records(LogBuilder()).record(graph()).record(calls(0, 0, 77))
    events = exported(opened(log), tmp_path / "t.json")
    (label,) = [e["args"]["labels"] for e in events if e["name"] == "process_labels"]
    assert "clock not recorded" in label
    assert max(e["ts"] for e in events if "ts" in e) < 10_000


def test_hostile_names_and_times(opened: Open, tmp_path: Path) -> None:
    name = '"}]}\u0000\n</script><script>alert(1)</script>\u2028\U0001f600 NaN'
    span = {"name": name, "ph": "B", "ts": 1.5, "tid": 2**62, "args": {"compile_id": name}}
    log = LogBuilder().record(run(monotonic_ns=-(2**60), unix_ns=2**60))
    site = replace(graph().sites[0], kernel=name)
    log.record(graph(sites=[site, *graph().sites[1:]])).record(calls(0, 0, 2**60, thread=-(2**53)))
    for event in (span, {**span, "ph": "E", "ts": 2**53 - 1}, {**span, "ts": float(2**60)}):
        log.torch("chromium_event", {}, orjson.dumps(event))
    log.torch("chromium_event", {}, b'{"name": "x", "ph": "B", "ts": NaN, "tid": 1e999}')
    log.record(Steps([0], ["train"], ["user"], [-(2**60)], [2**60]))
    events = exported(opened(log), tmp_path / "t.json")
    assert name in {e["name"] for e in events if e.get("cat") == "launch"}
    assert name in {e["name"] for e in events if e.get("cat") == "compile"}


def test_the_same_trace_gives_the_same_bytes(opened: Open, tmp_path: Path) -> None:
    trace = opened(training(3))
    for name in ("a.json", "b.json", "a.json.gz", "b.json.gz"):
        export(trace, "chrome", "", tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert read(tmp_path / "a.json.gz") == read(tmp_path / "a.json")


@pytest.mark.skipif(sample_logs() is None, reason="no sample logs")
@pytest.mark.parametrize("name", ["chromium_events.log", "simple.log", "cache_hit_miss.log", "multi_rank_logs"])
def test_logs_that_pytorch_wrote(name: str, tmp_path: Path) -> None:
    folder = sample_logs()
    assert folder is not None
    logs = sorted((folder / name).iterdir()) if (folder / name).is_dir() else [folder / name]
    with open_trace(folder / name, index_dir=tmp_path) as trace:
        events = exported(trace, tmp_path / "t.json")
    check_nesting(events)
    wanted: Counter[tuple[int, str]] = Counter()
    for number, log in enumerate(logs, 1):
        for record in log.read_bytes().split(b'{"chromium_event"')[1:]:
            payload = takewhile(is_payload, record.split(b"\n")[1:])
            event = json.loads(b"".join(payload))
            wanted[number, event["name"]] += event["ph"] == "E"
    found = Counter((e["pid"], e["name"]) for e in events if e.get("cat") == "compile" and e["ph"] == "X")
    assert found == +wanted
    assert min(e["ts"] for e in events if "ts" in e) == 0.0
