"""The lines behind which a compiled function passes no gradient to the parameters of its model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from stepscope.viewer.graphs.queries.cut_gradients import ends_of
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


@pytest.mark.parametrize(
    ("function", "ends"),
    [
        (straight_through, ["detach"]),
        (lambda model, x, y: model(x).detach().sum() * y, ["detach"]),
        (without_gradients, ["linear"]),
        (lambda model, x, y: (model(x) > 0) * y, []),
        (lambda model, x, y: model(x) * y + model(x).detach(), None),
        (lambda model, x, y: y * 2, []),
    ],
    ids=["straight through", "detached", "no_grad", "compared", "used as well", "not used"],
)
def test_where_gradients_end(function: Loss, ends: list[str] | None) -> None:
    found = ends_of(logged(function, 1, torch.randn(12)), NAMES)
    assert (None if found is None else list(dict.fromkeys(one.function for one in found))) == ends
    for one in found or ():
        assert one.source is not None
        assert Path(one.source.file).suffix == ".py"


def test_a_text_that_is_no_graph_has_no_ends() -> None:
    assert ends_of("def forward(:", NAMES) == []
    assert ends_of("", NAMES) == []
