"""Names of modules as FX nodes carry them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import nn

from stepscope.tracer.inductor.sources.fx_nodes import module_paths


def node(*stack: tuple[str, Any], key: str = "nn_module_stack") -> Any:
    return SimpleNamespace(meta={key: {str(i): entry for i, entry in enumerate(stack)}})


def test_paths_begin_with_the_class_of_the_root() -> None:
    root = ("L['fn']", nn.Sequential)
    nodes = [
        node(root, ("L['fn'].10", nn.GELU)),
        node(root, ("L['fn'].2", nn.Linear)),
        node(root, ("L['fn'].2", nn.Linear)),
        node(root),
    ]
    assert module_paths(nodes) == ["Sequential", "Sequential.2 (Linear)", "Sequential.10 (GELU)"]


def test_backward_nodes_and_names_of_classes() -> None:
    stack = (("L['self']", "src.model.Net"), ("L['self']._modules['layers'][0].up", "torch.nn.modules.linear.Linear"))
    assert module_paths([node(*stack, key="fwd_nn_module_stack")]) == ["Net.layers.0.up (Linear)"]


def test_nodes_without_a_module_have_none() -> None:
    assert module_paths([SimpleNamespace(meta={}), SimpleNamespace(), node()]) == []
