"""PyTorch's helpers and a log of stepscope say the same of one program, compiled once."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.steps.rows import LaunchDetail
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.rows import ValueRow
from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.logs import LogRecord, read_log
from tests.tracer.logs import read
from tests.viewer.client import Client

ITEM_BYTES = {"float32": 4, "int64": 8}
ALIGNED_BYTES = 16
BLOCK = re.compile(r"inductor: (?:before|after)_launch - (\S+) - (\S+)\n(.*?Std: +\S+)", re.DOTALL)
COMMENT = re.compile(r"Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]")


@dataclass(frozen=True)
class Done:
    """A recorded run, and what PyTorch's helpers said of it."""

    folder: Path
    log: Path
    said: dict[str, Any]
    trace: Trace

    @cached_property
    def ours(self) -> dict[str, list[Any]]:
        return read(self.log)

    @cached_property
    def torchs(self) -> list[LogRecord]:
        return read_log(self.log)

    @cached_property
    def launches(self) -> list[LaunchDetail]:
        count = sum(len(batch["site"]) for batch in self.ours["launches"])
        found = [launch_detail(self.trace, number) for number in range(count)]
        return [detail for detail in found if detail is not None]

    @cached_property
    def values(self) -> list[ValueRow]:
        read_here = (one for launch in self.launches for one in launch.values)
        return [row for argument in read_here for row in (*argument.before, *argument.after)]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    folder = tmp_path_factory.mktemp("helpers")
    command = [sys.executable, "-m", "tests.pytorch_helpers.program", str(folder)]
    environment = clean_environment(folder / "cache")
    ran = python_processes.run(command, env=environment, timeout=600)
    assert ran.returncode == 0, ran.stderr[-3000:]
    (log,) = folder.glob("*.log")
    with open_trace([str(log)], index_dir=folder) as trace:
        yield Done(folder, log, json.loads((folder / "said.json").read_text()), trace)


def figures(block: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Z][a-z ]+): +(.+)$", block, re.MULTILINE))


def is_alike(row: ValueRow, said: dict[str, str]) -> bool:
    """Numbers of elements, dtype, and all four statistics."""
    if row.numel != int(said["Number of elements"]) or f"torch.{row.dtype}" != said["Dtype"]:
        return False
    pairs = [(row.mean, said["Mean"]), (row.min, said["Min"]), (row.max, said["Max"]), (row.std, said["Std"])]
    return all(mine is not None and math.isclose(mine, float(theirs), rel_tol=1e-5) for mine, theirs in pairs)


# torch/_inductor/codegen/debug_utils.py


@pytest.mark.slow
@pytest.mark.parametrize("name", ["value", "weight", "sines"])
def test_the_figures_of_a_tensor_are_those_that_torch_prints(done: Done, name: str) -> None:
    said = figures(done.said["tensors"][name])
    alike = [row for row in done.values if is_alike(row, said)]
    assert alike
    sites = {graph["graph"]: graph["sites"] for graph in done.ours["graph"]}
    sizes = {
        tuple(meta["size"])
        for record in done.ours["tensors"]
        for meta in record["tensors"]
        if sites[record["graph"]][record["site"]]["arguments"]
    }
    assert tuple(int(number) for number in re.findall(r"\d+", said["Size"])) in sizes


def test_what_is_not_finite_is_counted_and_hides_no_figure(done: Done) -> None:
    """PyTorch prints nan for the mean and the deviation of a tensor with one infinity in it."""
    said = figures(done.said["tensors"]["logarithms"])
    assert (said["Mean"], said["Min"], said["Std"]) == ("nan", "-inf", "nan")
    (row,) = {row.value: row for row in done.values if row.numel == 6 and row.negative_infinity}.values()
    assert row.negative_infinity == said_count(done.said["tensors"]["logarithms"], "-inf") > 0
    assert row.first_bad is not None
    assert row.mean is not None
    assert math.isfinite(row.mean)
    assert row.max == pytest.approx(float(said["Max"]))


