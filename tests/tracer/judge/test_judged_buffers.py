"""Buffers that hold a value which no node of the graph was lowered to, and values that no order of sums determines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import config, ir

import stepscope
from stepscope.tracer.judge.choices import with_other_nan
from tests.judge.reading import Judged, judged_in
from tests.programs.operators import add_one_and_double

pytestmark = pytest.mark.filterwarnings("ignore")
F = torch.nn.functional


def judged(model: Callable[..., Any], *inputs: Tensor, folder: Path) -> Judged:
    torch._dynamo.reset()
    with torch.no_grad(), stepscope.trace(folder, judge="first"):
        compiled: Any = torch.compile(model)
        compiled(*inputs)
    found = judged_in(folder)
    assert not found.failures
    assert not found.inputs
    return found


def pointwise(image: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Compute a convolution whose result Inductor copies to the layout of eager code."""
    return F.conv2d(F.silu(F.conv2d(image, first, padding=1)), second)


def pooled(x: Tensor) -> Tensor:
    return F.max_pool2d(F.hardswish(x * 2), 3).sum()


def only_pooled(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3).sum()


def centered(x: Tensor, weight: Tensor) -> Tensor:
    """Compute means whose sums one kernel writes and another one reads."""
    large = x.relu().view(16, 2, 32).amax(1)
    return large @ weight - large.mean(-1, keepdim=True)


