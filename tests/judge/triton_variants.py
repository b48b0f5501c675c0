"""Compiles variants of Triton kernels, as the objects that a wrapper calls `run` of."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from tests.judge.cpp_variants import Kernel


def triton_kernels_of(wrapper: str) -> dict[str, Kernel]:
    """Return the Triton kernels that a wrapper defines; `types` holds the name that it gives to the compiler."""
    found = {}
    for node in ast.parse(wrapper).body:
        call = node.value if isinstance(node, ast.Assign) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "async_compile.triton":
            name, source = (ast.literal_eval(argument) for argument in call.args[:2])
            found[name] = Kernel([name], source)
    return found


def compiled_triton(variants: Mapping[int, Kernel]) -> dict[int, Any]:
    """Return the variants that compile."""
    from torch._inductor.async_compile import AsyncCompile

    found = {}
    for number, kernel in variants.items():
        try:
            made: Any = AsyncCompile().triton(kernel.types[0], kernel.source, device_str="cuda")
            found[number] = made.result() if hasattr(made, "result") else made
        except Exception as error:  # a variant need not be valid
            print(f"  {kernel.types[0]} does not compile: {str(error)[:100]}", flush=True)
    return found
