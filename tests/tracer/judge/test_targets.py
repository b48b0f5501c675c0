"""Which calls draw random numbers, so that the judge must not run them."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.tracer.judge.targets import draws_random_numbers, is_exact

NODES = [{"node": name} for name in "qkv"]
FLASH = "op:aten._scaled_dot_product_flash_attention.default"


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "draws"),
    [
        (FLASH, NODES, {}, False),
        (FLASH, [*NODES, {"float": (0.0).hex()}, True], {}, False),
        (FLASH, [*NODES, {"float": (0.1).hex()}, True], {}, True),
        (FLASH, NODES, {"dropout_p": {"float": (0.1).hex()}}, True),
        ("op:aten._scaled_dot_product_efficient_attention.default",
         [*NODES, None, True, {"float": (0.5).hex()}], {}, True),
        ("op:aten.bernoulli.p", [NODES[0], {"float": (0.5).hex()}], {}, True),
        ("op:aten.add.Tensor", NODES[:2], {}, False),
        ("function:operator.getitem", [NODES[0], 0], {}, False),
    ],
)  # fmt: skip
def test_only_dropout_makes_attention_draw(target: str, args: list[Any], kwargs: dict[str, Any], draws: bool) -> None:
    assert draws_random_numbers(target, {"tuple": args}, {"dict": kwargs}) is draws


@pytest.mark.parametrize(
    ("target", "expected"),
    [("op:aten.eq.Tensor", True), ("op:aten.amax.default", True), ("function:operator.getitem", True),
     ("op:aten.mul.Tensor", False), ("op:mine.eq.default", False), ("op:aten.convert.default", False)],
)  # fmt: skip
def test_operators_that_round_nothing_are_known(target: str, expected: bool) -> None:
    assert is_exact(target) is expected
