"""The scheduler's estimate of memory: bytes summed by hand here, on cold and warm caches."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
import torch._inductor.memory
from torch._inductor.codecache import PyCodeCache
from torch._inductor.utils import run_and_get_code

import stepscope
from stepscope.tracer.inductor import codegen_facts
from stepscope.tracer.schema.constants import CACHED_ESTIMATE
from tests import python_processes
from tests.programs import load
from tests.tracer.logs import read

# torch warns of itself while it compiles.
pytestmark = pytest.mark.filterwarnings("ignore")

FLOAT = 4
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    torch._dynamo.reset()
    PyCodeCache.cache_clear()
    torch.manual_seed(0)
    with inductor_config.patch(force_disable_caches=True):
        yield


def record(folder: Path, run: Callable[[], Any]) -> dict[str, list[Any]]:
    with stepscope.trace(folder) as recorder:
        run()
    assert recorder.path is not None
    records = read(recorder.path)
    assert not records["failure"]
    return records


def schedules(folder: Path, run: Callable[[], Any]) -> list[dict[str, Any]]:
    return record(folder, run)["scheduler_memory"]


def only(folder: Path, function: Callable[..., Any], *inputs: Any, **options: Any) -> dict[str, Any]:
    found = schedules(folder, lambda: torch.compile(function, **options)(*inputs))
    assert len(found) == 1
    return found[0]


def rows(memory: dict[str, Any]) -> dict[str, tuple[int, int, int, int, str]]:
    """By name of the buffer: allocated and freed bytes, first and last node, role."""
    buffers = memory["buffers"]
    columns = ("alloc_bytes", "free_bytes", "first_snode", "last_snode", "role")
    return dict(zip(buffers["name"], zip(*(buffers[name] for name in columns), strict=True), strict=True))


def curve(memory: dict[str, Any]) -> list[tuple[int, int]]:
    return list(zip(memory["after_alloc_bytes"], memory["after_free_bytes"], strict=True))


def check_sums(memory: dict[str, Any]) -> None:
    """The columns say one thing: each node's bytes are those of its buffers, and the curve is their running sum."""
    live, count = 0, len(memory["snode"])
    for index in range(count):
        born = sum(row[0] for row in rows(memory).values() if row[2] == index)
        died = sum(row[1] for row in rows(memory).values() if row[3] == index)
        assert (memory["alloc_bytes"][index], memory["free_bytes"][index]) == (born, died)
        assert curve(memory)[index] == (live + born, live + born - died)
        live += born - died
    assert memory["peak_bytes"] == max(memory["after_alloc_bytes"])
    at_peak = [i for i, live in enumerate(memory["after_alloc_bytes"]) if live == memory["peak_bytes"]]
    assert memory["peak_snodes"] == at_peak
    assert {len(memory[name]) for name in ("members", "node_kind", "alloc_bytes", "free_bytes")} == {count}


@pytest.mark.slow
def test_bytes_of_a_chain_are_the_sums_by_hand(tmp_path: Path) -> None:
    def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x @ w).relu() @ w).sum(1)

    memory = only(tmp_path, chain, torch.ones(8, 16), torch.ones(16, 16))
    square = 8 * 16 * FLOAT
    assert curve(memory) == [
        (square, square),  # x @ w
        (2 * square, square),  # its relu; the product dies
        (2 * square, square),  # @ w; the relu dies
        (square + 8 * FLOAT, 8 * FLOAT),  # the sum is the output
    ]
    assert memory["peak_bytes"] == 1024
    assert memory["peak_snodes"] == [1, 2]
    assert dict(zip(memory["base_name"], memory["base_bytes"], strict=True)) == {"arg0_1": 512, "arg1_1": 1024}
    assert [rows(memory)[f"buf{i}"] for i in range(4)] == [
        (512, 512, 0, 1, "temporary"),
        (512, 512, 1, 2, "temporary"),
        (512, 512, 2, 3, "temporary"),
        (32, 32, 3, -1, "output"),
    ]
    assert memory["members"] == [["op0"], ["op1"], ["op2"], ["op3"]]
    assert (memory["subgraph"], memory["graph"]) == (None, 0)
    check_sums(memory)


