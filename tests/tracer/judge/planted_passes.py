"""Programs in which a pass of the compiler replaces one operator by another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Program = Callable[[], Any]
aten = torch.ops.aten


def planted(setting: str, old: Any, new: Any, function: Callable[[Tensor], Tensor], *, trains: bool = False) -> Program:
    """Return a program in which a pass replaces one operator by another."""

    def change(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is old:
                node.target = new

    def run() -> Any:
        value = (torch.rand(4, 4) + 0.5).requires_grad_(trains)
        with torch._inductor.config.patch({setting: change, "force_disable_caches": True}):
            result = torch.compile(lambda x: function(x))(value)
            if trains:
                result.sum().backward()  # type: ignore[no-untyped-call]
        return result, value.grad

    return run


PLANTED = {
    "post_grad_0": planted("post_grad_custom_pre_pass", aten.sin.default, aten.cos.default, lambda x: x.sin() * 2),
    "post_grad_1": planted("post_grad_custom_post_pass", aten.exp.default, aten.expm1.default, lambda x: x.exp() * 2),
    "post_grad_2": planted("post_grad_custom_pre_pass", aten.amax.default, aten.amin.default, lambda x: x.amax(1)),
    "post_grad_3": planted("post_grad_custom_pre_pass", aten.sub.Tensor, aten.add.Tensor, lambda x: x.sin() - x),
    "post_grad_4": planted("post_grad_custom_pre_pass", aten.gt.Scalar, aten.lt.Scalar, lambda x: (x > 0.9) * 1),
    "post_grad_5": planted(
        "post_grad_custom_pre_pass", aten.exp.default, aten.sigmoid.default, lambda x: x.exp() * 2, trains=True
    ),
    "joint_0": planted("joint_custom_pre_pass", aten.sin.default, aten.cos.default, lambda x: x.sin() * 2),
    "joint_1": planted("joint_custom_post_pass", aten.floor.default, aten.ceil.default, lambda x: (x * 3).floor()),
    "joint_2": planted("joint_custom_pre_pass", aten.mul.Tensor, aten.add.Tensor, lambda x: x.sin() * x.cos()),
    "joint_3": planted("joint_custom_pre_pass", aten.cos.default, aten.sin.default, lambda x: x.sin() * 2, trains=True),
}
"""Programs with a pass that makes the graph wrong; the layer is in the name."""
