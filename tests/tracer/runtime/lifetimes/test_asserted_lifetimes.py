"""Calls that go wrong: each of them counts, and where it is asked for the program learns of it at the step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from stepscope.tracer.runtime.lifetimes.mismatches import LifetimeError
from stepscope.tracer.schema.memory import LifetimeMismatch, Lifetimes
from tests.tracer.runtime.lifetimes.test_lifetimes import afresh, kept, no_reuse, record, stash, stashing  # noqa: F401 - afresh is a fixture

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # torch warns of itself while it compiles
KEPT = "kept of tests.tracer.runtime.lifetimes.test_lifetimes"


@torch.library.custom_op("stepscope_tests::seen", mutates_args=())
def seen(x: torch.Tensor) -> torch.Tensor:
    """Says that it has run."""
    ran.append(1)
    return x * 2


seen.register_fake(lambda x: torch.empty_like(x))
ran: list[int] = []


def stashing_first(a: torch.Tensor) -> torch.Tensor:
    y = stash(a.sin())
    result: torch.Tensor = seen(seen(y) @ a).cos() @ a
    return result


def test_asked_to_it_raises_at_the_step_and_is_recorded_first(tmp_path: Path) -> None:
    ran.clear()
    compiled, texts = torch.compile(stashing_first), []

    def run() -> None:
        for _ in range(3):
            with pytest.raises(LifetimeError) as caught:
                compiled(torch.ones(8, 8))
            texts.append(str(caught.value))

    with no_reuse():
        records = record(tmp_path, run, lifetimes="assert")
    assert not ran, "the launch after the step had not begun"
    for number, text in enumerate(texts, 1):
        assert re.search(
            r"buf0 \(256 bytes\) should have been freed after launch 1 \(torch\.ops\.stepscope_tests\.stash", text
        )
        assert re.search(r"line \d+ of \w+\.py, from test_asserted_lifetimes\.py:\d+\)", text)
        assert f"held by list of {number} in {KEPT}" in text
    found = records[LifetimeMismatch.KIND]
    assert {(*one["kind"], *one["buffer"], *one["expected"]) for one in found} == {("missing_death", "buf0", 2)}
    layouts_of = [number for batch in records[Lifetimes.KIND] for number in batch["layout"]]
    assert sum(layouts_of.count(one["layout"]) for one in found) == 3
    assert any(f"list of 1 in {KEPT}" in words for words in found[0]["holders"][0])


@torch.library.custom_op("stepscope_tests::stash_last", mutates_args=())
def stash_last(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keeps its argument. Generated code frees the argument before the return, since there are several outputs."""
    kept.append(x)
    return x * 2, x * 3


stash_last.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))


def test_asked_to_it_raises_at_the_end_for_what_the_last_launch_leaves(tmp_path: Path) -> None:
    def last(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result: tuple[torch.Tensor, torch.Tensor] = stash_last(a.sin())
        return result

    with no_reuse(), pytest.raises(LifetimeError) as caught:
        record(tmp_path, lambda: torch.compile(last)(torch.ones(8, 8)), lifetimes="assert")
    assert "buf0 (256 bytes) should have been freed after launch 1 (" in str(caught.value)
    assert f"is still alive at the end of the call; it is held by list of 1 in {KEPT}" in str(caught.value)


@pytest.mark.parametrize("checks", [None, "log"])
def test_each_call_that_goes_wrong_counts(tmp_path: Path, checks: str | None) -> None:
    """Also those in which a check of torch's has looked for holders, and those of other sizes."""
    with no_reuse(), torch._inductor.config.patch({"test_configs.track_memory_lifecycle": checks}):
        compiled = torch.compile(stashing, dynamic=True)
        records = record(tmp_path, lambda: [compiled(torch.ones(size, size)) for size in (8, 9, 8, 10)])
    found = records[LifetimeMismatch.KIND]
    assert {(*one["kind"], *one["buffer"]) for one in found} == {("missing_death", "buf0")}
    layouts_of = [number for batch in records[Lifetimes.KIND] for number in batch["layout"]]
    assert sum(layouts_of.count(one["layout"]) for one in found) == 4
    assert sum(bool(one["holders"][0]) for one in found) == 1, "they are looked for once"
