"""Launches of a log that are well formed and would do more than launch are not written as a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.viewer.repro.write import write_reproducer
from stepscope.viewer.store.open import open_trace
from tests.viewer.repro.test_repro_script import ARG, refused, script_of, tensor, wrapper, write_log


@pytest.mark.parametrize(
    ("kernel", "launch"),
    [("torch.ops.aten.from_file.default", "from_file.default('/tmp/x', True, 4)"),
     ("torch.ops.aten.save", "save(arg0_1, 'x')"), ("aten.from_file", "from_file('/tmp/x', True, 4)")],
)  # fmt: skip
def test_operators_on_files_are_not_called(tmp_path: Path, kernel: str, launch: str) -> None:
    code = wrapper("", f"{kernel.partition('aten.')[0]}aten.{launch}")
    log = write_log(tmp_path, code, kernel, "fallback", [ARG], [tensor(0)])
    refused(log, "cannot be written as a script")


@pytest.mark.parametrize("kind", ['float>(args, 0); system("x"); parse_arg<float*', "int\\n#include <x>", "", "a()"])
def test_types_of_arguments_are_no_code(tmp_path: Path, kind: str) -> None:
    """Inductor's loader puts them into C++ that stands outside of the kernel's source."""
    code = wrapper(f"fused = async_compile.cpp_pybinding(['float*', {kind!r}], 'void kernel() {{}}')", "fused(arg0_1)")
    log = write_log(tmp_path, code, "fused", "cpp", [ARG], [tensor(0)])
    refused(log, "an argument of a type that C\\+\\+ does not have")


def test_the_name_of_the_script_ends_no_literal(tmp_path: Path) -> None:
    code = wrapper("fused = async_compile.cpp_pybinding(['float*'], 'void kernel() {}')", "fused(arg0_1)")
    out = tmp_path / 'x""";canary();"""y.py'
    with open_trace(write_log(tmp_path, code, "fused", "cpp", [ARG], [tensor(0)])) as trace:
        write_reproducer(trace, 0, out, embed_bytes=0)
    assert "canary" not in out.read_text("utf-8")


@pytest.mark.parametrize("kind", ["const at::complex<at::Half>*", "int64_t", "const float*", "unsigned char"])
def test_types_of_inductor_are_kept(tmp_path: Path, kind: str) -> None:
    code = wrapper(f"fused = async_compile.cpp_pybinding([{kind!r}], 'void kernel() {{}}')", "fused(arg0_1)")
    log = write_log(tmp_path, code, "fused", "cpp", [ARG], [tensor(0)])
    assert f"cpp_pybinding([{kind!r}], KERNEL_SOURCE)" in script_of(log)
