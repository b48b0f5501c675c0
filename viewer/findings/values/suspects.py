"""The operators of a fused kernel that may have made a NaN of finite elements, if nothing tells which of them did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log

from stepscope.viewer.findings.values.operations import BACKWARD, operators, place, plain
from stepscope.viewer.graphs.rows import SiteRow, SourceLine
from stepscope.viewer.values.queries.flow import Flow, FlowArgument
from stepscope.viewer.values.queries.values import LIMITS
from stepscope.viewer.values.rows import ValueRow

Suspect = tuple[str, SourceLine]
"""An operator and the line of the model that calls it."""
MOST_EXPONENT = log(LIMITS["float32"])
"""The exponential of more is infinite, also in kernels of smaller dtypes, which compute it in float32."""
_LEAST_OF_MASKS = 1e4
_MOST_NAMED = 3
_NOT_AVERAGED = re.compile(r"""\breduction ?= ?["'](?:none|sum)""")
_SUSPECTS = {
    "div": ("/", "div(", "normalize("),
    "log": ("log(", "log2(", "log10(", "log1p("),
    "exp": ("exp(", "exp2(", "expm1("),
    "sqrt": ("sqrt(", "norm("),
    "pow": ("**", "pow("),
    "reciprocal": ("reciprocal(", "/"),
    "acos": ("acos(",),
    "asin": ("asin(",),
}
"""Operators that can make NaN of finite elements, and how models call them. Those of softmax, sigmoid and of losses are
computed such that they do not."""
_STEEP = re.compile(
    r"(?<!\bmath)(?<!\bnp)(?<!\bnumpy)\.(sqrt|acosh?|arccosh?|asin|arcsin|atan2|arctan2|hypot)\("
    r"|(\*\* ?0?\.5\b|\.pow\((?:[\w.\[\]]+, ?)?0?\.5\))"
)
"""Functions with finite results where their derivatives are infinite or 0 / 0, as models call them."""
_UNBOUNDED = re.compile(
    r"(?<!\bmath)(?<!\bnp)(?<!\bnumpy)\.(log(?:2|10|1p)?|reciprocal|div)\("
    r"|(?<!/)(/)(?!/)(?! ?(?:[\d.]+\b|math\.|np\.|numpy\.|sqrt\())"
)
"""Functions whose results are infinite or NaN as well where their derivatives are."""
_OF_GRADIENT = {
    "pow": ("pow",), "sqrt": ("div", "pow"), "hypot": ("div",),
    **dict.fromkeys(("atan2", "arctan2"), ("reciprocal", "div")),
    **dict.fromkeys(("acos", "arccos", "asin", "arcsin", "acosh", "arccosh"), ("rsqrt", "sqrt", "pow")),
}  # fmt: skip
"""Operators, of which the gradient of a steep function has one."""
_SLOPES = {
    **dict.fromkeys(("sqrt", "pow"), "infinite at 0"),
    **dict.fromkeys(("acos", "arccos", "asin", "arcsin"), "infinite at -1 and 1"),
    **dict.fromkeys(("acosh", "arccosh"), "infinite at 1"),
    **dict.fromkeys(("atan2", "arctan2", "hypot"), "0 / 0 where both arguments are 0"),
}
_EPS = r"(?<![a-z])eps(?![a-z])|\d(?:\.\d*)?e-\d"
_KEPT_AWAY = re.compile(_EPS)
_BOUNDED = re.compile(_EPS + r"|clamp|max\(|maximum\(")
_SQUARE = re.compile(r"\*\* ?[2468]\b(?!\.)|\bpow\([2468]\)")
_MASKING = {"where", "masked_fill", "full", "full_like"}


