"""Reads the arguments of calls in generated C++ code that are not tensors, and converts them to Python.

Names and types come from the function's declaration: that of a generated kernel is in the code itself
(``extern "C" void cpp_fused_sin_0(float* in_out_ptr0, const int64_t ks0);``), that of an operator in PyTorch's headers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping

from stepscope.tracer.schema.scalars import Scalar

Declarations = Callable[[str], str | None]
"""Function that returns the parameters of a C++ function as text, or None if the function is unknown."""

_NUMBER = r"(?:u?int\d*(?:_t)?|long|size_t|bool|float|double|c10::\w+|at::\w+|std::complex<\w+>)"
_PARAMETER = re.compile(rf"(?:const\s+)?(?P<type>{_NUMBER}|char)\s*(?P<stars>\**)\s*(?P<name>\w+)")
_KERNEL = re.compile(r'extern "C"[^;{(]*?\b(\w+)\(([^)]*)\)')
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\(")
_CAST = re.compile(rf"static_cast<{_NUMBER}>\(")
_WORDS = (
    (re.compile(r"\bc10::(?=div_floor_integer\()"), ""),
    (re.compile(r"\b(\d+)U?L{1,2}\b"), r"\1"),
    (re.compile(r"(?<=\d)f\b"), ""),
    (re.compile(r"-std::numeric_limits<\w+>::infinity\(\)"), "float('-inf')"),
    (re.compile(r"std::numeric_limits<\w+>::infinity\(\)"), "float('inf')"),
    (re.compile(r"std::numeric_limits<\w+>::quiet_NaN\(\)"), "float('nan')"),
    (re.compile(r"\bnullptr\b"), "None"),
    (re.compile(r"\btrue\b"), "True"),
    (re.compile(r"\bfalse\b"), "False"),
    (re.compile(r"\bcached_torch_(?:dtype|layout)_(\w+)"), r"torch.\1"),
    (re.compile(r"\bcached_torch_device_type_(\w+)"), r"'\1'"),
)


def declared(code: str) -> dict[str, str]:
    """Return the parameters of each generated kernel that `code` declares, as text by name."""
    return {found[1]: found[2] for found in _KERNEL.finditer(code)}


def scalars(
    text: str, kernels: Mapping[str, str], operators: Declarations, variables: Mapping[str, str]
) -> list[Scalar]:
    """Return the scalars of the first call in `text` to a known function; `variables` are the known values."""
    for call in _CALLED.finditer(text):
        is_kernel = call[1] in kernels
        parameters = kernels[call[1]] if is_kernel else operators(call[1])
        if parameters is not None:
            given = list(split(text[call.end() :]))
            found = [_parameter(one, is_kernel) for one in split(f"{parameters})")]
            return [
                Scalar(position, one[0], python_form(text, variables), one[1])
                for position, (one, text) in enumerate(zip(found, given, strict=False))
                if one is not None
            ]
    return []


def _parameter(text: str, is_kernel: bool) -> tuple[str, str] | None:
    """Return the name and type of a parameter; None for a tensor, a result, and the length of the list before it.

    Pointers are tensors in a generated kernel; in an operator they are lists, or numbers that may be missing.
    """
    found = _PARAMETER.fullmatch(text)
    if found is None or (is_kernel and found["stars"]) or re.fullmatch(r"ret\d+|\w+_len_", found["name"]):
        return None
    return found["name"], "str" if found["type"] == "char" else f"{found['type']}{found['stars']}"


def split(text: str) -> Iterator[str]:
    """Yield the arguments in `text` up to the closing parenthesis."""
    depth, start, in_string = 0, 0, False
    for place, sign in enumerate(text):
        if sign == '"' and text[place - 1 : place] != "\\":
            in_string = not in_string
        if in_string:
            continue
        if (sign == "," and not depth) or (sign == ")" and not depth):
            if one := " ".join(text[start:place].split()):
                yield one
            start = place + 1
            if sign == ")":
                return
        depth += (sign in "([{") - (sign in ")]}")


def python_form(text: str, variables: Mapping[str, str]) -> str:
    """Return an argument as Python text, or unchanged if it has no such form."""
    text = variables.get(text.removeprefix("&"), text)
    if text.startswith("{") and text.endswith("}"):
        return f"[{', '.join(python_form(one, variables) for one in split(f'{text[1:-1]})'))}]"
    form = _CAST.sub("(", text)
    for pattern, word in _WORDS:
        form = pattern.sub(word, form)
    try:
        tree = ast.parse(form, mode="eval")
    except (SyntaxError, ValueError):
        return text
    return ast.unparse(tree)
