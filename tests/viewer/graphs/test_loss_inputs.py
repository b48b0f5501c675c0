"""Losses that get what they do not expect are found in the text of Dynamo's graphs, and those that get it are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepscope.viewer.graphs.queries.dynamo_nodes import functions
from stepscope.viewer.graphs.queries.loss_inputs import mistakes

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
N = 12


def logged(loss: Loss, width: int, target: Tensor, **options: Any) -> str:
    """Return the graph of a loss as Dynamo logs it, for a model with results of size (N, width)."""
    graphs: list[str] = []

    def keep(module: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(module.print_readable(print_output=False, include_stride=True, include_device=True))
        return module.forward

    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, width))
    torch.compile(loss, backend=keep, **options)(model, torch.randn(N, 8), target)
    (graph,) = graphs
    return graph


def one_hot(classes: Tensor) -> Tensor:
    return (classes[:, None] == torch.arange(3)).float()


def found(loss: Loss, width: int, target: Tensor, **options: Any) -> list[tuple[str, str, str, str]]:
    graph = logged(loss, width, target, **options)
    return [(mistake, loss.function, given.function, size) for mistake, loss, given, size in mistakes(functions(graph))]


@pytest.mark.parametrize(
    ("loss", "function"),
    [
        (lambda model, x, y: (model(x) - y).pow(2).mean(), "-"),
        (lambda model, x, y: ((y - model(x).float()) ** 2).sum() / N, "-"),
        (lambda model, x, y: torch.sub(model(x), y * 2).abs().mean(), "sub"),
        (lambda model, x, y: (0.5 * (torch.tanh(model(x)) - (y - 1)).square() / 4).mean(), "-"),
        (lambda model, x, y: F.l1_loss(model(x), y), "l1_loss"),
        (lambda model, x, y: F.mse_loss(input=model(x), target=y), "mse_loss"),
        (lambda model, x, y: F.huber_loss(model(x), y, reduction="none").mean(), "huber_loss"),
    ],
)
@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_each_prediction_is_combined_with_all_targets(loss: Loss, function: str, is_dynamic: bool) -> None:
    (pair,) = found(loss, 1, torch.randn(N), dynamic=is_dynamic)
    assert pair[:3] == ("all pairs", function, "linear")
    assert pair[3].startswith("s") if is_dynamic else pair[3] == str(N)


def huber(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    error: Tensor = model(x) - y
    size = error.abs()
    return torch.where(size < 1, 0.5 * error * error, size - 0.5).mean()


def quantile(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    error: Tensor = y - model(x)
    return torch.max(0.9 * error, -0.1 * error).mean()


@pytest.mark.parametrize("loss", [huber, quantile])
def test_a_loss_that_is_written_out_combines_all(loss: Loss) -> None:
    assert [one[:3] for one in found(loss, 1, torch.randn(N))] == [("all pairs", "-", "linear")]


def ranking(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    score: Tensor = model(x)
    return F.relu(1 - (score - score.squeeze(1)) * (y[:, None] - y).sign()).mean()


def attention(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    weights: Tensor = (model(x) - y).softmax(dim=-1)
    return (weights @ x).mean()


def nearest(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    distance: Tensor = (model(x) - y).abs()
    return distance.min(dim=1).values.mean()


@pytest.mark.parametrize(
    "loss",
    [
        lambda model, x, y: (model(x).squeeze(1) - y).pow(2).mean(),
        lambda model, x, y: (model(x) - y.unsqueeze(1)).pow(2).mean(),
        lambda model, x, y: (model(x) - y[:, None]).pow(2).mean(),
        lambda model, x, y: (y[:, None] - y).pow(2).mean() * model(x).mean(),
        lambda model, x, y: (x.norm(dim=1, keepdim=True) - y).mean() * model(x).mean(),
        lambda model, x, y: (model(x) - y.mean()).pow(2).mean(),
        lambda model, x, y: ((model(x) - y).pow(2) * (x @ x.T)).mean(),
        lambda model, x, y: ((model(x) * y - x @ x.T) ** 2).mean(),
        lambda model, x, y: 2 * ((p := model(x)) - y).abs().mean() - (p - p.T).abs().mean(),
        lambda model, x, y: (-((model(x) - y) ** 2)).exp().mean(),
        lambda model, x, y: F.softplus(y - model(x)).mean(),
        lambda model, x, y: (y * F.relu(model(x))).mean(),
        ranking,
        attention,
        nearest,
    ],
)
def test_pairs_on_purpose_and_equal_sizes_are_no_mistake(loss: Loss) -> None:
    assert found(loss, 1, torch.randn(N)) == []


CLASSES = torch.arange(N) % 3


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda model, x, y: F.cross_entropy(model(x).softmax(dim=-1), y), "cross_entropy of softmax"),
        (lambda model, x, y: F.cross_entropy(F.softmax(model(x), 1).view(-1, 3), y), "cross_entropy of softmax"),
        (lambda model, x, y: F.nll_loss(model(x).softmax(1).log_softmax(1), y), "log_softmax of softmax"),
        (
            lambda model, x, y: F.binary_cross_entropy_with_logits(model(x).sigmoid(), one_hot(y)),
            "binary_cross_entropy_with_logits of sigmoid",
        ),
        (lambda model, x, y: F.nll_loss(model(x), y), "nll_loss of linear"),
        (lambda model, x, y: F.nll_loss(F.softmax(model(x), dim=1), y), "nll_loss of softmax"),
        (lambda model, x, y: F.kl_div(model(x).softmax(1), one_hot(y)), "kl_div of softmax"),
    ],
)
@pytest.mark.filterwarnings("ignore:reduction")
def test_a_loss_gets_what_it_does_not_expect(loss: Loss, expected: str) -> None:
    ((mistake, function, given, _),) = found(loss, 3, CLASSES)
    assert f"{function} of {given}" == expected
    assert mistake == ("no logarithm" if function in ("nll_loss", "kl_div") else "probabilities")


@pytest.mark.parametrize(
    "loss",
    [
        lambda model, x, y: F.cross_entropy(model(x), y),
        lambda model, x, y: F.nll_loss(model(x).log_softmax(1), y),
        lambda model, x, y: F.nll_loss(model(x).softmax(1).log(), y),
        lambda model, x, y: F.binary_cross_entropy(model(x).sigmoid(), one_hot(y)),
        lambda model, x, y: F.kl_div(model(x).log_softmax(1), one_hot(y).softmax(1), reduction="batchmean"),
        lambda model, x, y: F.cross_entropy(model(x) * model(x).softmax(1), y),
        lambda model, x, y: F.cross_entropy(model(x), model(x).softmax(1).detach()),
        lambda model, x, y: F.cross_entropy(target=model(x).softmax(1).detach(), input=model(x)),
        lambda model, x, y: F.cross_entropy(model(x).softmax(1) @ torch.eye(3), y),
        lambda model, x, y: F.cross_entropy(model(x).softmax(1) / 0.05, y),
        lambda model, x, y: F.cross_entropy(-model(x).softmax(1), y),
        lambda model, x, y: F.cross_entropy(model(x).softmax(1) + model(x), y),
        lambda model, x, y: F.nll_loss(model(x) - model(x).logsumexp(1, keepdim=True), y),
        lambda model, x, y: F.nll_loss(model(x), y, reduction="none").sum(),
    ],
)
def test_a_loss_gets_what_it_expects(loss: Loss) -> None:
    assert found(loss, 3, CLASSES) == []


def test_a_text_that_is_no_graph_ends() -> None:
    looped = """
    def forward(self, y: "i64[3]"):
        x: "f32[3, 3]" = x.view(3, 3)
        x: "f32[3, 3]" = x.view(3, 3)
        loss: "f32[]" = torch.nn.functional.cross_entropy(x, y)
        other: "f32[]" = """
    assert [*mistakes(functions(looped + "a" * 200_000))] == []
