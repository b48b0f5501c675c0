"""Finds out from the source of a kernel where it may round a number to bfloat16 or float16.

Inductor's loops read such numbers, compute in float32, and round what they store. Triton's language says so: a kernel
that casts nothing to these dtypes itself rounds nowhere else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from stepscope.tracer.wrapper.parsed import assigned_calls

Rounding = Literal["anywhere", "between", "stored"]
"""Where a kernel may round to bfloat16 or float16: ``anywhere``, if it is external or a template, so that sums may be
computed in these dtypes; ``between`` operators, as eager code does; or only what it has ``stored``."""
TRITON_LOOPS = ("triton_poi_", "triton_per_", "triton_red_")
CPP_LOOPS = "cpp_fused"
_LOW = re.compile(r"'(\w+)': '\*(?:bf16|fp16)'")
_ROUNDS = re.compile(r"\.to\(tl\.(?:bfloat16|float16|float8)|tl\.atomic_|\bbitcast\b")


def roundings_of(tree: ast.Module) -> Mapping[str, Rounding]:
    """Return what is known of the kernels that a wrapper defines, by their names."""
    return dict(_roundings(tree))


def _roundings(tree: ast.Module) -> Iterator[tuple[str, Rounding]]:
    for name, call in assigned_calls(tree):
        if name.startswith(CPP_LOOPS):
            yield name, "between"
        elif name.startswith(TRITON_LOOPS):
            source = call.args[1].value if len(call.args) > 1 and isinstance(call.args[1], ast.Constant) else None
            yield name, "stored" if isinstance(source, str) and _rounds_only_stores(source) else "between"


def _rounds_only_stores(source: str) -> bool:
    """Return whether a Triton kernel turns all numbers into float32 when it reads them, and none back until a store."""
    low = set(_LOW.findall(source))
    loads = [line for line in source.splitlines() if any(f"tl.load({name}" in line for name in low)]
    return _ROUNDS.search(source) is None and all(".to(tl.float32)" in line for line in loads)
