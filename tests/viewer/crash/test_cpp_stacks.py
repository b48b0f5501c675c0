"""Stacks of C++ as PyTorch prints them."""

from __future__ import annotations

import pytest

from stepscope.viewer.crash.queries.cpp_stacks import MOST_FRAMES, MOST_LETTERS, cpp_raise

HEAD = "Exception raised from mm at ../aten/src/ATen/Blas.cpp:12 (most recent call first):\n"


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        (
            "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f1 in /lib/libc10.so)\n"
            "frame #1: at::native::mm(at::Tensor const&) + 0x10 (0x7f2 in /lib/libtorch.so)\n"
            "frame #2: _PyEval_EvalFrameDefault + 0x1 (0x55 in python)\nframe #3: at::more()\n",
            ["at::native::mm(at::Tensor const&) + 0x10 (0x7f2 in /lib/libtorch.so)"],
        ),
        (
            "C++ CapturedTraceback:\n#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<x>>>() from L.cpp:0\n"
            "#5 at::a() from a.cpp:3\n#6 cfunction_call from m.c:542\n",
            ["at::a() from a.cpp:3"],
        ),
        ("no frame at all\n", []),
        ("", []),
    ],
)
def test_forms(text: str, frames: list[str]) -> None:
    found = cpp_raise(f"sizes do not fit\n{HEAD}{text}")
    assert found is not None
    assert (found.text, found.frames) == ("mm (../aten/src/ATen/Blas.cpp:12)", frames)


def test_the_last_of_several_in_what_was_printed() -> None:
    text = f"{HEAD}#1 at::a() from x:0\n\nIn another:\n{HEAD.replace('mm', 'add')}#1 at::b() from x:0\n"
    found = cpp_raise(text)
    assert found is not None
    assert (found.function, found.frames) == ("add", ["at::b() from x:0"])


def test_bounds() -> None:
    lines = "".join(f"#{number} {'x' * 1000}\n" for number in range(100))
    found = cpp_raise(HEAD + lines)
    assert found is not None
    assert (len(found.frames), len(found.frames[0])) == (MOST_FRAMES, MOST_LETTERS + 1)
    assert cpp_raise(None) is None
    assert cpp_raise("RuntimeError: x") is None
