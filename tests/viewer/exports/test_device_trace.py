"""Device work in Chrome traces: the form of PyTorch's profiler, times by hand, and what HTA answers about them."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.schema.launches import DeviceTimes
from stepscope.tracer.schema.profiles import DeviceWork
from stepscope.viewer.exports.write import export
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.device_logs import (
    DEVICE_US,
    HOST_US,
    KERNELS,
    LAUNCHED_US,
    MODULE,
    PERIOD_US,
    STARTS_US,
    STEPS,
    device_log,
    write_ranks,
)
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, calls, graph, recorded, run
from tests.viewer.exports.test_chrome_trace import Event, check_nesting, exported, read, rows_of

Open = Callable[[LogBuilder | bytes], Trace]
NAMES = ["extern_kernels.mm", "ncclDevKernel_AllReduce", KERNELS[2], "ncclDevKernel_Wait", KERNELS[4]]
STREAMS = [7, 20, 7, 7, 7]
HTA = sys.executable if find_spec("hta") else os.environ.get("STEPSCOPE_HTA_PYTHON", "")
"""An interpreter with HolisticTraceAnalysis."""
SEEN = STEPS - 1
"""HTA leaves out the last step."""


def of(events: list[Event], category: str) -> list[Event]:
    return [event for event in events if event.get("cat") == category]


def test_kernels_are_on_streams(opened: Open, tmp_path: Path) -> None:
    events = exported(opened(device_log(slower_us=0)), tmp_path / "t.json")
    check_nesting(events)
    kernels = of(events, "kernel")
    assert len(kernels) == STEPS * len(KERNELS)
    first = [(e["name"], e["ts"], e["dur"], e["tid"], e["args"]["stream"]) for e in kernels[: len(KERNELS)]]
    assert first == [
        (name, float(at), float(us), stream, stream)
        for name, at, us, stream in zip(NAMES, STARTS_US, DEVICE_US, STREAMS, strict=True)
    ]
    (gpu,) = {event["pid"] for event in kernels}
    titles = rows_of(events, gpu)
    assert titles == {"stream 7 (starts estimated)": 7, "stream 20 of collectives (starts estimated)": 20}
    assert all(e["args"]["source"] == "/src/model.py:12" and e["args"]["module"] == MODULE for e in kernels)
    assert {e["args"].get("kernel") for e in kernels} == {None, KERNELS[1], KERNELS[3]}
    assert [e["name"] for e in of(events, "user_annotation")] == [f"ProfilerStep#{step}" for step in range(STEPS)]


def test_a_kernel_knows_its_launch(opened: Open, tmp_path: Path) -> None:
    events = exported(opened(device_log()), tmp_path / "t.json")
    launched = {e["args"]["correlation"]: e for e in of(events, "cuda_runtime")}
    kernels = of(events, "kernel")
    assert len(launched) == len(kernels)
    for kernel in kernels:
        launch = launched[kernel["args"]["correlation"]]
        assert (launch["name"], launch["dur"]) == ("cudaLaunchKernel", HOST_US)
        assert launch["ts"] + launch["dur"] <= kernel["ts"]


def test_work_that_the_profiler_saw_has_its_own_start_and_stream(opened: Open, tmp_path: Path) -> None:
    log = device_log(slower_us=0)
    estimated = exported(opened(log), tmp_path / "t.json")
    ((thread, start),) = sql.rows(opened(log), "SELECT thread, start_ns FROM launches ORDER BY launch LIMIT 1")
    at = start + 700_000
    work = DeviceWork(
        start, at, ["own", "Memset (Device)"], [0, 1], [0, 0], [13, 7], [at, at + 9_000], [5_000, 2_000],
        [thread, thread], [start + 1, start - 1], [None, None], [-1, -1],
    )  # fmt: skip
    events = exported(opened(log.record(work)), tmp_path / "u.json")
    check_nesting(events)
    (own,), (fill,) = ([e for e in events if e["name"] == name] for name in ("own", "Memset (Device)"))
    assert (own["tid"], own["dur"], own["cat"]) == (13, 5.0, "kernel")
    assert (own["args"]["kernel"], own["args"]["launch"]) == (KERNELS[0], 0)
    (launch,) = [e for e in of(events, "cuda_runtime") if e["args"]["correlation"] == own["args"]["correlation"]]
    assert own["ts"] == launch["ts"] + 700
    assert (fill["cat"], fill["tid"], fill["ts"]) == ("gpu_memset", 7, own["ts"] + 9)
    assert not {"correlation", "launch"} & fill["args"].keys()
    assert len(of(events, "kernel")) == len(of(estimated, "kernel")), "a launch has its work once"
    titles = rows_of(events, own["pid"])
    assert titles == {
        "stream 7 (starts estimated outside of profiled steps)": 7, "stream 13": 13,
        "stream 20 of collectives (starts estimated outside of profiled steps)": 20,
    }  # fmt: skip


def test_the_head_of_the_file(opened: Open, tmp_path: Path) -> None:
    exported(opened(device_log(1, 2)), tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text()
    document = json.loads(text)
    assert document["distributedInfo"] == {"backend": "nccl", "rank": 1, "world_size": 2}
    assert document["deviceProperties"][1] == {"id": 1, "name": "NVIDIA H100 80GB HBM3"}
    assert document["otherData"]["launches_with_device_times"] == "20 of 20"
    assert '"rank": 1' in text.split("traceEvents")[0]


def test_a_folder_has_a_file_for_each_rank(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with open_trace(write_ranks(tmp_path / "logs")) as trace:
        _, count = export(trace, "chrome", "", tmp_path / "out")
        _, together = export(trace, "chrome", "", tmp_path / "t.json.gz")
    assert count == together
    files = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in files] == ["rank_0.json.gz", "rank_1.json.gz"]
    apart = [event for path in files for event in read(path)]
    assert apart == read(tmp_path / "t.json.gz")
    heads = [json.loads(gzip.decompress(path.read_bytes()))["distributedInfo"]["rank"] for path in files]
    assert heads == [0, 1]
    assert "distributedInfo" not in json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))


def test_work_of_the_cpu_is_no_kernel(opened: Open, tmp_path: Path) -> None:
    log = recorded(steps=1).record(DeviceTimes([0, 0, 0], [0, 1, 2], [400, 300, 50], "profiler"))
    events = exported(opened(log), tmp_path / "t.json")
    assert {e.get("cat") for e in events if e["ph"] == "X"} == {"step", "compile", "call", "launch", "device"}
    assert "ProfilerStep" not in (tmp_path / "t.json").read_text()


def test_kernels_of_a_replay_have_its_correlation(opened: Open, tmp_path: Path) -> None:
    batch = calls(0, 0, MONOTONIC_NS)
    replay = replace(batch, calls=replace(batch.calls, state=["replayed", "replayed"]))
    log = LogBuilder().record(run(devices=["cpu (8 cores)", "NVIDIA H100"])).record(graph()).record(replay)
    log.record(DeviceTimes([0, 0], [0, 1], [30, 40], "timestamps"))
    events = exported(opened(log), tmp_path / "t.json")
    (launch,) = of(events, "cuda_runtime")
    kernels = of(events, "kernel")
    assert launch["name"] == "cudaGraphLaunch"
    assert {e["args"]["correlation"] for e in kernels} == {launch["args"]["correlation"]}
    assert [(e["ts"], e["dur"]) for e in kernels] == [(0.1, 0.03), (0.3, 0.04)]


@pytest.mark.skipif(
    not HTA, reason="HolisticTraceAnalysis is not installed, and STEPSCOPE_HTA_PYTHON names no interpreter"
)
def test_hta_gives_the_values_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with open_trace(write_ranks(tmp_path / "logs")) as trace:
        export(trace, "chrome", "", tmp_path / "out")
    command = [HTA, Path(__file__).with_name("hta_answers.py"), tmp_path / "out", tmp_path / "answers.json"]
    subprocess.run(
        list(map(str, command)), check=True, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, timeout=300
    )
    found: dict[str, Any] = json.loads((tmp_path / "answers.json").read_text())
    assert found["ranks"] == [0, 1]
    assert found["steps"] == list(range(SEEN))
    for rank, slower in ((0, 0), (1, 20)):
        busy = 330 + slower  # from the begin of the product at 20 to the end of the last kernel at 350
        whole = (SEEN - 1) * PERIOD_US + busy
        compute = DEVICE_US[0] + slower + DEVICE_US[2] + DEVICE_US[4]
        assert pick(found["temporal"], rank, "kernel_time(us)") == whole
        assert pick(found["temporal"], rank, "compute_time(us)") == SEEN * compute
        assert pick(found["temporal"], rank, "idle_time(us)") == whole - SEEN * busy
        assert pick(found["temporal"], rank, "non_compute_time(us)") == SEEN * (busy - compute)
        assert pick(found["overlap"], rank, "comp_comm_overlap_pctg") == 100 * DEVICE_US[2] / DEVICE_US[1]
        sums = {row["name"]: row["sum (us)"] for row in found["kernels"] if row["rank"] == rank}
        assert sums == {n: SEEN * (us + slower * (n == NAMES[0])) for n, us in zip(NAMES, DEVICE_US, strict=True)}
        idle = {(row["stream"], row["idle_category"]): row["idle_time"] for row in found["idle"] if row["rank"] == rank}
        assert idle[7, "host_wait"] == (SEEN - 1) * (PERIOD_US - busy)
        assert idle[20, "host_wait"] == (SEEN - 1) * (PERIOD_US - DEVICE_US[1])
        delays = [at + slower * (i > 0) - launched - HOST_US for i, (at, launched) in enumerate(timed())]
        rows = found["launches"][str(rank)]
        assert [row["launch_delay"] for row in rows] == SEEN * delays
        assert {row["cpu_duration"] for row in rows} == {HOST_US}
    kinds = {row["kernel_type"]: row["sum"] for row in found["kinds"]}
    assert kinds["COMPUTATION overlapping COMMUNICATION"] == 2 * SEEN * DEVICE_US[2]
    longest = {(rank, stream): row[-1] for rank, stream, *row in found["queue"]}
    assert longest == {(0, 7): 3, (1, 7): 3, (0, 20): 1, (1, 20): 1}
    assert found["is_path_found"]
    assert found["path"]["gpu_compute_bound"] > 0


def timed() -> list[tuple[int, int]]:
    return list(zip(STARTS_US, LAUNCHED_US, strict=True))


def pick(rows: list[dict[str, Any]], rank: int, name: str) -> float:
    (found,) = (row[name] for row in rows if row["rank"] == rank)
    return float(found)
