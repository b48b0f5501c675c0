"""Replaces functions of PyTorch by wrappers for a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class WrappedFunctions:
    """Functions of classes and modules that have wrappers now; false if none has."""

    def __init__(self) -> None:
        self._wrapped: list[tuple[Any, str, Any, Any]] = []
        """The owner, the name of the function, what the owner had by this name, and the wrapper."""

    def __bool__(self) -> bool:
        return bool(self._wrapped)

    def wrap(self, owner: Any, name: str, wrapper_of: Callable[[Any], Any]) -> None:
        """Replace a function by what `wrapper_of` makes of it, if the owner has such a function."""
        original = getattr(owner, name, None)
        if original is not None:
            wrapper, own = wrapper_of(original), vars(owner).get(name, original)
            self._wrapped.append((owner, name, own, wrapper))
            setattr(owner, name, staticmethod(wrapper) if isinstance(own, staticmethod) else wrapper)

    def restore(self) -> None:
        """Restore the functions, unless somebody else has wrapped them since; such a wrapper still calls ours."""
        for owner, name, original, wrapper in self._wrapped:
            if getattr(owner, name) is wrapper:
                setattr(owner, name, original)
        self._wrapped.clear()