def said_count(block: str, word: str) -> int:
    elements = block[block.index("tensor(") : block.index("Number of elements")]
    return elements.count(word)


def test_every_argument_that_the_printer_shows_is_recorded(done: Done) -> None:
    blocks = BLOCK.findall(done.said["printed"])
    assert blocks
    for kernel, argument, block in blocks:
        assert any(is_alike(row, figures(block)) for row in done.values), (kernel, argument)


def test_kernels_that_the_printer_leaves_out_are_recorded(done: Done) -> None:
    """In a Python wrapper it shows no C++ kernels, and of extern kernels no output that is passed as `out=`."""
    printed = {kernel for kernel, _, _ in BLOCK.findall(done.said["printed"])}
    recorded = {launch.site.kernel for launch in done.launches}
    assert printed < recorded
    assert {kernel for kernel in recorded - printed if kernel.startswith("cpp_fused")}
    product = next(launch for launch in done.launches if launch.site.kernel == "extern_kernels.mm")
    assert [one.role for one in product.site.arguments] == ["in", "in", "out"]
    assert all(one.after for one in product.values if product.site.arguments[one.argument].role == "out")


# torch/_inductor/utils.py


def test_generated_code_of_forward_and_backward_is_that_of_torchs_helper(done: Done) -> None:
    records = [record for record in done.torchs if "inductor_output_code" in record.header]
    payloads = [record.payload.decode() for record in records if record.payload is not None]
    assert [text.strip() for text in payloads] == [text.strip() for text in done.said["code"]]
    assert Client(done.trace).get("/compile/0_0?stage=code").status_code == 200


def test_every_kernel_that_was_defined_stands_with_its_launch(done: Done) -> None:
    kernels = done.said["kernels"]
    assert len(kernels) == 4
    shown = [launch.code or "" for launch in done.launches]
    for text in kernels:
        body = text[text.index("'''") : text.rindex("'''")].strip()
        assert [code for code in shown if body in code], text[:200]


def test_names_of_fused_kernels_are_torchs(done: Done) -> None:
    named = {name for code in done.said["code"] for name in re.findall(r"^(cpp_fused\w+) = ", code, re.MULTILINE)}
    answer = Client(done.trace).get("/kernels.json").json()
    assert {row["kernel"] for row in answer["kernels"] if row["kind"] == "cpp"} == named


def test_source_nodes_and_operators_are_those_of_the_comment(done: Done) -> None:
    """What `get_kernel_metadata` writes above an extern kernel."""
    said = {found for code in done.said["code"] for found in COMMENT.findall(code)}
    assert len(said) == 3
    extern = [launch.site for launch in done.launches if launch.site.kind in ("extern", "fallback")]
    assert {(", ".join(site.source_nodes), ", ".join(site.aten)) for site in extern} == said


def test_source_nodes_and_operators_of_every_kernel_are_those_of_torchs_helper(done: Done) -> None:
    """Of C++ kernels, too, above which PyTorch writes no such comment."""
    for graph, said in zip(done.ours["graph"], done.said["metadata"], strict=True):
        assert {site["kind"] for site in graph["sites"]} >= {"cpp", "extern"}
        for site in graph["sites"]:
            comments = [COMMENT.search(said[name]) for name in site["snodes"]]
            nodes, operators = zip(*(found.groups() for found in comments if found is not None), strict=True)
            assert set(site["source_nodes"]) == names_of(nodes), site["kernel"]
            assert set(site["aten"]) == names_of(operators), site["kernel"]


def names_of(lists: Iterable[str]) -> set[str]:
    return {name for text in lists for name in text.split(", ") if name}


def test_lines_and_nodes_behind_every_kernel_are_recorded(done: Done) -> None:
    """More than the detailed metadata of a kernel: the lines of the program as well, of C++ kernels too."""
    for launch in done.launches:
        assert launch.site.fx_nodes, launch.site.kernel
        files = {frame.file for stack in launch.site.stacks for frame in stack}
        assert any(file.endswith("program.py") for file in files), launch.site.kernel


