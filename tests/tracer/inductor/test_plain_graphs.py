"""Graphs that run as Dynamo captured them: their operations are launches, and their storages are followed."""

from __future__ import annotations

from pathlib import Path

import torch

import stepscope
from stepscope.tracer.inductor.plain_graphs import analyse
from stepscope.tracer.schema.graphs import Graph, Provenance
from stepscope.tracer.schema.launches import Launches
from stepscope.tracer.schema.memory import LifetimeLayout
from tests.tracer.logs import read

CODE = """


def forward(self, L_x_ : torch.Tensor, s0 : torch.SymInt):
    l_x_ = L_x_
    add = l_x_ + 1;  l_x_ = None
    split = add.split(2, 1)
    a = split[0];  split = None
    exp = torch.exp(-a)
    t = a.T
    less = 0 < exp;  exp = None
    return (t, less)
"""


def test_each_operation_is_a_launch() -> None:
    wrapper = analyse(CODE)
    assert [site.kernel for site in wrapper.sites] == [
        "operator.add", "Tensor.split", "torch.exp", "Tensor.T", "operator.lt",
    ]  # fmt: skip
    assert [[argument.name for argument in site.arguments if argument.role == "in"] for site in wrapper.sites] == [
        ["l_x_"], ["add"], ["a"], ["a"], ["exp"],
    ]  # fmt: skip
    assert [(event.event, event.buffer) for event in wrapper.memory] == [
        ("alias", "l_x_"), ("drop", "l_x_"), ("item", "a"), ("drop", "split"), ("drop", "exp"),
    ]  # fmt: skip


def test_a_graph_of_the_eager_backend(tmp_path: Path) -> None:
    torch._dynamo.reset()

    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x + 1).sin()
        return y @ y, y.view(-1)

    x = torch.ones(8, 8)
    expected = model(x)
    with stepscope.trace(tmp_path) as recorder:
        compiled = torch.compile(model, backend="eager")
        for _ in range(2):
            results = compiled(x)
    assert all(torch.equal(left, right) for left, right in zip(results, expected, strict=True))
    assert recorder.path is not None
    records = read(recorder.path)
    graph = records[Graph.KIND][-1]  # before it: wrappers that other tests have loaded
    assert [site["kernel"] for site in graph["sites"]] == [
        "operator.add",
        "Tensor.sin",
        "operator.matmul",
        "Tensor.view",
    ]
    assert sum(len(batch["site"]) for batch in records[Launches.KIND]) == 8
    layout = records[LifetimeLayout.KIND][0]
    assert layout["name"] == ["l_x_", "add", "y", "matmul"]  # the view has no memory of its own
    assert layout["storage_bytes"] == [256] * 4
    assert [(layout["name"][dead], at) for dead, at in zip(layout["dead"], layout["dead_at"], strict=True)] == [
        ("add", 2)
    ]
    (lines,) = (lines for lines in records[Provenance.KIND] if lines["graph"] == graph["graph"])
    assert {lines["frames"][stack[-1]]["code"] for site in lines["sites"] for stack in site["stacks"]} == {
        "y = (x + 1).sin()", "return y @ y, y.view(-1)",
    }  # fmt: skip


def test_detached_graphs_run_their_own_code(tmp_path: Path) -> None:
    torch._dynamo.reset()
    modules = []

    def backend(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        modules.append(module)
        return module.forward

    with stepscope.trace(tmp_path):
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
        hooked = type(modules[0]).forward.__code__
    assert type(modules[0]).forward.__code__ is not hooked
    assert torch.equal(modules[0](torch.ones(2))[0], torch.full((2,), 2.0))
