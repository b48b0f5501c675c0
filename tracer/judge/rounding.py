"""Finds out from the source of a kernel where it may round a number to bfloat16 or float16.

Inductor's loops read such numbers, compute in float32, and round what they store. The source says so: in a kernel of
Triton that casts nothing to these dtypes itself, and in one of C++ that uses what it has converted to them in stores
only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from stepscope.tracer.wrapper.parsed import assigned_calls

Rounding = Literal["anywhere", "between", "stored"]
"""Where a kernel may round to bfloat16 or float16: ``anywhere``, if it is external or a template, so that sums may be
computed in these dtypes; ``between`` operators, as eager code does; or only what it has ``stored``."""
TRITON_LOOPS = ("triton_poi_", "triton_per_", "triton_red_")
CPP_LOOPS = "cpp_fused"

_LOW = re.compile(r"'(\w+)': '\*(?:bf16|fp16)'")
_ROUNDS = re.compile(r"\.to\(tl\.(?:bfloat16|float16|float8)|tl\.atomic_|\bbitcast\b")
_POINTER = re.compile(r"\b\w+_ptr\d+\b")

_CPP_LOW = r"at::(?:BFloat16|Half|Float8_\w+)"
_CPP_OTHERS = re.compile(rf"atomic_add|local_buffer|micro_gemm|bit_cast|{_CPP_LOW} tmp_acc")
_CPP_CONVERTED = re.compile(rf"(?:convert|static_cast)<{_CPP_LOW}")
_CPP_LOADED = re.compile(rf"(?:Vectorized<{_CPP_LOW}>|loadu<{_CPP_LOW})")
_CPP_POINTER = re.compile(rf"{_CPP_LOW}\* (\w+)")
_CPP_ALIAS = re.compile(r"auto (\w+_ptr\d+) = (\w+_ptr\d+);")
_CPP_TAIL = "C10_UNLIKELY("
_CPP_NEW = re.compile(r"\s*(?:auto (\w+) = (.*)|alignas\(.*\) \S+ (\w+)\[)")
"""The definition of a number or an array."""
_CPP_STORE = re.compile(r"\s*(?:(\w+)\.store\((\w+)|\w+_ptr\d+\[.*\] = \w+;|transpose_mxn<.*)")
_CPP_NAME = re.compile(r"\b\w*tmp\w*\b")


def roundings_of(tree: ast.Module) -> Mapping[str, Rounding]:
    """Return what is known of the kernels that a wrapper defines, by their names."""
    return dict(_roundings(tree))


def _roundings(tree: ast.Module) -> Iterator[tuple[str, Rounding]]:
    for name, call in assigned_calls(tree):
        rounds_only_stores = _cpp_rounds_only_stores if name.startswith(CPP_LOOPS) else _triton_rounds_only_stores
        if name.startswith((CPP_LOOPS, *TRITON_LOOPS)):
            source = call.args[1].value if len(call.args) > 1 and isinstance(call.args[1], ast.Constant) else None
            yield name, "stored" if isinstance(source, str) and rounds_only_stores(source) else "between"


def _triton_rounds_only_stores(source: str) -> bool:
    """Return whether a Triton kernel turns all numbers into float32 when it reads them, and none back until a store."""
    low, lines = set(_LOW.findall(source)), source.splitlines()
    loads = [line for line in lines if any(f"tl.load({name}" in line for name in low)]
    return (
        _ROUNDS.search(source) is None
        and all(".to(tl.float32)" in line for line in loads)
        and not _replaces(lines, low, "tl.store(")
    )


def _cpp_rounds_only_stores(source: str) -> bool:
    """Return whether a C++ kernel turns all numbers into float32 when it reads them, and none back until a store."""
    for alias, name in _CPP_ALIAS.findall(source):
        source = re.sub(rf"\b{alias}\b", name, source)
    pointers, lines = set(_CPP_POINTER.findall(source)), source.splitlines()
    return (
        _CPP_OTHERS.search(source) is None
        and not _uses_rounded(lines, pointers)
        and not _replaces(_without_tails(lines), pointers, ".store(", "] = ", "transpose_mxn<")
    )


def _without_tails(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines of C++ without the blocks for the rest of a loop, which repeat what the others do."""
    depth = 0
    is_tail = False
    for line in lines:
        is_tail = is_tail or _CPP_TAIL in line
        if not is_tail:
            yield line
            continue
        depth += line.count("{") - line.count("}")
        is_tail = depth > 0 or _CPP_TAIL in line


def _uses_rounded(lines: list[str], pointers: set[str]) -> bool:
    """Return whether lines of C++ compute with numbers of low precision.

    Names are defined before they are used in each block, so that lines can be read one after the other.
    """
    rounded: set[str] = set()
    loaded: set[str] = set()
    for line in lines:
        new, store = _CPP_NEW.match(line), _CPP_STORE.match(line)
        value = line if new is None else new[2] or ""
        names = set(_CPP_NAME.findall(value))
        if store is None and (names & rounded or (names & loaded and "convert<float" not in line)):
            return True
        if store is not None and store[1] in rounded and store[2] not in pointers:
            rounded.add(store[2])  # what is stored to an array may be read again
        if new is not None:
            name = new[1] or new[3]
            rounded.discard(name)
            loaded.discard(name)
            if _CPP_CONVERTED.search(value):
                rounded.add(name)
            elif _CPP_LOADED.search(value) or value.partition("[")[0] in pointers:
                loaded.add(name)
    return False


def _replaces(lines: Iterable[str], pointers: set[str], *stores: str) -> bool:
    """Return whether a kernel stores numbers, reads them again, and stores others in their place.

    Then what has been rounded is no result of the kernel.
    """
    stored, read_again = set[str](), set[str]()
    for line in lines:
        names = pointers.intersection(_POINTER.findall(line))
        if any(one in line for one in stores):
            if names & read_again:
                return True
            stored |= names
        else:
            read_again |= names & stored
    return False
