"""Finds what a kernel that Inductor generated reads and writes, from its source."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from stepscope.viewer.kernel_source.cpp_accesses import cpp_accesses
from stepscope.viewer.kernel_source.cpp_tokens import NotUnderstoodError
from stepscope.viewer.kernel_source.element_access import Accesses
from stepscope.viewer.kernel_source.intervals import contents, one
from stepscope.viewer.kernel_source.triton_launch import generated_accesses

_POINTER = re.compile(r"\b(?:in_out_ptr|in_ptr|out_ptr)\d+\b")


def accesses(
    code: str,
    pointers: Collection[str] = (),
    numbers: Mapping[str, int] | None = None,
    held: Mapping[str, tuple[int, int]] | None = None,
) -> Accesses:
    """Return the accesses of the definition of a kernel.

    `pointers` names more of its parameters than those that are called ``in_ptr0`` and the like. `numbers` are those
    that a launch gives its parameters, `held` the smallest and the largest element behind a pointer, by parameter.
    """
    known = {name: one(number) for name, number in (numbers or {}).items()}
    known |= {f"*{name}": contents(name, *ends) for name, ends in (held or {}).items()}
    names = dict.fromkeys([*_POINTER.findall(code), *pointers])
    if "tl.load" in code or "tl.store" in code:
        return generated_accesses(code, list(names), known)
    try:
        return cpp_accesses(code, known)
    except NotUnderstoodError:
        return Accesses([], set(_POINTER.findall(code)))
