"""Reads schemas of torch operators: which parameters they write, and which results are views of a parameter."""

from __future__ import annotations

import re
from typing import Any

from stepscope.tracer.wrapper.kernel_signatures import OperatorSchema

MAY_BE_TENSOR = re.compile(r"Tensor|__torch__|\bAny\b|^t$")


def operator_schema(name: str) -> OperatorSchema | None:
    """Return the schema of an operator, or None if this torch does not have it."""
    import torch

    found: Any = torch.ops
    parts = name.removeprefix("torch.ops.").replace("inductor_ops.", "inductor.").split(".")
    try:
        for part in parts:
            found = getattr(found, part.removeprefix("_quantized") or part)
        schema = getattr(found, "_schema", None)
        if schema is None:
            schema = getattr(found, found.overloads()[0])._schema
    except (AttributeError, IndexError, RuntimeError):
        return None
    parameters = tuple((a.name, a.alias_info is not None and a.alias_info.is_write) for a in schema.arguments)
    types = (str(getattr(argument, "real_type", argument.type)) for argument in schema.arguments)
    scalars = tuple(None if MAY_BE_TENSOR.search(name) else name for name in types)
    return OperatorSchema(parameters, _view_of(schema), scalars)


def _view_of(schema: Any) -> str | None:
    """Return the parameter that the results are views of, as in ``Tensor(a) self`` and ``-> Tensor(a)``, or None."""
    shared = [result.alias_info.before_set for result in schema.returns if result.alias_info is not None]
    if not shared or len(shared) != len(schema.returns):
        return None
    for argument in schema.arguments:
        if argument.alias_info is not None and argument.alias_info.before_set == shared[0]:
            return str(argument.name)
    return None
