"""Finds results of autograd functions to which the context of their own function refers, as after ``ctx.y = y``.

The result refers to its function, and the function's context to the result, so that only Python's garbage collector
frees them.
"""

from __future__ import annotations

import dis
from collections import Counter
from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple

from stepscope.tracer.runtime.lifetimes.referrers import own_dict


class OwnCycle(NamedTuple):
    """The attribute of the context that refers to the result."""

    kind: type
    """The class of the context, of which torch makes one for each class of functions."""
    name: str

    @property
    def words(self) -> str:
        function = self._function()
        of = function.__qualname__ if function is not None else self.kind.__qualname__
        return f"a reference cycle through ctx.{self.name} of {of}"

    def place(self) -> tuple[str | None, int | None]:
        """Return the file and the line that assign the attribute."""
        for method in ("forward", "setup_context"):
            code = getattr(getattr(self._function(), method, None), "__code__", None)
            line = self._line(code) if isinstance(code, CodeType) else None
            if isinstance(code, CodeType) and line is not None:
                return code.co_filename, line
        return None, None

    def _line(self, code: CodeType) -> int | None:
        for one in dis.get_instructions(code):
            if one.opname == "STORE_ATTR" and one.argval == self.name:
                return next((line for start, end, line in code.co_lines() if start <= one.offset < end), None)
        return None

    def _function(self) -> type | None:
        import torch

        known = [one for one in vars(self.kind).values() if isinstance(one, type)]
        return next((one for one in known if issubclass(one, torch.autograd.Function)), None)


def own_cycle(tensors: Sequence[Any]) -> OwnCycle | None:
    """Return the attribute that refers to most of the tensors from their own contexts."""
    found = Counter(cycle for one in tensors if (cycle := _cycle_of(one)) is not None)
    return next((cycle for cycle, number in found.most_common(1) if 2 * number > len(tensors)), None)


def _cycle_of(tensor: Any) -> OwnCycle | None:
    import torch

    if not tensor.requires_grad or tensor.is_leaf or tensor._is_view():  # the function of a view may be made anew
        return None
    context = tensor.grad_fn
    if not isinstance(context, torch.autograd.function.BackwardCFunction):
        return None
    for name, value in list((own_dict(context) or {}).items()):
        if value is tensor or (type(value) in (tuple, list) and any(one is tensor for one in value)):
            return OwnCycle(type(context), name)
    return None