def suspects(site: SiteRow) -> list[Suspect]:
    """Return the operators of a fused kernel of a forward graph that may have made NaN of finite elements, with the
    lines of the model that call them, each line once; nothing if a softmax may have made it of a mask."""
    names = list(dict.fromkeys(plain(name.rpartition(".")[2]) for name in operators(site)))
    if site.kind not in ("cpp", "triton") or (_MASKING.intersection(names) and any("softmax" in one for one in names)):
        return []
    found: dict[SourceLine, str] = {}
    for line in dict.fromkeys(stack[-1] for stack in site.stacks if stack):
        code = _SQUARE.sub("", line.code.partition("#")[0])
        for risk, signs in _SUSPECTS.items():
            name = next((one for one in names if risk in one and "softmax" not in one), None)
            if name is not None and any(sign in code for sign in signs):
                found.setdefault(line, name)
    return [(found[line], line) for line in sorted(found, key=lambda line: (line.file, line.line))]


def backward_suspects(site: SiteRow) -> list[Suspect]:
    """Return the functions whose gradients a fused kernel of a backward graph computes, and which may be NaN although
    what the kernel read is finite, with their lines. Those come first whose results are finite in the forward pass."""
    if site.kind not in ("cpp", "triton"):
        return []
    lines = list(dict.fromkeys(stack[-1] for stack in site.stacks if stack))
    lines.sort(key=lambda line: (line.file, line.line))
    found: dict[SourceLine, str] = {}
    for calls, safe, operator in ((_STEEP, _KEPT_AWAY, "pow"), (_UNBOUNDED, _BOUNDED, "div")):
        for line in lines:
            code = line.code.partition("#")[0]
            call = calls.search(code)
            name = None if call is None else operator if call[1] in (None, "/") else call[1]
            if name is not None and not safe.search(code) and _may_compute_gradient(site, name):
                found.setdefault(line, name)
    return [(name if at else f"{BACKWARD}{name}", line) for at, (line, name) in enumerate(found.items())]


def _may_compute_gradient(site: SiteRow, name: str) -> bool:
    """Return whether the gradient of a function may be among the operators of a kernel, as far as they are known. The
    power of a number of Python, for instance, has none."""
    names, needed = operators(site), _OF_GRADIENT.get(name, ())
    return not names or not needed or any(one in operator for one in needed for operator in names)


def slope(name: str) -> str | None:
    """Return a sentence about where the derivative of a function is not finite, or None if it is not known."""
    function = name.removeprefix(BACKWARD)
    where = _SLOPES.get(function) if name != function else None
    product = ", and an infinity times a gradient of 0 is NaN" if where and "infinite" in where else ""
    return f"The derivative of {function} is {where}{product}." if where else None


def averages_loss(site: SiteRow) -> bool:
    """Return whether a loss itself may average its elements: no line of the launch asks it for all of them or for their
    sum."""
    return not any(stack and _NOT_AVERAGED.search(stack[-1].code) for stack in site.stacks)


def in_order(found: Sequence[Suspect], flow: Flow) -> list[Suspect]:
    """Return the suspects by likelihood: exponentials come first if a tensor is large enough, otherwise last."""
    is_large = exceeding(flow) is not None
    return sorted(found, key=lambda one: (one[0] == "exp") != is_large)


def exceeding(flow: Flow) -> tuple[FlowArgument, float] | None:
    """Return the floating-point tensor with the largest magnitude that a launch read or wrote, and this magnitude, if
    an exponential of it or of its negative is infinite. Negative elements beyond those of masks do not count."""
    found = [
        (_reach(row), argument)
        for argument in flow.arguments
        for row in (*argument.before, *argument.after)
        if row.dtype in LIMITS and row.dtype != "float64"
    ]
    largest, argument = max(found, key=lambda pair: pair[0], default=(0.0, None))
    return (argument, largest) if argument is not None and largest > MOST_EXPONENT else None


def _reach(row: ValueRow) -> float:
    lowest = -row.min if row.min is not None else 0.0
    return max(row.max or 0.0, lowest if lowest < _LEAST_OF_MASKS else 0.0)


def listed(found: Sequence[Suspect]) -> str:
    """Return ``exp (a.py:3), log (a.py:4) or div (a.py:7)``."""
    named = [f"{name}{place(line)}" for name, line in found]
    if len(named) > _MOST_NAMED:
        named = [*named[: _MOST_NAMED - 1], f"one of {len(named) - _MOST_NAMED + 1} other operators"]
    return " or ".join(filter(None, (", ".join(named[:-1]), *named[-1:])))
