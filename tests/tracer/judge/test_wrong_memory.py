"""Wrappers that use memory wrongly: the judge tells what happened to which buffer, and accuses no kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stepscope
from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.open import open_trace
from tests.judge.reading import judged_in
from tests.judge.wrapper_changes import changed_wrappers

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@torch.library.custom_op("stepscope_tests::overwriting", mutates_args=())
def overwriting(x: Tensor, by: float) -> Tensor:
    """Return the sine, and change the argument without declaring it if `by` is not zero."""
    result = x.sin()
    x.add_(by)
    return result


@overwriting.register_fake
def _(x: Tensor, by: float) -> Tensor:
    return torch.empty_like(x)


def model(x: Tensor, weight: Tensor) -> Tensor:
    """Compute two values in one kernel, a product of each, and what both give in another kernel."""
    return (x.sin() @ weight) * (x.cos() @ weight)


def told(function: Callable[..., Any], folder: Path, change: Callable[[str], str] = lambda text: text) -> list[str]:
    """Return the titles of the findings of the judge on one call, whose wrapper is changed."""
    torch._dynamo.reset()
    with torch.no_grad(), stepscope.trace(folder, judge="first"), changed_wrappers(change):
        compiled: Any = torch.compile(function)
        compiled(torch.rand(12, 12), torch.rand(12, 12))
    assert not judged_in(folder).failures
    (log,) = folder.glob("*.log")
    kinds = ("clobbered_input", "wrong_kernel")
    return [one.title for one in all_findings(open_trace(log)) if one.kind in kinds]


def replaced(pattern: str, by: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        found, count = re.subn(pattern, by, text, count=1, flags=re.M)
        assert count == 1
        return found

    return change


def dropped(kernel: str) -> Callable[[str], str]:
    return replaced(rf"^ +{kernel}\w*\(.*\)\n", "")


CHANGES = {
    "healthy": (lambda text: text, []),
    "an unwritten input": (
        dropped("cpp_fused_cos"),
        ["extern_kernels.mm reads buf0, to which nothing was written", "extern_kernels.mm reads buf2, to which"],
    ),
    "an unwritten result": (dropped("cpp_fused_mul"), ["returns buf4, to which nothing was written"]),
    "memory reused too early": (
        replaced(r"buf1 = empty_strided_cpu\(.*\)", "buf1 = buf2"),
        ["extern_kernels.mm reads buf2, which is not what cpp_fused"],
    ),
    "one memory for an input and a result": (
        replaced(r"buf3 = buf0;.*", "buf3 = buf2"),
        ["extern_kernels.mm was given the memory of buf2 for something else"],
    ),
    "one memory for two results": (
        replaced(r"buf2 = empty_strided_cpu\(.*\)", "buf2 = buf0"),
        ["was given the memory of buf0 for something else"],
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_wrong_memory_is_told_and_no_kernel_accused(what: str, tmp_path: Path) -> None:
    change, wanted = CHANGES[what]
    titles = told(model, tmp_path, change)
    assert len(titles) == len(wanted), titles
    assert all(any(part in title for title in titles) for part in wanted), titles


@pytest.mark.parametrize("by", [0.0, 1.0])
def test_an_operator_that_changes_its_input_unsaid_is_seen_at_the_next_reader(by: float, tmp_path: Path) -> None:
    def calls_it(x: Tensor, weight: Tensor) -> Any:
        product = x @ weight
        return overwriting(product, by) + (product @ weight)

    titles = told(calls_it, tmp_path)
    assert len(titles) == (by > 0.0), titles
    assert all("which is not what extern_kernels.mm wrote" in title for title in titles)