def test_nodes_of_the_scheduler_are_in_its_final_order(done: Done) -> None:
    assert [record["snode"] for record in done.ours["scheduler_memory"]] == done.said["scheduled"]


def test_buffers_of_the_lowered_graph_are_recorded(done: Done) -> None:
    for record, names in zip(done.ours["scheduler_memory"], done.said["buffers"], strict=True):
        assert names
        assert set(names) <= set(record["buffers"]["name"])


def test_what_nodes_read_and_write_are_arguments_of_their_launches(done: Done) -> None:
    """`dump_node_schedule` names what each node reads and writes; a fused kernel keeps some of it to itself."""
    written = 0
    for graph, nodes in zip(done.ours["graph"], done.said["schedules"], strict=True):
        sites = {name: site for site in graph["sites"] for name in site["snodes"] or ()}
        reads, writes = ({one["node"]: dependencies(one["text"], what) for one in nodes} for what in ("Read", "Write"))
        for one in nodes:
            site = sites[one["node"]]
            arguments = {argument["buffer"]: argument["role"] for argument in site["arguments"]}
            inside = set().union(*(writes.get(name, set()) for name in site["snodes"]))
            assert reads[one["node"]] - inside <= set(arguments), one
            outside = {name for name in writes[one["node"]] if name in arguments}
            assert all(arguments[name] in ("out", "inout") for name in outside), one
            written += len(outside)
    assert written


def dependencies(text: str, what: str) -> set[str]:
    part = text.partition(f"{what}Dep:")[2].partition("WriteDep:")[0]
    return set(re.findall(r"MemoryDep\('(\w+)'", part))


def test_offsets_and_addresses_say_whether_an_input_is_aligned(done: Done) -> None:
    """`tensor_is_aligned` looks at the offset alone; on a device Inductor looks at the address of the call, too."""
    assert done.said["is_aligned"] == [False, True, True]
    assert done.said["is_assumed_aligned"] == [False] * 3  # on a CPU no input is taken for aligned
    graph = done.ours["graph"][0]
    offsets: dict[str, int] = {}
    for record in done.ours["tensors"]:
        for meta in record["tensors"] if record["graph"] == graph["graph"] else ():
            argument = graph["sites"][record["site"]]["arguments"][meta["argument"]]
            if meta["dtype"] in ITEM_BYTES:
                offsets[argument["buffer"]] = meta["offset"] * ITEM_BYTES[meta["dtype"]]
                assert meta["storage"] > 0
    inputs = ("primals_1", "primals_2", "primals_3")
    assert [offsets[name] % ALIGNED_BYTES == 0 for name in inputs] == done.said["is_aligned"]


def test_graphs_before_and_after_passes_are_recorded(done: Done) -> None:
    wanted = {
        "before_pre_grad_graph", "after_pre_grad_graph", "before_post_grad_graph", "inductor_post_grad_graph",
        "fx_graph_runnable",
    }  # fmt: skip
    assert wanted <= {name for record in done.torchs for name in (*record.header, record.artifact or "")}
    answer = Client(done.trace).get("/compile/0_0.json").json()
    stages = {stage["name"]: [graph["label"] for graph in stage["graphs"]] for stage in answer["stages"]}
    assert {"before the passes", "after the passes"} <= set(stages["pre_grad"])


def test_every_launch_has_its_time(done: Done) -> None:
    assert done.launches
    assert all(launch.duration_ns is not None and launch.duration_ns > 0 for launch in done.launches)
    kernels = Client(done.trace).get("/kernels.json").json()["kernels"]
    assert all(row["duration_ns"] > 0 for row in kernels)


def test_settings_that_differ_from_their_defaults_stand_with_the_run(done: Done) -> None:
    assert done.ours["run"][0]["config"] == {"_inductor.config.debug_ir_traceback": True}
