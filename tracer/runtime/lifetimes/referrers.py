"""Describes Python objects that refer to a value, without running any code of the objects."""

from __future__ import annotations

import sys
from collections import deque
from types import CoroutineType, GeneratorType, MemberDescriptorType, ModuleType
from typing import Any

CONTAINERS = (list, tuple, set, frozenset, deque, dict)


def is_container(value: Any) -> bool:
    return issubclass(type(value), CONTAINERS)


def module_dicts() -> dict[int, str]:
    """Return the names of modules by the `id` of their namespaces; of aliases (`__mp_main__`) the first."""
    return {
        id(module.__dict__): name
        for name, module in reversed(list(sys.modules.items()))
        if issubclass(type(module), ModuleType)
    }


def container_words(container: Any, member: Any) -> str:
    """Describe a container, such as ``list of 3``, or with the key of `member`, ``value of 'h' in dict of 2``."""
    name, size = type(container).__name__, len(container)
    if not issubclass(type(container), dict):
        return f"{name} of {size}"
    key = next((key for key, value in list(container.items()) if value is member), None)
    return f"value of {_short(key)} in {name} of {size}" if key is not None else f"a key of {name} of {size}"


def attribute_words(owner: Any, value: Any) -> str:
    """Describe the attribute of `owner` that is `value`, such as ``attribute cache of Net``, or else only its type."""
    kind = type(owner)
    if issubclass(kind, (GeneratorType, CoroutineType)):
        return f"a local variable of the suspended {owner.__qualname__}()"
    is_class = issubclass(kind, type)
    of = f"class {owner.__qualname__}" if is_class else kind.__qualname__
    for name, one in list((own_dict(owner) or {}).items()):
        if one is value:
            return f"attribute {name} of {of}"
    for base in kind.__mro__:
        for name, member in list(vars(base).items()):
            if isinstance(member, MemberDescriptorType) and _slot(member, owner) is value:
                return f"attribute {name} of {of}"
    return f"a class ({owner.__qualname__})" if is_class else f"an object of type {kind.__qualname__}"


def own_dict(value: Any) -> Any:
    """Return the dict of an object's attributes without running the object's code, or None if it has none."""
    if issubclass(type(value), type):
        return type.__dict__["__dict__"].__get__(value)
    try:
        return object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return None


def is_dict_of(found: Any, owner: Any) -> bool:
    """Return whether `found` is the dict of `owner`'s attributes; that of a class is only visible through a proxy."""
    own = own_dict(owner)
    if issubclass(type(owner), type) and type(found) is dict:
        return found.keys() == own.keys() and all(own[key] is value for key, value in found.items())
    return own is found and found is not None


def _slot(member: MemberDescriptorType, owner: Any) -> Any:
    try:
        return member.__get__(owner)
    except AttributeError:
        return None


def _short(key: Any) -> str:
    if issubclass(type(key), (str, int, float)):
        text = repr(key)
        return text if len(text) <= 60 else text[:57] + "..."
    return f"a key of type {type(key).__name__}"
