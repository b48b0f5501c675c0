"""What compute-sanitizer prints, read."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.tracer.command.sanitizer import MOST_ERRORS, errors_in, read_report
from stepscope.tracer.schema.process_ends import ToolError

PRINTED = """\
========= COMPUTE-SANITIZER
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid argument" on CUDA API call to cuMemcpy.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: main in crash.py:21
=========
the program prints this in between
========= Invalid __global__ write of size 4 bytes
=========     at add_one+0x4f0 in cosbd4.py:22
=========     by thread (0,0,0) in block (8,0,0)
=========     Access to 0x83dafb248000 is out of bounds
=========     and is 4,397,918,879,233 bytes after the nearest allocation at 0x7fdb02c00000 of size 512 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch [0x1de1] in launcher.so
=========
========= Invalid __global__ write of size 4 bytes
=========     at add_one+0x4f0 in cosbd4.py:22
=========     by thread (1,0,0) in block (8,0,0)
=========     Access to 0x83dafb248004 is out of bounds
=========
========= Invalid __shared__ read of size 8 bytes
=========     at 0x160 in /src/unaligned.cu:6:unaligned(float*)
=========     by thread (3,0,0) in block (0,1,0)
=========     Address 0x7f6510c00001 is misaligned
=========
========= Target application returned an error
========= ERROR SUMMARY: 8198 errors
"""


def test_errors_that_are_alike_are_one() -> None:
    write, read = errors_in(PRINTED)
    assert write == ToolError(
        "Invalid __global__ write of size 4 bytes",
        "add_one",
        "cosbd4.py",
        22,
        "thread (0,0,0) in block (8,0,0)",
        [
            "Access to 0x83dafb248000 is out of bounds",
            "and is 4,397,918,879,233 bytes after the nearest allocation at 0x7fdb02c00000 of size 512 bytes",
        ],
        times=2,
    )
    assert (read.kernel, read.file, read.line) == ("unaligned(float*)", "/src/unaligned.cu", 6)
    assert read.details == ["Address 0x7f6510c00001 is misaligned"]


@pytest.mark.parametrize(
    ("at", "kernel", "place"),
    [
        ("at void fill<(int)4, std::array<char *, (unsigned long)1>>(int, T2)+0x1b0 in /a b/f.cu:7",
         "void fill<(int)4, std::array<char *, (unsigned long)1>>(int, T2)", ("/a b/f.cu", 7)),
        ("at void at::native::fill<4>(int, T2)+0x1b0", "void at::native::fill<4>(int, T2)", (None, None)),
        ("at 0x90 in /a/b.cu:7:add(float *, int)", "add(float *, int)", ("/a/b.cu", 7)),
        ("at 0x90 in void at::add<a::b>(float *, int)", "void at::add<a::b>(float *, int)", (None, None)),
    ],
)  # fmt: skip
def test_kernels_of_cpp_have_signatures(at: str, kernel: str, place: tuple[str | None, int | None]) -> None:
    (error,) = errors_in(f"========= Invalid __global__ write of size 4 bytes\n=========     {at}\n")
    assert (error.kernel, (error.file, error.line)) == (kernel, place)


def test_a_report_that_is_none(tmp_path: Path) -> None:
    assert read_report(tmp_path / "missing.txt") == []
    (tmp_path / "odd.txt").write_bytes(b"\xff\x00=========     at x+0x1\n=========\n=====\n========= \n")
    assert read_report(tmp_path / "odd.txt") == []
    many = "".join(f"========= Invalid read number {n}\n=========     at k{n}+0x1\n" for n in range(100))
    assert len(errors_in(many)) == MOST_ERRORS
