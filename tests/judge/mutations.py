"""Faults in the source of C++ and Triton kernels and in wrappers: each changes one place, as a bug of codegen would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

SCALE = "1.0078125"
"""1 + 2^-7, the spacing of bfloat16 at 1."""


class Fault(NamedTuple):
    kind: str
    source: str


class Rule(NamedTuple):
    kind: str
    pattern: str
    replacement: str


_OPERAND = r"(tmp\d+)"
CPP = (
    Rule("plus to minus", rf"= {_OPERAND} \+ {_OPERAND};", r"= \1 - \2;"),
    Rule("minus to plus", rf"= {_OPERAND} - {_OPERAND};", r"= \1 + \2;"),
    Rule("times to plus", rf"= {_OPERAND} \* {_OPERAND};", r"= \1 + \2;"),
    Rule("index off by one", r"(loadu\(in_ptr\d+ \+ )static_cast<int64_t>\(([^()]*)\)",
         r"\1std::max<int64_t>(0, static_cast<int64_t>(\2) - 1)"),
    Rule("index halved", r"(loadu\(in_ptr\d+ \+ )static_cast<int64_t>\(([^()]*)\)",
         r"\1(static_cast<int64_t>(\2) / 2)"),
    Rule("loop bound", r"x0<static_cast<int64_t>\((\d+)L\)", r"x0<static_cast<int64_t>(\1L - \1L / 4)"),
    Rule("mask dropped", rf"::blendv\({_OPERAND}, {_OPERAND}, [^;]*\);", r"::blendv(\1, \1, decltype(\1)(0));"),
    Rule("mask dropped", rf"= [^;=?]* \? {_OPERAND} : {_OPERAND};", r"= \2;"),
    Rule("max to min", r"at::vec::maximum\(", "at::vec::minimum("),
    Rule("scaled", rf"{_OPERAND}\.store\((out_ptr\d+|in_out_ptr\d+) ",
         rf"(\1 * decltype(\1)({SCALE}f)).store(\2 "),
    Rule("scaled", rf"convert<(at::BFloat16|bfloat16)([^;]*)\({_OPERAND}\);",
         rf"convert<\1\2(\3 * decltype(\3)({SCALE}f));"),
    Rule("scaled", rf"((?:in_)?out_ptr\d+\[[^;=]*\] = )(?:static_cast<float>\()?{_OPERAND}\)?;",
         rf"\1\2 * {SCALE}f;"),
)  # fmt: skip
TRITON = (
    Rule("plus to minus", rf"= {_OPERAND} \+ {_OPERAND}$", r"= \1 - \2"),
    Rule("minus to plus", rf"= {_OPERAND} - {_OPERAND}$", r"= \1 + \2"),
    Rule("times to plus", rf"= {_OPERAND} \* {_OPERAND}$", r"= \1 + \2"),
    Rule("index off by one", r"tl\.load\((in_ptr\d+) \+ \(([^,]*)\), (.*)$",
         r"tl.load(\1 + tl.maximum((\2) - 1, 0), \3"),
    Rule("index halved", r"tl\.load\((in_ptr\d+) \+ \(([^,]*)\), (.*)$", r"tl.load(\1 + ((\2) // 2), \3"),
    Rule("loop bound", r"tl\.range\(0, (r\d+_numel|rnumel), ", r"tl.range(0, \1 // 2, "),
    Rule("mask dropped", rf"tl\.where\(([^,]*), {_OPERAND}, {_OPERAND}\)", r"tl.where(\1, \3, \3)"),
    Rule("scaled", rf"tl\.store\(([^,]* \+ \([^,]*\)), {_OPERAND}, ", rf"tl.store(\1, \2 * {SCALE}, "),
)  # fmt: skip


def faults_of(source: str, rules: tuple[Rule, ...], most: int = 1) -> Iterator[Fault]:
    """Yield sources with one fault each, at most `most` for each rule."""
    for rule in rules:
        for found in list(re.finditer(rule.pattern, source, re.M))[-most:]:
            changed = source[: found.start()] + found.expand(rule.replacement) + source[found.end() :]
            if changed != source:
                yield Fault(rule.kind, changed)


class WrapperFault(NamedTuple):
    kind: str
    source: str
    guilty: tuple[str, ...]
    """Names of which the judge has to name at least one, and no other: a kernel, or buffers."""


_ALLOCATION = re.compile(r"^( +)(buf\d+) = (empty_strided_cp?u(?:da)?\(.*\))$", re.M)
_STRIDES = re.compile(r"(extern_kernels\.\w+\(.*reinterpret_tensor\(\w+, \()(\d+), (\d+)(\), \()(\d+), (\d+)(\), 0\))")


def wrapper_faults(source: str) -> Iterator[WrapperFault]:
    """Yield wrappers with a dropped launch, with operands of wrong strides, or with memory that is reused too early."""
    body = source[source.index("def call") :]
    for found in list(re.finditer(r"^ +(cpp_fused_\w+)\((.*)\)$", body, re.M))[:2]:
        outputs = [name for name in re.findall(r"buf\d+", found[2]) if f"{name} = empty_strided" in body]
        if any(len(re.findall(rf"\b{name}\b", body[found.end() :])) > 1 for name in outputs):
            changed = source.replace(found[0] + "\n", "\n", 1)
            yield WrapperFault("dropped launch", changed, (*re.findall(r"buf\d+", found[2]), found[1]))
    for found in list(_STRIDES.finditer(body))[:2]:
        rows, columns, row, column = (int(found[n]) for n in (2, 3, 5, 6))
        if {row, column} == {1, rows} or {row, column} == {1, columns}:
            swapped = (columns, 1) if row == 1 else (1, rows)
            if swapped != (row, column) and rows > 1 and columns > 1:
                text = f"{found[1]}{rows}, {columns}{found[4]}{swapped[0]}, {swapped[1]}{found[7]}"
                kernel = re.search(r"extern_kernels\.\w+", found[1])
                assert kernel is not None
                yield WrapperFault("wrong stride", source.replace(found[0], text, 1), (kernel[0],))
    yield from list(_early_reuses(source, body))[:2]


def _early_reuses(source: str, body: str) -> Iterator[WrapperFault]:
    allocations = list(_ALLOCATION.finditer(body))
    for number, later in enumerate(allocations):
        for earlier in allocations[:number]:
            before, after = body[earlier.end() : later.start()], body[later.end() :]
            if earlier[3] != later[3] or f"del {earlier[2]}" in before or f"= {earlier[2]}" in before:
                continue
            first = after.find(later[2])
            end = after.find("\n", first)
            rest = after[end : after.find(f"del {earlier[2]}")]
            is_written = re.search(rf"\b{earlier[2]}\b", before.partition("\n")[2])
            if is_written and re.search(rf"\b{earlier[2]}\b", rest) and earlier[2] not in after[first:end]:
                text = later[0].replace(later[3], earlier[2])
                yield WrapperFault("reused too early", source.replace(later[0], text, 1), (earlier[2],))
                break
