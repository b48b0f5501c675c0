"""Names what a launch computes: by the operator that matters in it, and by the line of the model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from stepscope.viewer.graphs.rows import SiteRow, SourceLine
from stepscope.viewer.kernel_source.kernel_names import operators_named
from stepscope.viewer.text.formats import basename

Bad = Literal["nan", "inf", "-inf"]
"""Elements that are not finite: NaN, infinities, or infinities that are all negative."""

RISKY = {
    "softmax": ("softmax", "cross_entropy"),
    "div": ("/", "div", "mean", "normalize"),
    "log": ("log", "cross_entropy"),
    "exp": ("exp", "softmax", "sigmoid", "silu"),
    "sqrt": ("sqrt", "norm"),
    "norm": ("norm",),
    "pow": ("**", "pow", "square"),
    "reciprocal": ("reciprocal", "/"),
    "acos": ("acos",),
    "asin": ("asin",),
}
"""Operators that can make NaN or infinities, and their forms in the source of models."""
_BOUNDED = ("softmax", "sqrt", "acos", "asin")
"""Risky operators that make no infinity of finite elements, although their gradients may be infinite."""
_MATMULS = frozenset((
    "mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "mv", "addmv", "int_mm", "scaled_mm", "bias_addmm",
    "mm_plus_mm",
))  # fmt: skip
_PLAIN = {
    "native_layer_norm": "layer_norm", "native_batch_norm": "batch_norm", "native_group_norm": "group_norm",
    "native_dropout": "dropout", "to_copy": "conversion of the dtype", "safe_softmax": "softmax",
    "nll_loss_forward": "nll_loss", "nll_loss2d_forward": "nll_loss",
}  # fmt: skip
"""Names that programs use for operators of ATen."""
_LAYOUT = frozenset((
    "alias", "arange", "as_strided", "cat", "clone", "constant_pad_nd", "convert_element_type", "copy", "detach",
    "empty", "empty_like", "empty_strided", "eq", "expand", "fill", "full", "full_like", "ge", "gt", "iota", "le",
    "lift_fresh_copy", "lt", "narrow", "ne", "new_empty", "new_zeros", "ones", "ones_like", "permute", "reshape",
    "scalar_tensor", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "to_copy", "transpose",
    "unbind", "unsafe_view", "unsqueeze", "view", "where", "zeros", "zeros_like",
))  # fmt: skip
"""Operators that move, compare or choose elements and compute no new ones."""
_GROWING = frozenset((
    "add", "addcmul", "conversion of the dtype", "convolution", "cosh", "cumprod", "cumsum", "exp", "exp2", "expm1",
    "layer_norm", "matmul", "mean", "mul", "norm", "pow", "prod", "scaled_dot_product_attention", "sinh", "square",
    "sub", "sum",
))  # fmt: skip
_NEVER_NAN = _LAYOUT | frozenset((
    "abs", "add", "clamp", "clamp_max", "clamp_min", "conversion of the dtype", "copy_", "index", "index_put", "lerp",
    "maximum", "mean", "minimum", "mul", "neg", "relu", "rsub", "scatter", "select_scatter", "sigmoid",
    "slice_scatter", "sub", "sum", "tanh",
))  # fmt: skip
"""Operators that make no NaN of finite elements, unless these are close to the largest."""
BACKWARD = "the backward of "
_AOTI = re.compile(r"aoti_torch_(?:cpu_|cuda_|xpu_)?_?(\w+?)(?:_out)?")
_VARIABLE = re.compile(r"(\w+)(?: \(\w+\))?$")
_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
_MOST_NAMED = 4
_WORD = re.compile(r"[A-Za-z_]\w*")
_NAME = re.compile(r"\b[A-Za-z_]\w*\b(?!\s*\()")


def operators(site: SiteRow) -> list[str]:
    """Return the operators of a launch, else its FX nodes, else its source nodes."""
    return list(dict.fromkeys(site.aten or site.fx_nodes or site.source_nodes))


def operation(site: SiteRow, *, bad: Bad = "nan", backward: bool = False) -> str:
    """Return the operator of a launch that is most likely to have made `bad` elements, as programs name it.

    In a `backward` graph, it is the operator of the model whose gradient is computed, such as ``the backward of log``,
    if the line of the model shows it. If only the kernel's name tells its operators, these are all of them: ``add and
    relu``.
    """
    if names := _in_name(site):
        return _listed(names)
    bad = _bad_of(site, bad)
    line = source_line(site, bad=bad, backward=backward)
    if site.kind in ("cpp", "triton"):
        name = _of_fused(site, line, bad, backward)
    else:
        name = plain(_bare(site.operator or site.kernel))
    return f"{BACKWARD}{name}" if backward else name


def makes_no_nan(site: SiteRow) -> bool:
    """Return whether the operators of a launch are known and make no NaN of finite elements of usual size."""
    names = {plain(name.rpartition(".")[2]) for name in operators(site)}
    return bool(names) and names <= _NEVER_NAN


def overflows(operation: str) -> bool:
    """Return whether an infinity from finite inputs means that a result of `operation` was too large for its dtype."""
    return operation.removeprefix(BACKWARD) in _GROWING


def line_that_names(site: SiteRow, name: str) -> SourceLine | None:
    """Return the last line of the model among those that a launch computes which names a tensor, such as ``self.out``
    or ``self.out (arg0_1)``; else the line of the launch."""
    variable = _VARIABLE.search(name)
    lines = [stack[-1] for stack in site.stacks if stack]
    naming = [line for line in lines if variable and re.search(rf"\b{variable[1]}\b", line.code)]
    return naming[-1] if naming else source_line(site)


def place(source: SourceLine | None) -> str:
    """Return `` (attention.py:3)``, or "" if the line is unknown."""
    return f" ({basename(source.file)}:{source.line})" if source is not None else ""


def fused(site: SiteRow) -> str:
    """Return the operators that a launch computes, as in ``mul and add fused into one kernel``, or its operator."""
    if site.kind not in ("cpp", "triton"):
        return operation(site)
    names = _in_name(site) or _computed([plain(name.rpartition(".")[2]) for name in operators(site)])
    if len(names) < 2:
        return names[0] if names else "a fused kernel"
    return f"{_listed(names)} fused into one kernel"


def places(site: SiteRow) -> str:
    """Return the lines of the model that a launch computes, as in `` (a.py:3, 4 and b.py:7)``, or ""."""
    lines = list(dict.fromkeys((basename(stack[-1].file), stack[-1].line) for stack in site.stacks if stack))
    rest = [f"{len(lines) - _MOST_NAMED} more"] if len(lines) > _MOST_NAMED else []
    files: dict[str, list[int]] = {}
    for file, line in lines[:_MOST_NAMED]:
        files.setdefault(file, []).append(line)
    found = [f"{file}:{', '.join(map(str, sorted(of_file)))}" for file, of_file in files.items()]
    return f" ({' and '.join([*found, *rest])})" if found else ""


def source_line(site: SiteRow, *, bad: Bad = "nan", backward: bool = False) -> SourceLine | None:
    """Return the line of the model that a launch computes, of several the one most likely to make `bad` elements.

    In a `backward` graph the kernel's name has the operators of the gradient, so the code of the line alone counts.
    The gradients of softmax, exp and squares are products of finite elements.
    """
    bad = _bad_of(site, bad)
    names = [name for name in RISKY if name not in ("softmax", "exp", "pow")] if backward else [site.kernel]

    def weight(line: SourceLine) -> tuple[bool, bool, int]:
        risks = _risks(line.code, names, bad, backward=backward)
        return bad == "-inf" and "log" in risks, risks != ["div"] or "/" in line.code, len(risks)

    return max((stack[-1] for stack in site.stacks if stack), key=weight, default=None)


def short_dtype(dtype: str) -> str:
    return _DTYPES.get(dtype, dtype)


def _bad_of(site: SiteRow, bad: Bad) -> Bad:
    """Return ``-inf`` for the NaN of a logarithm of a softmax: where softmax gives 0, it is the logarithm's -inf that
    becomes NaN. Only a mask lets softmax make NaN of finite elements."""
    names = {plain(name.rpartition(".")[2]) for name in operators(site)}
    is_of_log = bad == "nan" and {"softmax", "log"} <= names and not names & {"where", "masked_fill", "full"}
    return "-inf" if is_of_log else bad


def _bare(kernel: str) -> str:
    """Return ``mm`` for ``extern_kernels.mm``, ``torch.ops.aten.mm.default`` and ``aoti_torch_cpu_mm_out``."""
    printed = _AOTI.fullmatch(kernel)
    return printed[1] if printed is not None else kernel.removeprefix("torch.ops.").partition(".")[2] or kernel


def _in_name(site: SiteRow) -> list[str]:
    """Return the operators in the name of a fused kernel if nothing else tells them."""
    if site.kind not in ("cpp", "triton") or operators(site):
        return []
    return _computed([plain(name) for name in operators_named(site.kernel)])


def _listed(names: Sequence[str]) -> str:
    """Return ``add``, ``add and relu``, or ``add, exp, log and 3 more``."""
    shown = (
        [*names] if len(names) <= _MOST_NAMED else [*names[: _MOST_NAMED - 1], f"{len(names) - _MOST_NAMED + 1} more"]
    )
    return " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)


def _of_fused(site: SiteRow, line: SourceLine | None, bad: Bad, backward: bool) -> str:
    names = list(dict.fromkeys(plain(name.rpartition(".")[2]) for name in operators(site)))
    code = line.code.partition("#")[0] if line is not None else ""
    if backward:
        written = set(_WORD.findall(code))
        forward = [name for name in RISKY if name in written] or (["div"] if "/" in code else [])
        names = forward or names
    risky = _risks(code, names, bad, backward=backward) or [
        name for name in RISKY if any(name in one for one in names) and not _is_bounded(name, names, bad, backward)
    ]
    if risky:
        return next((name for name in names if risky[0] in name), risky[0])
    computed = _computed(names)
    return computed[-1] if computed else "a fused kernel"


def _computed(names: Sequence[str]) -> list[str]:
    """Return the operators that compute new elements, or all if there are none."""
    found = list(dict.fromkeys(names))
    return [name for name in found if name not in _LAYOUT] or found


def plain(name: str) -> str:
    bare = name.partition(".")[0].strip("_")
    if bare in _MATMULS:
        return "matmul"
    if "scaled_dot_product" in bare:
        return "scaled_dot_product_attention"
    return _PLAIN.get(bare, bare)


def _calls(code: str) -> str:
    """Return the line of the model without names that it calls no operator by, such as ``logits``."""
    return _NAME.sub("", code.partition("#")[0])


def _is_bounded(risk: str, names: Sequence[str], bad: Bad, backward: bool) -> bool:
    """Return whether an operator among `names` cannot have made an infinity. The reciprocal of a root can."""
    if bad == "nan" or risk not in _BOUNDED:
        return False
    return risk == "softmax" or not (backward or (risk == "sqrt" and any("rsqrt" in name for name in names)))


def _risks(code: str, names: Sequence[str], bad: Bad, *, backward: bool) -> list[str]:
    """Return the risky operators among `names`, or in the name of a kernel, that the line of the model calls.

    Where there is a logarithm, it is the one that makes -inf, and never the one that makes other infinities.
    """
    code = _calls(code)
    found = [
        risk
        for risk, signs in RISKY.items()
        if not _is_bounded(risk, names, bad, backward)
        and any(risk in name for name in names)
        and any(sign in code for sign in signs)
    ]
    if bad == "-inf" and "log" in found:
        return ["log"]
    return [risk for risk in found if bad != "inf" or risk != "log"] or found
