"""Programs that Inductor compiles with checks of memory steps in them: those of torch's own tracker, no mismatch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._inductor.runtime import debug_utils

import stepscope
from stepscope.tracer import check_memory_step
from stepscope.tracer.inductor.compat import debug_functions_replaced
from stepscope.tracer.runtime.lifetimes import lifecycle_checks
from stepscope.tracer.schema.memory import LifetimeMismatch, MemoryStepMismatch
from tests.tracer.logs import read

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # torch warns of itself while it compiles


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    """Mismatches raise."""
    torch._dynamo.reset()
    with inductor_config.patch({"test_configs.track_memory_lifecycle": "assert", "force_disable_caches": True}):
        yield


def attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = (x @ w).view(1, 2, 4, 8)
    return (torch.nn.functional.scaled_dot_product_attention(h, h, h).softmax(-1) * h).sum()


def sorting(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w + 1).relu().sort(0)[0] @ w


def empty(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(0) + 1, x.sin() @ w


def joined(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """What is joined is written into its place in a buffer that only a later check names."""
    return torch.cat([(x @ w).sin(), x.cos(), (w @ x).sin()], 1) @ torch.cat([w, x, w])


def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    module = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return torch.compile(module)(x.view(1, 8, 8)).sum()  # type: ignore[no-any-return]


def train(program: Callable[..., Any]) -> None:
    x, w = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    for _ in range(3):
        result = program(x, w)
        result = result if isinstance(result, torch.Tensor) else result[1]
        result.sum().backward()


@pytest.mark.parametrize("program", [attention, sorting, empty, joined, layer])
def test_programs_of_torchs_own_tracker_have_no_mismatch(
    program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[object] = []
    inner = lifecycle_checks.TrackedRun.check

    def check(*arguments: Any) -> Any:
        checks.append(arguments[1])
        return inner(*arguments)

    monkeypatch.setattr(lifecycle_checks.TrackedRun, "check", check)
    with debug_functions_replaced(lifecycle_checks.STAND_INS):
        train(program if program is layer else torch.compile(program))
    assert len(checks) > 6


def test_compiled_programs_on_threads() -> None:
    failed: list[BaseException] = []
    with debug_functions_replaced(lifecycle_checks.STAND_INS):
        compiled = torch.compile(attention)
        train(compiled)

        def work() -> None:
            try:
                train(compiled)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


def test_torchs_own_tracker_raises_on_such_a_program() -> None:
    with pytest.raises(Exception, match="Expected"):
        train(torch.compile(sorting))


def test_beside_the_printer_of_values(tmp_path: Path) -> None:
    """torch's own code lacks an import there and dies of a NameError, with a tracker or without."""

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w + 1).relu() @ w

    x = torch.randn(8, 8)
    with inductor_config.patch({"aot_inductor.debug_intermediate_value_printer": "3"}):
        with pytest.raises(NameError, match="tracked_empty_strided"):
            torch.compile(program)(x, x)
        torch._dynamo.reset()
        with stepscope.trace(tmp_path) as recorder:
            compiled = torch.compile(program)
            assert torch.equal(compiled(x, x), program(x, x))
        assert torch.equal(compiled(x, x), program(x, x)), "what was compiled goes on without a recorder"
    assert recorder.path is not None
    records = read(recorder.path)
    assert not records[MemoryStepMismatch.KIND]
    assert not records["failure"]


def test_a_recorder_stands_in_and_its_own_comparison_agrees(tmp_path: Path) -> None:
    with stepscope.trace(tmp_path, lifetimes="assert") as recorder:
        train(torch.compile(attention))
    assert recorder.path is not None
    records = read(recorder.path)
    assert not records[MemoryStepMismatch.KIND]
    assert not records[LifetimeMismatch.KIND]
    assert not records["failure"]
    assert debug_utils.check_memory_step is not check_memory_step