def test_what_fusion_leaves_no_memory_is_removed(tmp_path: Path) -> None:
    def update(x: torch.Tensor) -> torch.Tensor:
        y = (x + 1) * 2
        x.add_(y)  # its sum is written to x alone
        return y @ y

    records = record(tmp_path, lambda: torch.compile(update)(torch.ones(4, 4)))
    (memory,), (graph,) = records["scheduler_memory"], records["graph"]
    square = 4 * 4 * FLOAT
    roles = {name: row[4] for name, row in rows(memory).items()}
    assert sorted(roles.values()) == ["output", "removed", "temporary", "temporary"]
    (removed,) = (name for name, role in roles.items() if role == "removed")
    assert rows(memory)[removed] == (square, square, 0, 0, "removed")
    allocated = {event["buffer"] for event in graph["memory"] if event["event"] == "allocate"}
    assert removed not in allocated
    alias = {name for name, row in rows(memory).items() if row[4] == "temporary" and row[:2] == (0, 0)}
    assert len(alias) == 1  # the new name of x, whose memory is the caller's
    assert dict(zip(memory["base_name"], memory["base_bytes"], strict=True)) == {"arg0_1": square}
    check_sums(memory)


def test_a_zero_size_buffer_is_there_with_no_bytes(tmp_path: Path) -> None:
    memory = only(tmp_path, lambda: (torch.zeros(0) + 1, torch.ones(3) + 1))
    assert rows(memory) == {"buf0": (0, 0, 0, -1, "output"), "buf1": (12, 12, 1, -1, "output")}
    assert (memory["peak_bytes"], memory["peak_snodes"]) == (12, [1])
    check_sums(memory)


def test_members_of_a_multiple_output_are_charged_once(tmp_path: Path) -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, indices = torch.sort(x)
        return values * 2, indices + 1

    memory = only(tmp_path, both, torch.arange(10.0))
    values, indices = 10 * FLOAT, 10 * 8
    found = rows(memory)
    assert found["buf0"][:3] == (values + indices, 0, 0)  # the tuple
    assert sorted(found[name][:2] for name in ("buf1", "buf2")) == [(0, values), (0, indices)]  # taken out of it
    assert memory["after_alloc_bytes"][0] == values + indices
    assert memory["after_free_bytes"][-1] == values + indices  # the two results
    assert memory["peak_bytes"] in (2 * (values + indices), 2 * values + indices, values + 2 * indices)
    check_sums(memory)


def test_dynamic_shapes_are_counted_by_their_hints(tmp_path: Path) -> None:
    memory = only(tmp_path, lambda x: (x @ x.T).relu().sum(0), torch.ones(6, 3), dynamic=True)
    assert memory["alloc_bytes"] == [6 * 6 * FLOAT, 6 * FLOAT]
    assert memory["base_bytes"] == [6 * 3 * FLOAT]
    check_sums(memory)


