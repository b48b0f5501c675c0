"""The lines behind which a compiled function passes no gradient to the parameters of its model."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from stepscope.viewer.graphs.queries.cut_gradients import ends_of, inputs_of
from stepscope.viewer.graphs.queries.dynamo_nodes import functions, nodes_of
from tests.viewer.graphs.test_loss_inputs import Loss, logged

NAMES = ["0.weight", "0.bias"]


def straight_through(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    z: Tensor = model(x)
    book = y[:, None]
    nearest = book[(z - book).abs().argmin(1)]
    return nearest + (z - nearest).detach()


def without_gradients(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        z: Tensor = model(x).sum()
    return z * y


def side_result(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        model(x).sum()
        model(x).argmax(1)
    return y * 2


def added(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z, out = model(x), torch.zeros(12, 1)
    out += z
    return out, z.detach()


def assigned(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z, out = model(x), torch.zeros(12, 2)
    out[:, :1] = z
    return out, z.detach()


def copied(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z, out = model(x), torch.zeros(12, 1)
    out.copy_(z)
    return out, z.detach()


@pytest.mark.parametrize(
    ("function", "ends"),
    [
        (straight_through, {"return nearest + (z - nearest).detach()"}),
        (without_gradients, {"z: Tensor = model(x).sum()"}),
        (side_result, set()),
        (lambda model, x, y: (model(x) > 0) * y, set()),
        (lambda model, x, y: model(x) * y + model(x).detach(), None),
        (lambda model, x, y: y * 2, set()),
        (added, None),
        (assigned, None),
        (copied, None),
    ],
)
def test_where_gradients_end(function: Loss, ends: set[str] | None) -> None:
    (text,) = functions(logged(function, 1, torch.randn(12)))
    found = ends_of(text, inputs_of(text.nodes, NAMES).values())
    lines = {one.source for one in found or () if one.source is not None}
    assert (None if found is None else {one.code for one in lines}) == ends
    code, first = inspect.getsourcelines(function)
    for one in lines:
        assert Path(one.file).name == Path(__file__).name
        assert code[one.line - first].strip() == one.code


def test_inputs_of_the_outermost_module_alone_are_meant() -> None:
    names = ("L_self_modules_encoder_parameters_weight_", "L_self_modules_teacher_modules_encoder_parameters_weight_")
    inputs = ", ".join(name + ': "f32[4][1]cpu"' for name in names)
    text = f"    def forward(self, {inputs}):\n        return ()\n"
    assert inputs_of(nodes_of(text), ["encoder.weight", "decoder.weight"]) == {"encoder.weight": names[0]}


def test_a_text_that_is_no_graph_has_no_ends() -> None:
    assert functions("") == []
    (function,) = functions("def forward(:")
    assert ends_of(function, NAMES) == []
