"""What a traceback ends with, and which symptoms are the same."""

from __future__ import annotations

import pytest

from stepscope.viewer.crash.queries.process_ends import one_symptom, raised

CUDA = "torch.AcceleratorError"


@pytest.mark.parametrize(
    ("errors", "found"),
    [
        ('Traceback (most recent call last):\n  File "a", line 1\n    f()\nValueError: x: y\n', ("ValueError", "x: y")),
        (
            "Traceback (most recent call last):\n  a\nKeyError: 1\n\nDuring handling\n\n"
            "Traceback (most recent call last):\n  b\ntorch.AcceleratorError: CUDA error: z\nmore\n",
            ("torch.AcceleratorError", "CUDA error: z"),
        ),
        ("\x1b[1mTraceback (most recent call last):\x1b[0m\r\n  a\r\n\x1b[31mMyError\x1b[0m\r\n", ("MyError", "")),
        ("Segmentation fault\n", None),
        ("Traceback (most recent call last):\n  cut", None),
    ],
)
def test_what_a_traceback_ends_with(errors: str, found: tuple[str, str] | None) -> None:
    assert raised(errors) == found


def test_equal_symptoms() -> None:
    by_torch = one_symptom(CUDA, "CUDA error: misaligned address\nFor debugging consider")
    assert one_symptom("RuntimeError", "Triton Error [CUDA]: misaligned address") == by_torch
    assert one_symptom("RuntimeError", "CUDA driver error: misaligned address") == by_torch
    assert one_symptom("E", "at 0x7f1 now\nmore") == one_symptom("E", "at 0xabc now") == "E: at 0x… now"
    assert one_symptom("E", "1") != one_symptom("E", "2")
