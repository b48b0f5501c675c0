"""Expressions of generated code, computed without running them."""

from __future__ import annotations

import pytest

from stepscope.viewer.kernel_source.arithmetic import number_of, value_text

KNOWN = {"s77": 16, "s86": 7, "u0": 0, "zuf0": 0.5, "b": True}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("s77 * s77", "256"),
        ("(s77 + 15) // s86", "4"),
        ("max(1, s77 - 20)", "1"),
        ("-s77 % s86", "5"),
        ("2 ** s86", "128"),
        ("math.ceil(s77 / s86)", "3"),
        ("s77 if b else s86", "16"),
        ("s77 > s86", "True"),
        ("s77 == 16 and not u0", "True"),
        ("zuf0 * 2", "1.0"),
        ("0.5 * torch.sym_float(s86)", "3.5"),
        ("s86 * 2 ** -1", "3.5"),
        ("s77 and s86", "7"),
        ("u0 or s86", "7"),
        ("u0 and s77 // u0", "0"),
        ("u0 or s99", None),
        ("round(s86 * 0.3)", "2"),
        ("round(s86 / 3, 2)", "2.33"),
        ("math.tanh(u0) + math.cos(u0)", "1.0"),
        ("math.inf", "inf"),
        ("[-math.inf, math.nan]", "[-inf, nan]"),
        ("round(s77, -10 ** 18)", None),
        ("math.pi", None),
        ("float('inf')", "inf"),
        ("-inf", "-inf"),
        ("[1, s77, [s86]]", "[1, 16, [7]]"),
        ("(s77,)", "(16,)"),
        ("torch.float32", "torch.float32"),
        ("device(type='cuda', index=0)", "device(type='cuda', index=0)"),
        ("None", "None"),
        ("'none'", "'none'"),
        ("s77 // u0", None),
        ("s99", None),
        ("[s77, s99]", None),
        ("9 ** 9 ** 9", None),
        ("1 << 10 ** 9", None),
        ("__import__('os').system('true')", None),
        ("s77.__class__", None),
        ("(lambda: s77)()", None),
        ("s77 +", None),
        ("-" * 5000 + "1", None),
        ("(" * 5000, None),
    ],
)
def test_value(expression: str, value: str | None) -> None:
    assert value_text(expression, KNOWN.get) == value


@pytest.mark.parametrize(
    ("text", "number"), [("7", 7), ("0.5", 0.5), ("True", True), ("torch.int8", None), (None, None)]
)
def test_number_of_a_text(text: str | None, number: float | None) -> None:
    assert number_of(text) == number
    assert type(number_of(text)) is type(number)