def similarities(first: Tensor, second: Tensor, temperature: Tensor) -> Tensor:
    """Scale by a number in float32, which generated code rounds to the dtype of the product and eager code does not."""
    return ((first @ second) * temperature.exp().clamp(max=100)).topk(8, dim=1).values


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_number_that_is_rounded_to_the_dtype_of_the_other_operand(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = (0.2 * torch.randn(32, 16)).to(dtype), (0.2 * torch.randn(16, 32)).to(dtype), torch.tensor(2.0)
    found = judged(similarities, *inputs, folder=tmp_path)
    assert not found.buffers
    assert (found.judged, found.launches) == (3, 3)


def test_what_the_memory_of_an_argument_holds_before_an_operator_changes_it(tmp_path: Path) -> None:
    """The product reads views of the memory after the change, and a kernel has written it before."""

    def model(x: Tensor, weight: Tensor) -> Tensor:
        scaled = x.transpose(1, 2).contiguous() * 0.5
        doubled = add_one_and_double(weight, scaled)
        return torch.matmul(scaled, doubled)

    found = judged(model, torch.randn(2, 4, 8, 3), torch.randn(2, 8, 3, 5), folder=tmp_path)
    assert not found.buffers


def test_what_an_operator_returns_that_changes_an_argument_too(tmp_path: Path) -> None:
    """Its result is an item of what it returns, or since torch 2.15 the buffer of the operator itself."""

    def step(x: Tensor) -> Any:
        sums = torch.zeros(8, 8)
        return add_one_and_double(x, sums) @ sums, sums

    found = judged(step, torch.randn(8, 8), folder=tmp_path)
    assert not found.buffers
    assert found.judged == found.launches == 3


def test_a_copy_of_what_a_convolution_wrote_is_judged(tmp_path: Path) -> None:
    inputs = torch.randn(2, 3, 8, 8), torch.randn(8, 3, 3, 3), torch.randn(4, 8, 1, 1)
    found = judged(pointwise, *inputs, folder=tmp_path)
    assert (found.judged, found.launches) == (5, 5)
    assert not found.buffers
    assert {verdict for verdict, _ in found.verdicts()} == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_wrong", [False, True])
def test_the_sum_of_a_mean_is_judged_where_it_is_written(is_wrong: bool, dtype: torch.dtype, tmp_path: Path) -> None:
    inputs = torch.randn(16, 64).to(dtype), torch.randn(32, 32).to(dtype)
    with config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy" if is_wrong else None}):
        found = judged(centered, *inputs, folder=tmp_path)
    nodes = {node: verdict for call in found.calls for node, verdict in zip(call["node"], call["verdict"], strict=True)}
    assert nodes["mean_sum"] == ("wrong" if is_wrong else "ok")
    assert not found.suspects()
    assert len({one["launch"] for one in found.wrong()}) == is_wrong
    assert found.judged == found.launches


@pytest.mark.slow
def test_a_convolution_and_the_kernel_that_adds_its_bias_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lower a convolution as on other devices than the CPU, where Inductor adds the bias in a kernel of its own."""
    elsewhere = SimpleNamespace(**{**vars(ir), "get_device_type": lambda x: "elsewhere"})
    monkeypatch.setattr("torch._inductor.kernel.conv.ir", elsewhere)
    weights = torch.randn(8, 3, 3, 3), torch.randn(8)
    with config.patch(force_disable_caches=True):
        found = judged(lambda x, *w: F.silu(F.conv2d(x, *w)), torch.randn(4, 3, 12, 12), *weights, folder=tmp_path)
    nodes = {node: verdict for call in found.calls for node, verdict in zip(call["node"], call["verdict"], strict=True)}
    assert nodes["convolution_without_bias"] == "ok"
    assert found.judged == found.launches
    assert not found.buffers


def test_a_scatter_that_an_operator_adds_to_zeros_of_a_kernel(tmp_path: Path) -> None:
    """Inductor leaves scattered sums to an operator where several threads would add."""

    def step(x: Tensor, index: Tensor) -> Tensor:
        sums = torch.zeros(8, 64).scatter_add(1, index, x.sin())
        return sums.view(2, 4, 8, 8).cos()

    with config.patch({"force_disable_caches": True, "cpp.threads": 2}):
        found = judged(step, torch.randn(8, 64), torch.randint(0, 64, (8, 64)), folder=tmp_path)
    assert not found.buffers
    assert found.judged == found.launches == 3


def test_an_operator_reads_what_another_one_scattered_into_zeros_of_a_kernel(tmp_path: Path) -> None:
    """Inductor leaves scattered sums to an operator where several threads would add."""

    def step(x: Tensor, index: Tensor) -> Tensor:
        return torch.zeros(8, 8).scatter_reduce(0, index, torch.ones(3, 8), "sum") @ x

    index = torch.tensor([1, 2, 3]).view(3, 1).expand(3, 8)
    with config.patch({"force_disable_caches": True, "cpp.threads": 2}):
        found = judged(step, torch.randn(8, 8), index, folder=tmp_path)
    assert not found.buffers
    assert found.judged == found.launches == 3


def test_buffers_that_follow_from_too_many_operations_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.tracer.judge.fragments.MOST_STEPS", 4)
    found = judged(lambda x: (x.sin().cos(), x.exp().tanh()), torch.randn(64), folder=tmp_path)
    assert found.judged == found.launches == 1
    assert sum(found.verdicts().values()) == 2


def test_squares_beyond_the_range_accuse_no_kernel(tmp_path: Path) -> None:
    x = torch.randn(256, 8, 36) * 1e30  # a few of the 512 means become NaN, in the kernel or in eager code
    found = judged(lambda one: F.group_norm(one, 2).sin(), x, folder=tmp_path)
    assert not found.buffers
    reasons = {why for call in found.calls for why in call["reasons"]}
    assert "the squares that aten.var_mean.correction sums exceed the range of float32" in reasons


@pytest.mark.slow
@pytest.mark.parametrize("model", [pooled, only_pooled])
def test_the_index_of_one_of_several_nan_accuses_no_kernel(model: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    """The kernel keeps the place of the first NaN in the window, and eager code that of the last one."""
    x = torch.randn(2, 3, 8, 8)
    x[0, 0, :4, :4] = torch.nan
    x.requires_grad_()
    torch._dynamo.reset()
    with stepscope.trace(tmp_path, judge="first"):
        compiled: Any = torch.compile(model)
        compiled(x).backward()
    found = judged_in(tmp_path)
    assert found.judged == found.launches > 1
    assert "moved" in {how for _, how in found.verdicts()}
    assert not found.buffers


def test_only_several_nan_leave_the_index_open() -> None:
    x = torch.tensor([torch.nan, 1.0, 2.0])
    largest = torch.tensor([0])
    assert with_other_nan(largest, partial(torch.argmax, keepdim=True), (x.double(),), is_first=True).equal(largest)
    assert with_other_nan(largest, partial(torch.argmax, keepdim=True), (x.double(),), is_first=False).equal(largest)
    x[1] = torch.nan
    assert with_other_nan(largest, partial(torch.argmax, keepdim=True), (x.double(),), is_first=False).item() == 1
