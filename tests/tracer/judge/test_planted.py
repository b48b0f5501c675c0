"""Faults that torch itself can plant into its kernels, in recorded programs: the judge names each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch._inductor import config

import stepscope
from tests.judge.faults import wrappers
from tests.judge.reading import Judged, judged_in

pytestmark = pytest.mark.filterwarnings("ignore")
FAULTS = {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy", "cpp.inject_log1p_bug_TESTING_ONLY": "accuracy"}


def judged(model: Callable[..., Any], *inputs: Tensor, folder: Path, only: tuple[str, ...] = ()) -> Judged:
    """Return the verdicts on one call of a model, compiled with both faults; `only` selects kernels."""
    torch._dynamo.reset()
    with torch.no_grad(), stepscope.trace(folder, judge="first", judge_kernels=only), config.patch(FAULTS):
        compiled: Any = torch.compile(model)
        compiled(*inputs)
    return judged_in(folder)


def kernels(found: Judged) -> set[str]:
    """Return the kernels that are called wrong."""
    assert not found.failures
    assert not found.inputs
    return {found.kernel(one) for one in found.wrong()}


def two_faults(x: Tensor, weight: Tensor) -> Tensor:
    return torch.log1p((torch.relu(x) @ weight).abs().sum(0)) @ weight


def test_two_faults_are_both_named_and_nothing_between_them(tmp_path: Path) -> None:
    found = judged(two_faults, torch.randn(16, 16), torch.randn(16, 16), folder=tmp_path)
    named = kernels(found)
    assert len(named) == 2
    assert any("relu" in name for name in named)
    assert any("log1p" in name for name in named)
    assert found.judged == found.launches == 4


@pytest.mark.parametrize("is_faulty", [False, True])
def test_statistics_of_nearly_equal_numbers_are_no_error(is_faulty: bool, tmp_path: Path) -> None:
    """The loop over an image whose channels lie side by side loses more of their means than eager code does."""

    def model(x: Tensor) -> Tensor:
        normed = torch.nn.functional.batch_norm(x, None, None, training=True)
        return torch.relu(normed) if is_faulty else normed

    x = 0.166 + 0.001 * torch.randn(3, 12, 8, 8, generator=torch.Generator().manual_seed(0))
    found = judged(model, x.contiguous(memory_format=torch.channels_last), folder=tmp_path)
    assert {"relu" in name for name in kernels(found)} == ({True} if is_faulty else set())
    assert found.judged == found.launches
    assert is_faulty or "in_order" in {how for _, how in found.verdicts()}


@pytest.mark.parametrize("is_faulty", [False, True])
def test_what_a_mask_replaces_in_a_temporary_is_in_its_memory(is_faulty: bool, tmp_path: Path) -> None:
    """Inductor replaces the value of the temporary, so that no buffer holds the one before."""

    def model(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        bounded = torch.relu(x) + 1 if is_faulty else x.sin()
        bounded[mask] = 7.0
        flat = bounded.view(-1)
        flat[:3] = flat[5:8].clone()
        return bounded, flat.sum()

    found = judged(model, torch.randn(8, 16), torch.rand(8, 16) > 0.5, folder=tmp_path)
    assert {"relu" in name for name in kernels(found)} == ({True} if is_faulty else set())
    assert found.judged == found.launches


@pytest.mark.parametrize("is_faulty", [False, True])
def test_memory_that_the_program_leaves_open_is_no_error(is_faulty: bool, tmp_path: Path) -> None:
    """A circular padding begins with such memory, which is written part by part."""

    def model(x: Tensor) -> Tensor:
        x = torch.relu(x) if is_faulty else x.sin()
        return torch.nn.functional.pad(x, (1, 2, 2, 1), mode="circular")

    garbage = [torch.full((2, 3, 17, 15), 1e33) for _ in range(8)]
    del garbage  # the memory of which is given to the program
    found = judged(model, torch.randn(2, 3, 14, 12), folder=tmp_path)
    assert {"relu" in name for name in kernels(found)} == ({True} if is_faulty else set())
    assert found.judged == found.launches


def rounded(x: Tensor) -> tuple[Tensor, ...]:
    """The quotient is near a half in so many elements that each way to compute it rounds some of them otherwise."""
    normed = torch.nn.functional.layer_norm(x, x.shape[-1:])
    scale = normed.abs().amax(1, keepdim=True) / 127
    return ((normed / scale).round() * scale,)


def largest(x: Tensor) -> tuple[Tensor, ...]:
    """The backward computes the sine again, and looks for the largest one among the results."""
    return ((torch.sin(x) * 3).amax(1),)


def small(x: Tensor) -> tuple[Tensor, ...]:
    return torch.nn.functional.elu(x * 1e-4), torch.erf(x * 1e-4), torch.expm1(x * 1e-4).bfloat16()


@pytest.mark.slow
@pytest.mark.parametrize("is_faulty", [False, True])
@pytest.mark.parametrize("function", [rounded, largest, small])
def test_what_rounding_decides_and_formulas_lose_is_no_error(
    function: Callable[[Tensor], tuple[Tensor, ...]], is_faulty: bool, tmp_path: Path
) -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        return *function(x), torch.relu(x) if is_faulty else x

    torch._dynamo.reset()
    x = torch.randn(400, 1000, generator=torch.Generator().manual_seed(0), requires_grad=True)
    with stepscope.trace(tmp_path, judge="first"), config.patch(FAULTS):
        compiled: Any = torch.compile(model)
        sum(one.float().square().sum() for one in compiled(x)).backward()
    found = judged_in(tmp_path)
    assert {"relu" in name for name in kernels(found)} == ({True} if is_faulty else set())
    assert all("rounding decides each of its elements" in why for why in found.reasons())


def test_what_cannot_be_judged_leaves_the_other_results_of_the_kernel(tmp_path: Path) -> None:
    x = torch.randn(8, 16)
    x[0, 0] = torch.inf
    found = judged(lambda x: (torch.relu(x), x.var(1)), x, folder=tmp_path)
    (wrong,) = found.wrong()
    assert any("aten.relu" in line for line in wrong["fragment"])


def bounded(x: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(x * weight) + x


def test_a_factor_of_one_spacing_of_bfloat16_is_named(tmp_path: Path) -> None:
    """The loop rounds only what it stores, so that an error of one rounding more is one."""
    torch._dynamo.reset()
    before = set(wrappers())
    x, weight = torch.randn(64, 48).bfloat16(), torch.randn(48).bfloat16()
    with torch.no_grad(), stepscope.trace(tmp_path, judge="every:1"):
        compiled: Any = torch.compile(bounded)
        compiled(x, weight)
        stepscope.step()
        (module,) = [module for path, module in wrappers().items() if path not in before]
        (kernel,) = [name for name in vars(module) if name.startswith("cpp_fused")]
        original = getattr(module, kernel)

        def scaled(*tensors: Tensor) -> None:
            original(*tensors)
            tensors[-1].mul_(1 + 2**-7)

        setattr(module, kernel, scaled)
        compiled(x, weight)
    found = judged_in(tmp_path)
    assert not found.of_step(0).wrong()
    assert kernels(found.of_step(1)) == {kernel}


@pytest.mark.slow
@pytest.mark.parametrize("is_faulty", [False, True])
def test_a_dropout_that_rounding_decides_is_no_error(is_faulty: bool, tmp_path: Path) -> None:
    """Among so many random numbers in float16, some lie between 0.1 and what 0.1 is rounded to."""

    def model(x: Tensor) -> Tensor:
        dropped = torch.nn.functional.dropout(x, 0.1)
        return torch.relu(dropped) if is_faulty else dropped

    torch.manual_seed(0)
    found = judged(model, torch.randn(256, 1024).half(), folder=tmp_path)
    assert {"relu" in name for name in kernels(found)} == ({True} if is_faulty else set())
    assert {how for _, how in found.verdicts()} & {"moved", "float64"}


@pytest.mark.slow
def test_a_concatenation_in_the_memory_of_an_older_one_is_read(tmp_path: Path) -> None:
    def model(x: Tensor, weight: Tensor) -> Tensor:
        for _ in range(2):
            x = torch.cat([x.sin(), x.cos()], 1) @ weight
        return x

    found = judged(model, torch.randn(16, 8), torch.randn(16, 8), folder=tmp_path)
    assert kernels(found) == set()
    assert not found.reasons()


def test_only_the_kernels_that_were_asked_for_are_judged(tmp_path: Path) -> None:
    found = judged(two_faults, torch.randn(16, 16), torch.randn(16, 16), folder=tmp_path, only=("*log1p*",))
    assert {"log1p" in name for name in kernels(found)} == {True}
    assert (found.judged, found.launches) == (1, 4)
    assert found.reasons() == {"the kernel was not asked for": 3}


def test_a_fault_beside_random_numbers_is_named_and_they_are_not(tmp_path: Path) -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        dropped = torch.nn.functional.dropout(torch.relu(x), 0.5)
        return dropped, torch.rand_like(x), torch.randint_like(x, 2, 9).sum(1), torch.randn_like(x) @ x

    torch.manual_seed(11)
    found = judged(model, torch.randn(16, 16), folder=tmp_path)
    assert found.reasons() == {"prims.inductor_seeds.default draws random numbers from the program's generator": 1}
    assert found.judged == found.launches - 1
    (wrong,) = found.wrong()
    assert any("aten.relu" in line for line in wrong["fragment"])
    verdicts = {node: how for call in found.calls for node, how in zip(call["node"], call["how"], strict=True)}
    assert verdicts["inductor_random_default_1"] == "equal"
    assert verdicts["sum_1"] == "equal"


@pytest.mark.slow
def test_a_fault_inside_of_cond_is_named(tmp_path: Path) -> None:
    def model(x: Tensor) -> Tensor:
        found: Tensor = torch.cond(x.sum() > -1e9, lambda one: torch.relu(one) * 2, lambda one: one.cos(), (x,))
        return found

    found = judged(model, torch.randn(8, 16), folder=tmp_path)
    assert {"relu" in name for name in kernels(found)} == {True}


@pytest.mark.slow
def test_a_fault_inside_of_while_loop_is_named(tmp_path: Path) -> None:
    def model(count: Tensor, x: Tensor) -> Any:
        def body(n: Tensor, one: Tensor) -> tuple[Tensor, Tensor]:
            return n + 1, torch.relu(one) + 0.25

        return while_loop(lambda n, one: n < 3, body, (count, x))  # type: ignore[no-untyped-call]

    found = judged(model, torch.zeros((), dtype=torch.int64), torch.randn(8, 16), folder=tmp_path)
    assert {"relu" in name for name in kernels(found)} == {True}


@pytest.mark.slow
def test_a_fault_inside_of_scan_is_named(tmp_path: Path) -> None:
    def model(start: Tensor, x: Tensor) -> Any:
        def combine(carry: Tensor, one: Tensor) -> tuple[Tensor, Tensor]:
            following = torch.relu(carry) + one
            return following, following * 2

        return scan(combine, start, x)

    with torch._dynamo.config.patch(capture_scalar_outputs=True):  # the loop of a scan asks for its counter
        found = judged(model, torch.randn(16), torch.randn(4, 16), folder=tmp_path)
    assert {"relu" in name for name in kernels(found)} == {True}
