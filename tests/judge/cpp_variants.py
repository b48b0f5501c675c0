"""Compiles many variants of C++ kernels in one go, as functions that take tensors and numbers."""

from __future__ import annotations

import ast
import ctypes
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_FUNCTION = re.compile(r'extern "C"\s+(?:__attribute__\S+\s+)?void\s+kernel\(')
_NUMBERS: dict[str, Any] = {"int64_t": ctypes.c_int64, "double": ctypes.c_double, "float": ctypes.c_float}


class Kernel(NamedTuple):
    types: list[str]
    source: str


def kernels_of(wrapper: str) -> dict[str, Kernel]:
    """Return the C++ kernels that a wrapper defines."""
    found = {}
    for node in ast.parse(wrapper).body:
        call = node.value if isinstance(node, ast.Assign) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "async_compile.cpp_pybinding":
            types, source = (ast.literal_eval(argument) for argument in call.args[:2])
            found[ast.unparse(node.targets[0])] = Kernel(types, source)  # type: ignore[attr-defined]
    return found


def compiled(variants: Mapping[int, Kernel], folder: Path) -> dict[int, Callable[..., None]]:
    """Return the variants that compile; one translation unit holds them all."""
    left = dict(variants)
    for _ in range(8):
        if not left:
            return {}
        errors = _compile(left, folder)
        if not errors:
            library = ctypes.CDLL(str(next(folder.glob("variants*.so"))))
            return {n: _callable(library, n, kernel.types) for n, kernel in left.items()}
        bad = {int(n) for n in re.findall(r"variant_(\d+):\d+", errors)}
        if not bad & set(left):
            raise RuntimeError(errors[-2000:])
        left = {n: kernel for n, kernel in left.items() if n not in bad}
    return {}


def _compile(variants: Mapping[int, Kernel], folder: Path) -> str:
    from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    parts = ["#include <algorithm>", "#include <torch/csrc/inductor/cpp_prefix.h>"]
    for number, kernel in variants.items():
        text = _FUNCTION.sub(f'extern "C" void kernel_{number}(', kernel.source)
        text = "\n".join(line for line in text.split("\n") if not line.startswith("#include"))
        parts.append(f'#line 1 "variant_{number}"\n{text}')
    source = folder / "variants.cpp"
    source.write_text("\n".join(parts), "utf-8")
    options = CppTorchOptions(vec_isa=pick_vec_isa(), warning_all=False, extra_flags=["-O1"])
    builder = CppBuilder(name="variants", sources=str(source), BuildOption=options, output_dir=str(folder))
    done = subprocess.run(
        shlex.split(builder.get_command_line()), capture_output=True, text=True, check=False, cwd=folder
    )
    return done.stderr or "no message" if done.returncode else ""


def _callable(library: ctypes.CDLL, number: int, types: list[str]) -> Callable[..., None]:
    function = library[f"kernel_{number}"]
    function.restype = None
    names = [one.removeprefix("const ").strip() for one in types]
    function.argtypes = [_NUMBERS.get(name, ctypes.c_void_p) for name in names]

    def call(*arguments: Any) -> None:
        function(*(one.data_ptr() if hasattr(one, "data_ptr") else one for one in arguments))

    return call
