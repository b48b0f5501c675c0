"""The check of a backward beside the verdict on the forward, on a graph made by hand."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import symbolic_trace

import stepscope
from stepscope.tracer.inductor import eager_runs
from stepscope.tracer.inductor.captured_graph import CapturedGraph
from stepscope.tracer.judge.eager_check import EagerChecks
from stepscope.tracer.judge.judge import Tally
from stepscope.tracer.schema.layer_checks import LayerCheck
from stepscope.tracer.schema.record import Record
from tests.capture.logs import read_log

pytestmark = pytest.mark.slow


class IdleJudge:
    tally = Tally()


class Sink:
    is_on = True
    judge = IdleJudge()

    def __init__(self) -> None:
        self.checks: list[LayerCheck] = []
        self.failures: list[BaseException] = []

    def write(self, record: Record) -> None:
        if isinstance(record, LayerCheck):
            self.checks.append(record)

    def failed(self, where: str, error: BaseException) -> None:
        self.failures.append(error)

    @property
    def verdicts(self) -> list[tuple[str, str]]:
        return [(one.phase, one.verdict) for one in self.checks]


class CompiledFunction(torch.autograd.Function):
    """Doubles its input, and its gradient `factor` times; its node has the name of that of a compiled graph."""

    @staticmethod
    def forward(context: Any, x: Tensor, in_place: bool, factor: int) -> Tensor:
        context.factor = factor
        if not in_place:
            return x * 2
        context.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0] * context.factor, None, None


def checked(sink: Sink) -> Any:
    """Return a graph whose results are its changed input and a view of it."""
    module = symbolic_trace(lambda x: (x.mul_(2), x.view(3)))
    graph = CapturedGraph(module, [], None, None, ["x"], [None], [None, None], 1e-7, True, None)

    def compiled(x: Tensor) -> tuple[Tensor, Tensor]:
        changed: Tensor = CompiledFunction.apply(x, True, 2)  # type: ignore[no-untyped-call]
        return changed, changed.view(3)

    return EagerChecks(sink, 1).checked(graph, compiled)


def test_a_backward_that_cannot_be_watched_leaves_the_verdict_on_the_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_runs, "traces_backward", lambda: True)
    sink = Sink()
    checked(sink)(torch.ones(3, requires_grad=True) * 1)
    assert sink.verdicts == [("forward", "agrees"), ("backward", "not_compared")]
    assert not sink.failures


def test_the_gradient_of_a_view_counts_once() -> None:
    sink = Sink()
    weight = torch.ones(3, requires_grad=True)
    changed, view = checked(sink)(weight * 1)
    (changed + 2 * view).sum().backward()
    assert sink.verdicts == [("forward", "agrees"), ("backward", "agrees")]
    assert not sink.failures
    assert weight.grad is not None
    assert weight.grad.tolist() == [6, 6, 6]


def test_a_backward_that_never_runs_keeps_no_tensor() -> None:
    sink = Sink()
    changed = torch.ones(3, requires_grad=True) * 1
    checked(sink)(changed)
    kept = weakref.ref(changed.grad_fn)
    del changed
    gc.collect()
    assert kept() is None
    assert sink.verdicts == [("forward", "agrees")]


@pytest.mark.parametrize(("factor", "verdict"), [(2, "agrees"), (3, "differs")])
def test_the_backward_of_what_a_graph_copies_into_an_input_is_compared(factor: int, verdict: str) -> None:
    """A graph that only changes inputs returns nothing, and AOTAutograd copies its results into them."""
    module = symbolic_trace(lambda x, y: (y.copy_(x * 2), ())[1])
    graph = CapturedGraph(module, [], None, None, ["x", "y"], [None, None], [], 1e-7, True, None)

    def compiled(x: Tensor, y: Tensor) -> tuple[()]:
        y.copy_(CompiledFunction.apply(x, False, factor))  # type: ignore[no-untyped-call]
        return ()

    sink = Sink()
    weight, into = torch.ones(3, requires_grad=True), torch.zeros(3)
    EagerChecks(sink, 1).checked(graph, compiled)(weight * 1, into)
    into.sum().backward()  # type: ignore[no-untyped-call]
    assert sink.verdicts == [("forward", "agrees"), ("backward", verdict)]
    assert not sink.failures


class _Sine(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        gradient: Tensor = gradients[0] * x.cos()
        return gradient


@pytest.mark.parametrize("changes", [False, True])
def test_a_saved_input_that_changes_unseen_is_told(changes: bool) -> None:
    """Its copy is the one that the check has of the inputs."""
    module = symbolic_trace(lambda x: (x.sin(),))
    graph = CapturedGraph(module, [], None, None, ["x"], [None], [None], 1e-7, True, None)
    sink = Sink()
    weight = torch.ones(3, requires_grad=True)
    named: Any = type("CompiledFunction", (_Sine,), {})
    (result,) = EagerChecks(sink, 1).checked(graph, lambda x: (named.apply(x),))(weight)
    if changes:
        weight.data.zero_()
    result.sum().backward()
    assert sink.verdicts == [("forward", "agrees"), ("backward", "not_compared" if changes else "agrees")]
    assert not sink.failures
    if changes:
        why = "1 tensor that the forward pass saved changed before the backward pass"
        assert (sink.checks[1].why or "").startswith(why)


def _said(function: Any, folder: Path) -> list[str]:
    """Return the reasons for which parts of a checked training step of a compiled function were not compared."""
    torch._dynamo.reset()
    weight = torch.rand(3, 4, requires_grad=True)
    with stepscope.trace(folder, check_eager=1):
        results = torch.compile(function)(weight)  # type: ignore[no-untyped-call]
        sum(one.sum() for one in results).backward()
    records = [one for path in folder.glob("*.log") for one in read_log(path) if one.artifact == "stepscope_skipped"]
    return [one.json()["why"] for one in records if "eager mode" in one.json()["what"]]


@pytest.mark.filterwarnings("ignore")
def test_gradients_through_views_of_inputs_are_said_to_be_not_compared(tmp_path: Path) -> None:
    reason = "gradients through {} of inputs do not reach the compiled backward"
    assert _said(lambda x: (x.t(), x.sin()), tmp_path / "a") == [reason.format("an output that is a view")]
    assert _said(lambda x: (x.t(), x[0]), tmp_path / "b") == [reason.format("2 outputs that are views")]
    assert _said(lambda x: (x.sin().t(), x.cos()), tmp_path / "c") == []
