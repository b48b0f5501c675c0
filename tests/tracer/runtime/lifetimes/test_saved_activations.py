"""Activations that autograd saves for the backward: who keeps them alive, and who is to free them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from stepscope.tracer.schema.memory import LifetimeLayout, LifetimeMismatch
from tests.tracer.runtime.lifetimes.test_lifetimes import (  # noqa: F401 - afresh is a fixture
    afresh,
    block,
    deaths,
    live_bytes,
    no_reuse,
    record,
    stash,
    stashing,
)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # torch warns of itself while it compiles

kept: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    kept.clear()


@torch.library.custom_op("stepscope_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("stepscope_tests::doubled_backward", mutates_args=())
def doubled_backward(gradient: torch.Tensor, saved: torch.Tensor) -> torch.Tensor:
    """Keeps what the forward has saved."""
    kept.append(saved)
    return gradient * 2


def _save_input(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


doubled.register_fake(lambda x: torch.empty_like(x))
doubled_backward.register_fake(lambda gradient, saved: torch.empty_like(gradient))
doubled.register_autograd(
    lambda ctx, gradient: doubled_backward(gradient, *ctx.saved_tensors), setup_context=_save_input
)


def test_a_saved_activation_that_a_kernel_of_the_backward_keeps(tmp_path: Path) -> None:
    x = torch.ones(8, 8, requires_grad=True)
    with no_reuse():
        records = record(tmp_path, lambda: torch.compile(lambda a: doubled((a @ a).sin()) @ a)(x).sum().backward())
    (found,) = records[LifetimeMismatch.KIND]
    assert (found["kind"], found["storage_bytes"]) == (["missing_death"], [256])
    assert (found["actual"], found["expected_by"]) == ([None], ["wrapper"])
    assert found["holders"] == [[f"list of 1 in kept of {__name__}"]]
    (backward,) = (one for one in records[LifetimeLayout.KIND] if one["layout"] == found["layout"])
    assert backward["kind"][found["storage"][0]] == "input"
    assert backward["calls_back"][found["storage"][0]] == 1
    assert found["buffer"] == [backward["name"][found["storage"][0]]]


@pytest.mark.parametrize("afresh", ["compiled"], indirect=True)
def test_a_saved_activation_that_the_runtime_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._functorch._aot_autograd import runtime_wrappers

    original: Any = runtime_wrappers.call_func_at_runtime_with_args  # type: ignore[attr-defined]

    def unboxed(f: Any, args: Any, **settings: Any) -> Any:
        saved = list(args)
        result = original(f, args, **settings)
        del saved
        return result

    monkeypatch.setattr(runtime_wrappers, "call_func_at_runtime_with_args", unboxed)
    x = torch.ones(8, 8, requires_grad=True)
    records = record(tmp_path, lambda: torch.compile(lambda a: (a @ a).sin().exp() @ a)(x).sum().backward())
    (found,) = records[LifetimeMismatch.KIND]
    assert set(found["kind"]) == {"missing_death"}
    for words in found["holders"]:
        assert re.fullmatch(
            r"list of 4 in local variable saved of unboxed\(\) at test_saved_activations.py:\d+", *words
        )


@pytest.mark.parametrize("afresh", ["compiled"], indirect=True)
def test_what_the_program_or_autograd_holds_is_theirs_to_free(tmp_path: Path) -> None:
    x = torch.ones(8, 8, requires_grad=True)

    def several(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = (a @ a).exp()  # saved for the backward, and returned
        return h, (h.sin() @ a).tanh()

    def run() -> None:
        compiled: Any = torch.compile(several)
        for _ in range(3):
            h, y = compiled(x)
            (h.sum() + y.sum()).backward(retain_graph=True)
            kept.append(h)
            (h.sum() + y.sum()).backward()

    assert not record(tmp_path, run, lifetimes="assert")[LifetimeMismatch.KIND]


@pytest.mark.parametrize("returns_first", [True, False])
def test_integers_that_are_saved_and_returned_are_the_programs_to_free(tmp_path: Path, returns_first: bool) -> None:
    """Autograd saves such an output as the very tensor that the program has."""
    x = torch.ones(8, 8, requires_grad=True)

    def masked(a: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        half = lengths // 2 + 1
        y = (a @ a).tanh() * (torch.arange(8) < half[:, None])
        return (half, y) if returns_first else (y, half)

    def run() -> None:
        compiled: Any = torch.compile(masked)
        for _ in range(3):
            outputs = compiled(x, torch.randint(8, (8,)))
            next(one for one in outputs if one.requires_grad).sum().backward()

    assert not record(tmp_path, run, lifetimes="assert")[LifetimeMismatch.KIND]
