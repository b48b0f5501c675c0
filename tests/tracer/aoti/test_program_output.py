"""What a command printed itself passes as it is; the whole lines and blocks of the debug printer do not."""

from __future__ import annotations

import pytest

from stepscope.tracer.aoti.program_output import ProgramOutput
from tests.tracer.aoti.test_printer_output import block, numbers, text

PRINTED = text("values")


def passed(data: bytes, size: int = 1 << 16) -> bytes:
    output = ProgramOutput()
    pieces = [output.feed(data[at : at + size]) for at in range(0, len(data), size)]
    return b"".join(pieces) + output.release()


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 16])
@pytest.mark.parametrize("name", ["values", "launches", "saved"])
def test_only_the_programs_own_lines_pass(name: str, size: int) -> None:
    data = text(name)
    assert passed(data, size) == b""
    assert (
        passed(b"loss 1\n" + data + b"\n\x00\xff[  x\nloss" + data + b"end", size) == b"loss 1\n\n\x00\xff[  x\nlossend"
    )


@pytest.mark.parametrize("size", [1, 50, 1 << 16])
def test_numbers_that_kernels_were_given_do_not_pass(size: int) -> None:
    given = numbers({"s77": 300, "8192L": 8192})
    data = b"loss\n" + block() + given + block(moment="after_launch") + given + b"end"
    assert passed(data, size) == b"loss\nend"


def test_wide_tensors_with_a_scale_do_not_pass() -> None:
    zeros = b"  0.0000" * 10 + b"\n"
    elements = (
        b"Columns 1 to 101e-13 *\n"
        + zeros
        + b"\nColumns 11 to 161e-13 *\n"
        + zeros[:48]
        + b"\n[ CPUFloatType{1,16} ]\n"
    )
    first, rest = block(numel=16).split(b"\n", 1)
    assert passed(b"loss\n" + first + b"\n" + elements + rest + b"end", 7) == b"loss\nend"


@pytest.mark.parametrize(
    "own",
    [
        b"name? ", b"[  before the launch  ]:\n", b"[  before_launch - k - x  ]: 5\n", b"\r 50% [",
        bytes(range(256)) * 99, block()[:-40], block().replace(b"Dtype", b"loss 1\nDtype"),
        b"[  before_launch - k - x  ]:\n 1  2\n[ CPUFloatType{3} ]\n" + block(numel=3).split(b"\n", 1)[1],
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 1 << 16])
def test_what_is_not_certainly_the_printers_passes(own: bytes, size: int) -> None:
    assert passed(own, size) == own


def test_what_cannot_be_the_printers_does_not_wait() -> None:
    output = ProgramOutput()
    given = [b"name? ", b"more ["]
    seen = [(output.feed(data), output.is_urgent) for data in given]
    assert seen == [(b"name? ", False), (b"more ", True)]
    assert output.release() == b"["
    assert (output.feed(block()[:60]), output.is_urgent) == (b"", False)
