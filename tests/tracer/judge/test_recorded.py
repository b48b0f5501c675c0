"""The judge in a recorded program: what it names, what it leaves alone, and that it changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch import Tensor

import stepscope
from stepscope.tracer.judge.sums import Sums
from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.open import open_trace
from tests.judge.reading import judged_in

calls: list[Any] = []
"""What a custom operator saw in each of its calls."""


@torch.library.custom_op("stepscope_tests::greedy_when_judged", mutates_args=())
def greedy(x: Tensor) -> Tensor:
    """Add one; in each second call, which is the judge's, find too little memory."""
    calls.append(None)
    if len(calls) % 2 == 0:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 TB")
    return x + 1


@torch.library.custom_op("stepscope_tests::observing", mutates_args=())
def observing(x: Tensor) -> Tensor:
    """Add one; remember what another thread sees of the settings while it does."""
    thread = threading.Thread(target=lambda: calls.append(settings()))
    thread.start()
    thread.join()
    return x + 1


@greedy.register_fake
@observing.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def needs_memory(x: Tensor) -> Any:
    return greedy(x.sin()).cos() @ x


def is_observed(x: Tensor) -> Any:
    return observing(x.sin()) @ x


def compiled(function: Callable[[Tensor], Any]) -> Any:
    torch._dynamo.reset()
    return torch.compile(function)


def settings() -> dict[str, object]:
    """Return the settings that decide how numbers are computed, and the state of the random numbers."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warns only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "tf32": (matmul.allow_tf32, cudnn.allow_tf32),
        "reduced": (matmul.allow_bf16_reduced_precision_reduction, matmul.allow_fp16_reduced_precision_reduction),
        "cudnn": (cudnn.enabled, cudnn.benchmark, cudnn.deterministic),
        "mkldnn": torch.backends.mkldnn.enabled,
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "threads": torch.get_num_threads(),
        "drawn": torch.get_rng_state().sum().item(),
        "inductor": torch._inductor.config.get_config_copy(),
    }


@contextmanager
def other_settings() -> Iterator[None]:
    """Choose other settings than the usual ones."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
        torch.backends.cudnn.benchmark = False


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_context_judges_its_calls_each_time_and_changes_no_result(tmp_path: Path) -> None:
    def model(value: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.dropout(value, 0.5).sin() * 3).sum(0)

    model_compiled = compiled(model)
    value = torch.randn(8, 16)
    outputs = []
    with stepscope.trace(tmp_path):
        for is_judged in (False, True, False, True):
            torch.manual_seed(7)
            if is_judged:
                with stepscope.judge() as runs:
                    assert runs
                    outputs.append((model_compiled(value), torch.rand(3)))
            else:
                outputs.append((model_compiled(value), torch.rand(3)))
    found = judged_in(tmp_path)
    assert len(found.calls) == 2
    assert all(call["judged"] == call["launches"] - 1 for call in found.calls)  # the seed is drawn, not computed
    assert not found.buffers
    assert not found.inputs
    assert not found.failures
    for result, drawn in outputs[1:]:
        assert torch.equal(result, outputs[0][0])
        assert torch.equal(drawn, outputs[0][1])


@pytest.mark.filterwarnings("ignore")
def test_too_little_memory_is_said_and_what_can_be_judged_is(tmp_path: Path) -> None:
    calls.clear()
    value = torch.rand(8, 8)
    with stepscope.trace(tmp_path, judge="first"):
        result = compiled(needs_memory)(value)
    assert torch.allclose(result, (value.sin() + 1).cos() @ value)
    assert len(calls) == 2
    found = judged_in(tmp_path)
    assert found.reasons() == {"there was not enough memory to recompute it": 1}
    assert (found.judged, found.launches) == (3, 4)
    assert not found.buffers
    assert not found.failures
    with open_trace(tmp_path) as trace:
        (said,) = [one.title for one in all_findings(trace) if one.kind == "not_recorded"]
    assert "not enough memory" in said
    assert "--judge-kernels" in said


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_too_little_memory_to_follow_the_buffers_is_said_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run out of memory outside of a recomputation: in the sums by which changed buffers are found."""

    def step() -> list[Tensor]:
        torch.manual_seed(0)
        weight = torch.rand(8, 8, requires_grad=True)
        loss = compiled(lambda x: torch.dropout(x.sin() @ x, 0.5, train=True).sum())(weight)
        loss.backward()
        assert weight.grad is not None
        return [loss.detach(), weight.grad, torch.get_rng_state()]

    def exhausted(sums: Sums, tensors: list[Tensor]) -> list[Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1024.00 GiB.")

    alone = step()
    monkeypatch.setattr(Sums, "of", exhausted)
    with stepscope.trace(tmp_path, judge="first"):
        judged = step()
    assert all(torch.equal(one, other) for one, other in zip(alone, judged, strict=True))
    found = judged_in(tmp_path)
    assert not found.buffers
    assert not found.failures
    with open_trace(tmp_path) as trace:
        (said,) = [one.title for one in all_findings(trace) if one.kind == "not_recorded"]
    assert "the rest of a judged call" in said
    assert "not enough memory" in said


@pytest.mark.filterwarnings("ignore")
def test_other_threads_see_the_settings_of_the_program_while_the_judge_works(tmp_path: Path) -> None:
    calls.clear()
    value = torch.rand(8, 8)
    with other_settings(), stepscope.trace(tmp_path, judge="first", check_eager=1):
        observing(value)
        (before,) = calls
        compiled(is_observed)(value)
    assert len(calls) > 3
    assert all(one == before for one in calls)
    assert not judged_in(tmp_path).failures


def two_products(x: Tensor) -> Tensor:
    return torch.relu(x @ x.T + x.T @ x)


def columns_again(x: Tensor) -> Tensor:
    joined = torch.cat([x, x * 2], 1)
    return torch.cat([joined, joined[:, :3]], 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [two_products, columns_again])
def test_what_inductor_lowers_in_place_of_several_nodes_is_judged(
    tmp_path: Path, function: Callable[[Tensor], Tensor]
) -> None:
    value = torch.randn(32, 32)
    with inductor_config.patch(max_autotune_gemm=True), stepscope.trace(tmp_path, judge="first"):
        result = compiled(function)(value)
    torch.testing.assert_close(result, function(value))
    found = judged_in(tmp_path)
    assert {verdict for verdict, _ in found.verdicts()} == {"ok"}
    assert not found.buffers
    assert not found.failures
