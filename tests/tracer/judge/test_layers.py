"""The layers of a compile, of which one cannot be run."""

from __future__ import annotations

from stepscope.tracer.judge.comparison import Side
from stepscope.tracer.judge.layers import first_difference


def test_a_layer_that_finds_too_little_memory_is_left_out() -> None:
    def run() -> Side:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 TB")

    found = first_difference(Side([], []), Side([], []), run, lambda one, other: ([], []))
    assert [(step.after, step.verdict) for step in found.steps] == [
        ("aot", "not_compared"), ("joint", "not_compared"), ("post_grad", "not_compared"), ("compiled", "agrees"),
    ]  # fmt: skip
    assert {step.text for step in found.steps[:3]} == {"there was not enough memory to run it"}
