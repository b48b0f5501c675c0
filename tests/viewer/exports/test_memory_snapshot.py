"""The memory snapshot is read by PyTorch's own functions, and its stacks are those of the program."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stepscope.viewer.exports.memory_snapshot import memory_snapshot
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import training
from tests.logs.named_logs import WEIGHT, named_training
from tests.logs.synthetic import LogBuilder

Open = Callable[[LogBuilder | bytes], Trace]
TORCH = importlib.util.find_spec("torch")
CALLERS = [("train.py", 40, "main"), ("train.py", 52, "<module>")]


@pytest.fixture(scope="module")
def memory_viz() -> ModuleType:
    """PyTorch's module that reads snapshots. It is loaded alone, without torch."""
    if TORCH is None or not TORCH.submodule_search_locations:
        pytest.skip("no torch")
    path = Path(TORCH.submodule_search_locations[0], "cuda", "_memory_viz.py")
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(function: str = "forward") -> LogBuilder:
    """The records of a compile whose function the program called from two functions, with a frame of torch between."""
    log = LogBuilder().torch("str", ["/src/model.py", 7]).torch("str", ["/src/train.py", 8])
    log.torch("str", ["/env/lib/site-packages/torch/nn/modules/module.py", 9])
    lines = [(8, 52, "<module>"), (8, 40, "main"), (9, 1778, "_call_impl"), (7, 10, function)]
    stack = [{"line": line, "name": name, "filename": file, "loc": "-"} for file, line, name in lines]
    ids: dict[str, Any] = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    log.torch("dynamo_start", {"stack": stack}, **ids)
    values = {"co_name": function, "co_filename": "/src/model.py", "co_firstlineno": 10, "has_guarded_code": True}
    return log.torch("compilation_metrics", values, **ids)


def snapshot_of(opened: Open) -> dict[str, Any]:
    return memory_snapshot(opened(called().raw(training(3).data)))


def frames(snapshot: dict[str, Any], buffer: str) -> list[tuple[str, int, str]]:
    events = (event for events in snapshot["device_traces"] for event in events)
    found = next(event["frames"] for event in events if event["frames"][0]["name"].startswith(f"{buffer} "))
    return [(Path(frame["filename"]).name, frame["line"], frame["name"]) for frame in found[1:]]


def test_an_allocation_has_the_stack_of_the_program(opened: Open) -> None:
    assert frames(snapshot_of(opened), "buf1") == [("model.py", 11, "forward"), *CALLERS]


def test_an_input_has_the_lines_that_called_the_function(opened: Open) -> None:
    assert frames(snapshot_of(opened), "primals_1") == [("model.py", 10, "forward"), *CALLERS]


def test_names_of_the_program_precede_those_of_the_compiler(opened: Open) -> None:
    snapshot = memory_snapshot(opened(named_training()))
    names = {event["frames"][0]["name"] for events in snapshot["device_traces"] for event in events}
    assert {f"{WEIGHT}, primals_1 (input)", "x, primals_2 (input)", "output 0, buf2 (cpp_fused_mean_1)"} <= names
    assert "buf0 (extern_kernels.mm)" in names, "it has a name of the compiler only"


@pytest.mark.parametrize(
    ("function", "stack"),
    [
        ("torch_dynamo_resume_in_forward_at_10", [("model.py", 11, "forward"), *CALLERS]),
        ("resumed", [("model.py", 11, "forward"), ("model.py", 10, "resumed"), *CALLERS]),
    ],
)
def test_callers_stay_where_the_model_lines_begin_elsewhere(
    opened: Open, function: str, stack: list[tuple[str, int, str]]
) -> None:
    assert frames(memory_snapshot(opened(called(function).raw(training(3).data))), "buf1") == stack


def test_a_kernel_without_model_lines_has_the_callers(opened: Open) -> None:
    log = training(3).data.replace(b"stepscope_provenance", b"stepscope_unknown")
    assert frames(memory_snapshot(opened(called().raw(log))), "buf1") == [("model.py", 10, "forward"), *CALLERS]


def test_pytorch_reads_it(opened: Open, memory_viz: ModuleType) -> None:
    snapshot = snapshot_of(opened)
    (segment,) = snapshot["segments"]
    assert f"total_allocated: {segment['total_size']:.1f}B" in memory_viz.segsum(snapshot)
    lines = memory_viz.memory(snapshot, format_flamegraph=str)
    assert lines.splitlines() == [
        f"stream_0;active_allocated;train.py:52:<module>;train.py:40:main;model.py:10:forward;"
        f"0 forward:0:primals_1 (input) {segment['total_size']}"  # PyTorch cuts file names at the last slash
    ]
    assert memory_viz.trace(snapshot).startswith("Device 0")
    assert "MemoryViz.js" in memory_viz.trace_plot(snapshot)
    left = memory_viz.filter_alloc_free_pairs(copy.deepcopy(snapshot))["device_traces"]
    assert [event["addr"] for events in left for event in events] == [segment["address"]]
