"""Finds the functions that the nodes of a record name, and says what is known of them."""

from __future__ import annotations

import base64
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from stepscope.tracer.judge.record import Constant, Json, members_of

FUNCTIONS: Mapping[str, Any] = {"operator": operator, "math": math}
"""Modules of whose functions a record may name one; a record is a file, which must not choose what runs."""


EXACT = frozenset(
    (
        *("abs", "alias", "amax", "amin", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cat", "clone"),
        *("constant_pad_nd", "copy", "eq", "expand", "flip", "full", "full_like", "gather", "ge", "gt", "index"),
        *("index_select", "isinf", "isnan", "iota", "le", "logical_and", "logical_not", "logical_or", "lt", "maximum"),
        *("minimum", "ne", "neg", "permute", "relu", "reshape", "rev", "select", "sign", "slice", "split"),
        *("split_with_sizes", "squeeze", "t", "transpose", "unbind", "unsqueeze", "view", "where"),
    )
)
"""Operators that move, choose or compare numbers and round none."""
DECIDES = frozenset(
    (
        *("_low_memory_max_pool_with_offsets", "adaptive_max_pool2d", "adaptive_max_pool3d", "argmax", "argmin"),
        *("bucketize", "ceil", "cummax", "cummin", "div.Scalar_mode", "div.Tensor_mode", "eq"),
        *("fake_quantize_per_tensor_affine_cachemask", "floor", "floor_divide", "fmod", "frac"),
        *("fractional_max_pool2d", "fractional_max_pool3d", "ge", "gt", "heaviside", "kthvalue", "le", "lt", "max.dim"),
        *("max_pool2d_with_indices", "max_pool3d_with_indices", "median", "min.dim", "mode", "ne", "nonzero"),
        *("remainder", "round", "searchsorted", "sgn", "sign", "signbit", "sort", "topk", "trunc"),
    )
)
"""Operators whose results may jump when their operands change by little."""
DRAWS = "draws random numbers from the program's generator"
"""End of the reason for values that no recomputation could confirm or refute."""


class CannotJudge(Exception):
    """Raised if a value cannot be recomputed; its text is the reason."""


FUNCTIONS_OF_TENSORS = {
    "op:aten.add.Tensor": "add", "op:aten.mul.Tensor": "mul", "op:aten.sub.Tensor": "sub", "op:aten.div.Tensor": "div",
    "op:aten.mm.default": "mm", "op:aten.addmm.default": "addmm", "op:aten.bmm.default": "bmm",
    "op:aten.permute.default": "permute", "op:aten.transpose.int": "transpose", "op:aten.t.default": "t",
    "op:aten.unsqueeze.default": "unsqueeze", "op:aten.sum.dim_IntList": "sum", "op:aten.rsqrt.default": "rsqrt",
    "op:aten.erf.default": "erf", "op:aten.exp.default": "exp", "op:aten.pow.Tensor_Scalar": "pow",
}  # fmt: skip
"""Functions of `torch` that are called in half of the time that their operators take on the host."""


@cache
def function_of(target: str) -> Callable[..., Any]:
    """Return the function that a node calls. Raises CannotJudge if there is none in this torch."""
    import torch

    kind, _, name = target.partition(":")
    if kind == "op":
        namespace, _, rest = name.partition(".")
        packet, _, overload = rest.rpartition(".")
        try:
            found: Callable[..., Any] = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
            return found
        except (AttributeError, RuntimeError):
            raise CannotJudge(f"this torch has no operator {name}") from None
    module, _, function = name.rpartition(".")
    if kind == "function" and module in FUNCTIONS and hasattr(FUNCTIONS[module], function):
        return getattr(FUNCTIONS[module], function)  # type: ignore[no-any-return]
    if kind == "function" and module == "torch" and function.startswith("sym_"):
        return getattr(torch, function)  # type: ignore[no-any-return]
    if kind == "higher_order":
        raise CannotJudge(f"the higher-order operator {name} has no reference")
    raise CannotJudge(f"{name} is not a function that the judge calls")


@cache
def quick_function_of(target: str) -> Callable[..., Any]:
    """Return what computes the same as `function_of` in less time on the host. Raises CannotJudge."""
    import torch

    if target == "op:aten.view.default":
        return torch.Tensor.view
    name = FUNCTIONS_OF_TENSORS.get(target)
    return function_of(target) if name is None else getattr(torch, name)


def is_exact(target: str) -> bool:
    """Return whether a node's results follow from its inputs without rounding."""
    namespace, _, rest = target.removeprefix("op:").partition(".")
    return target == "function:operator.getitem" or (namespace in ("aten", "prims") and rest.partition(".")[0] in EXACT)


def decides(target: str, dtype: str | None) -> bool:
    """Return whether a node's results, which have a dtype, may jump when its operands change by little."""
    namespace, _, rest = target.removeprefix("op:").partition(".")
    if rest.startswith(("convert_element_type", "_to_copy")):
        return not spacing_of(dtype)
    return namespace in ("aten", "prims") and not DECIDES.isdisjoint((rest, rest.partition(".")[0]))


def leaves_open(target: str) -> bool:
    """Return whether a node is memory whose contents the program leaves open."""
    return target.startswith(("op:aten.empty", "op:aten.new_empty", "op:prims.empty"))


def chooses(target: str) -> bool:
    """Return whether an operator compares numbers or chooses among them, so that it does so in their own dtype."""
    return is_exact(target) or target.startswith("op:aten.clamp")


@cache
def schema_of(target: str) -> Any:
    """Return the schema of an operator, or None for other functions and for unknown operators."""
    if not target.startswith("op:"):
        return None
    try:
        return getattr(function_of(target), "_schema", None)
    except CannotJudge:
        return None


@cache
def written_arguments(target: str) -> tuple[int, ...]:
    """Return the positions of the arguments that an operator writes to."""
    schema = schema_of(target)
    if schema is None or not schema.is_mutable:
        return ()
    arguments = enumerate(schema.arguments)
    return tuple(n for n, one in arguments if one.alias_info is not None and one.alias_info.is_write)


def calls_with_what_shares(target: str) -> bool:
    """Return whether an operator is called with arguments that share memory, instead of being lowered to a kernel."""
    return target.startswith("op:") and not target.startswith(("op:aten.", "op:prims."))


@cache
def viewed_argument(target: str) -> int | None:
    """Return the position of the argument whose memory the only result of an operator shares, or None."""
    schema = schema_of(target)
    if schema is None or len(schema.returns) != 1 or schema.returns[0].alias_info is None:
        return None
    shared = schema.returns[0].alias_info.before_set
    arguments = enumerate(schema.arguments)
    return next((n for n, one in arguments if one.alias_info is not None and one.alias_info.before_set == shared), None)


def draws_random_numbers(target: str, args: Json, kwargs: Json) -> bool:
    """Return whether a call draws from a generator; attention without dropout does not."""
    if not _is_seeded(target):
        return False
    names = [one.name for one in schema_of(target).arguments]
    if "dropout_p" not in names:
        return True
    position, given = names.index("dropout_p"), members_of(args) or []
    dropout = given[position] if position < len(given) else (kwargs or {}).get("dict", {}).get("dropout_p")
    return dropout not in (None, 0, {"float": (0.0).hex()})


@cache
def _is_seeded(target: str) -> bool:
    import torch

    return target.startswith("op:") and torch.Tag.nondeterministic_seeded in getattr(function_of(target), "tags", ())


def doubled(dtype: Any) -> Any:
    """Return float64 for a dtype of floating point, complex128 for a complex one, else the dtype."""
    import torch

    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype in (torch.float32, torch.float16, torch.bfloat16) else dtype


def spacing_of(dtype: str | None) -> float:
    """Return the spacing of a dtype at 1, or 0 if it has no fractions."""
    import torch

    if dtype is None:
        return 0.0
    found = getattr(torch, dtype)
    return float(torch.finfo(found).eps) if found.is_floating_point or found.is_complex else 0.0


def tensor_of(constant: Constant) -> Any:
    """Return a small constant as a tensor on the CPU."""
    import torch

    raw = bytearray(base64.b64decode(constant.data))
    dtype = getattr(torch, constant.dtype)
    if not raw:
        return torch.empty(constant.size, dtype=dtype)
    return torch.frombuffer(raw, dtype=torch.uint8).view(dtype).reshape(constant.size)


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors in an argument or a result."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)