def test_each_subgraph_has_a_schedule_of_its_own(tmp_path: Path) -> None:
    def branch(flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        picked: torch.Tensor = torch.cond(flag, lambda x: (x @ x).relu(), lambda x: x.sin() @ x, (x,))
        return picked + 1

    found = schedules(tmp_path, lambda: torch.compile(branch)(torch.tensor(True), torch.ones(4, 4)))
    assert found[0]["subgraph"] is None
    assert {memory["subgraph"] for memory in found[1:]} == {"true_graph_0", "false_graph_0"}
    assert [memory["peak_bytes"] for memory in found[1:]] == [2 * 64, 2 * 64]
    assert {memory["graph"] for memory in found} == {0}
    for memory in found:
        check_sums(memory)


def test_saved_activations_are_freeable_inputs_of_the_backward(tmp_path: Path) -> None:
    width = torch.nn.Parameter(torch.ones(16, 16))

    def step() -> None:
        out = torch.compile(lambda x: (x @ width).sigmoid().sum())(torch.ones(8, 16))
        out.backward()

    forward, backward = schedules(tmp_path, step)
    activation, weight = 8 * 16 * FLOAT, 16 * 16 * FLOAT
    inputs = {name: row for name, row in rows(backward).items() if row[4] == "input"}
    assert [row[:3] for row in inputs.values()] == [(activation, activation, 0)] * 2  # the sigmoid and the input
    assert not any(name.startswith("buf") for name in inputs)
    assert set(forward["base_bytes"]) == {activation, weight}
    assert weight in backward["alloc_bytes"]  # the gradient
    for memory in (forward, backward):
        check_sums(memory)


@pytest.mark.slow
def test_every_node_with_a_kernel_has_a_launch_site(tmp_path: Path) -> None:
    program = load()["transformer"]
    records = record(tmp_path, lambda: program.build()())
    assert len(records["scheduler_memory"]) == 2
    for memory in records["scheduler_memory"]:
        (graph,) = (graph for graph in records["graph"] if graph["graph"] == memory["graph"])
        launched = [name for site in graph["sites"] for name in site["snodes"]]
        assert set(launched) <= {name for members in memory["members"] for name in members}
        unmapped = []
        for index, members in enumerate(memory["members"]):
            if launched and set(members) & set(launched):
                assert set(members) <= set(launched), "a fused node is launched as a whole"
            else:
                unmapped.append(index)
        # What has no launch: joined parts that were written in place, and members taken out of a tuple.
        for index in unmapped:
            is_taken = memory["node_kind"][index] == "ExternKernelSchedulerNode" and not memory["alloc_bytes"][index]
            assert is_taken or memory["node_kind"][index] == "NopKernelSchedulerNode"
        check_sums(memory)


def test_checks_that_torch_inserts_do_not_count_as_nodes(tmp_path: Path) -> None:
    def plus(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu()

    plain = only(tmp_path / "plain", plus, torch.ones(4, 4))
    torch._dynamo.reset()
    with inductor_config.patch({"test_configs.track_memory_lifecycle": "log"}):
        checked = only(tmp_path / "checked", plus, torch.ones(4, 4))
    assert checked == plain


def sources() -> list[str]:
    """Of the wrappers of a program, without the number that counts compiles."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    _, found = run_and_get_code(load()["conv_bn"].build())
    return [re.sub(r"(?m)^# AOT ID: .*", "", source) for source in found]


@pytest.mark.slow
def test_the_generated_code_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    plain = sources()
    with stepscope.trace(tmp_path, provenance=False) as recorder:
        recorded = sources()
    assert recorder.path is not None
    assert len(read(recorder.path)["scheduler_memory"]) == 2
    assert len(plain) == 2
    assert recorded == plain


def test_a_version_of_torch_without_the_functions_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._inductor.memory, "estimate_peak_memory_allocfree")
    records = record(tmp_path, lambda: torch.compile(torch.sin)(torch.ones(3)))
    assert not records["scheduler_memory"]
    (skipped,) = records["skipped"]
    assert (skipped["what"], skipped["graph"]) == ("estimated memory", 0)
    assert "estimate_peak_memory_allocfree" in skipped["why"]


WARM = """
import sys, stepscope, torch
@torch.compile
def run(x):
    return (x @ x).relu()
with stepscope.trace(sys.argv[1], level=sys.argv[2]):
    run(torch.ones(4, 4))
"""


def warm(folder: Path, level: str = "launches") -> dict[str, list[Any]]:
    """A process of its own, with the cache folder of this test."""
    command = [sys.executable, "-c", WARM, str(folder), level]
    python_processes.run(command, check=True)
    logs = list(folder.glob("*.log"))
    return read(logs[0]) if logs else {}


def test_a_warm_run_has_the_curve_of_the_cold_one(tmp_path: Path) -> None:
    cold, again = warm(tmp_path / "cold"), warm(tmp_path / "warm")
    assert [graph["cached"] for graph in (*cold["graph"], *again["graph"])] == [False, True]
    assert cold["scheduler_memory"]
    assert again["scheduler_memory"] == cold["scheduler_memory"]
    (path,) = (tmp_path / "cache" / "stepscope").rglob("*.json")
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"version":%d' % codegen_facts.SIDECAR_VERSION, b'"version":1'))
    old = warm(tmp_path / "old")
    assert not old["scheduler_memory"]
    why = "the graph came from a cache and was compiled without stepscope"
    assert {"what": CACHED_ESTIMATE, "why": why, "graph": 0} in old["skipped"]
