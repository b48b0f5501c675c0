"""The reader of the debug printer's text, against texts that PyTorch 2.13 printed (texts/) and against damage."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from stepscope.tracer.aoti.printer_output import (
    LONGEST_LINE,
    Printed,
    PrintedFile,
    PrintedLaunch,
    PrintedScalar,
    PrintedTensor,
    PrinterReader,
)

TEXTS = Path(__file__).parent / "texts"


def text(name: str) -> bytes:
    return (TEXTS / f"{name}.txt").read_bytes()


def read(data: bytes, piece: int = 1 << 16) -> list[Printed]:
    reader = PrinterReader()
    found = [one for at in range(0, len(data), piece) for one in reader.feed(data[at : at + piece])]
    return found + list(reader.end())


def tensors(data: bytes, piece: int = 1 << 16) -> list[PrintedTensor]:
    found = read(data, piece)
    assert all(isinstance(one, PrintedTensor) for one in found)
    return [one for one in found if isinstance(one, PrintedTensor)]


def block(argument: str = "buf0", mean: str = "0.5", numel: int = 100, moment: str = "before_launch") -> bytes:
    return (
        f"[  {moment} - cpp_fused_0 - {argument}  ]:\nNumber of elements: {numel}\nDtype: float32\n"
        f"Mean value: {mean}\nMin value: -1\nMax value: 2\nDevice: cpu\nSize: [{numel}]\nStride: [1]\n"
        "Layout: Strided\nIs contiguous: 1\nRequires grad: 0\n\n"
    ).encode()


def test_every_block_of_a_run_is_read() -> None:
    data = text("values")
    found = tensors(data)
    assert len(found) == data.count(b"]:\n") == data.count(b"Requires grad")
    assert all(one.whole for one in found)
    first = found[0]
    assert (first.moment, first.kernel, first.argument) == ("input", None, "arg4_1")
    assert (first.dtype, first.numel, first.mean, first.min, first.max) == (
        "float32", 128, 0.0335955, -2.29748, 2.20497,
    )  # fmt: skip
    assert (first.device, first.size, first.stride, first.layout) == ("cpu", [8, 16], [16, 1], "Strided")
    assert (first.is_contiguous, first.requires_grad, first.bad) == (True, False, None)
    kernels = {one.kernel for one in found}
    assert "at::_ops::sort_stable::call" in kernels
    assert "cpp_fused_relu_0" in kernels


@pytest.mark.parametrize("name", ["values", "launches", "saved", "dtypes"])
@pytest.mark.parametrize("piece", [1, 7, 100])
def test_pieces_of_any_size_tell_the_same(name: str, piece: int) -> None:
    assert repr(read(text(name), piece)) == repr(read(text(name)))


def test_dtypes_and_what_is_printed_of_them() -> None:
    found = {one.argument: one for one in tensors(text("dtypes"))}
    for dtype in ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16",
                  "uint32", "uint64", "bool", "float8_e4m3fn", "float8_e5m2"):  # fmt: skip
        assert (found[dtype].dtype, found[dtype].mean, found[dtype].bad) == (dtype, 1.0, (0, 0, 0)), dtype
    assert (found["complex64"].dtype, found["complex64"].min, found["complex64"].size) == ("complex64", None, [2, 3])
    assert found["nan"].bad == (1, 1, 1)
    assert found["0dnan"].bad == (1, 0, 0)
    assert found["0dnan"].size == []
    assert found["nanbig"].bad is None
    assert math.isnan(found["nanbig"].min or 0)
    assert found["infbig"].max == math.inf
    assert found["infbig"].min == 1
    assert found["ninfbig"].min == -math.inf
    assert (found["empty"].numel, found["empty"].mean, found["empty"].whole) == (0, None, True)
    assert found["wide"].bad == (0, 0, 0)
    assert found["wide"].numel == 60
    assert found["view"].is_contiguous is False or found["view"].stride == [1, 10]
    assert found["rg"].requires_grad is True


def test_launch_lines_and_saved_files() -> None:
    launches = read(text("launches"))
    assert all(isinstance(one, PrintedLaunch) for one in launches)
    assert [one.moment for one in launches] == ["before", "after"] * 7
    saved = [one for one in read(text("saved")) if isinstance(one, PrintedFile)]
    assert len(saved) == text("saved").count(b"Saved tensor")
    assert (saved[1].moment, saved[1].kernel, saved[1].argument, saved[1].device) == (
        "before", "aoti_torch_cpu_addmm_out", "arg4_1", "cpu",
    )  # fmt: skip
    assert "at::_ops::sort_stable::call" in {one.kernel for one in saved}
    mended = b"aoti_torch_save_tensor_handle: Saved tensor to /a b/aoti_torch/after_launch_triton_0_buf12_cuda:1.pt\n"
    (one,) = read(mended)
    assert isinstance(one, PrintedFile)
    assert (one.moment, one.kernel, one.argument, one.device) == ("after", "triton_0", "buf12", "cuda:1")


def test_output_of_the_program_between_the_lines() -> None:
    own = b"step 1 loss nan\n[ not ours ]\n\xff\xfe binary \x00\nNumber of elements: 3\n"
    lines = text("values").splitlines(keepends=True)
    mixed = b"".join(own + line if line.startswith(b"[  ") else line for line in lines)
    assert repr(read(mixed)) == repr(read(text("values")))
    inside = block().replace(b"Mean", b"epoch 3: inf\nMean")
    assert repr(read(inside)) == repr(read(block()))
    assert repr(read(b"progress 50 %" + block())) == repr(read(block()))
    assert repr(read(block().replace(b"\n", b"\r\n"))) == repr(read(block()))


def test_a_torn_end_is_told_as_such() -> None:
    whole = block()
    for cut in range(len(whole) - 2):
        found = read(whole[:cut])
        assert len(found) == (cut >= whole.index(b"]:") + 2)
        if found:
            assert isinstance(found[0], PrintedTensor)
            assert found[0].argument == "buf0"
            torn = found[0].mean is not None and cut <= whole.index(b"Min")
            assert not torn or cut == whole.index(b"Min")
            assert found[0].whole == (cut > whole.index(b"grad: 0\n") + 7)


def test_lines_of_two_threads_are_told_apart_or_left_out() -> None:
    one, other = block("buf0", "0.25").splitlines(True), block("buf9", "0.75").splitlines(True)
    mixed = one[:4] + other[:3] + one[4:] + other[3:]
    found = {tensor.argument: tensor for tensor in tensors(b"".join(mixed))}
    assert found["buf0"].mean == 0.25  # its line came before the other block began
    assert found["buf9"].numel == 100
    assert found["buf9"].whole
    zipped = b"".join(line for pair in zip(one, other, strict=True) for line in pair)
    for tensor in tensors(zipped):
        assert tensor.mean is None or tensor.mean == {"buf0": 0.25, "buf9": 0.75}[tensor.argument]
        assert tensor.mean is None


def test_a_block_that_an_exception_cut_off_costs_no_more_than_the_next() -> None:
    torn = b"".join(block("buf0").splitlines(True)[:3])
    found = tensors(torn + block("buf1", "0.125") + block("buf2", "0.25"))
    assert [(one.argument, one.whole) for one in found if one.argument != "buf1"] == [("buf0", False), ("buf2", True)]
    assert next(one for one in found if one.argument == "buf2").mean == 0.25


@pytest.mark.slow
@pytest.mark.parametrize(
    "hostile",
    [b"[  before_launch - ", b"[  before_launch - k - a  ]:", b"_launch", b"x" * 50, b"[ before_launch: k ]"],
)
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_huge_text_takes_linear_time(hostile: bytes, end: bytes) -> None:
    def seconds(times: int) -> float:
        began = time.process_time()
        read((hostile * 20 + end) * times)
        return time.process_time() - began

    seconds(50)
    assert seconds(4000) < 16 * seconds(1000) + 0.3


def test_a_line_that_is_too_long_is_passed_over() -> None:
    long = b"[ before_launch: " + b"k" * LONGEST_LINE + b" ]\n"
    assert read(long + b"[ before_launch: k ]\n", 1000) == [PrintedLaunch("before", "k")]


def numbers(given: Mapping[str, int], kernel: str = "triton_red_fused_sum_4", moment: str = "before") -> bytes:
    lines = (f"[  {moment}_launch - {kernel} - {name}: {value}  ]\\n" for name, value in given.items())
    return "".join(lines).encode()


def test_numbers_that_a_kernel_was_given() -> None:
    """What stands behind one is on its line: the printer writes a backslash and an ``n`` where the line should end."""
    given = {"s77": 300, "triton_red_fused_sum_4_xnumel": 900, "-1L": -1}
    for piece in (1, 50, 1 << 16):
        found = read(block() + numbers(given) + block(moment="after_launch"), piece)
        assert [one for one in found if isinstance(one, PrintedScalar)] == [
            PrintedScalar("before", "triton_red_fused_sum_4", name, value) for name, value in given.items()
        ]
        assert [one.moment for one in found if isinstance(one, PrintedTensor)] == ["before", "after"]
        assert all(one.whole for one in found if isinstance(one, PrintedTensor))
