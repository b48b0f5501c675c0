"""Describes Python objects and local variables that refer to a value, without running any code of the program.

Up to Python 3.12 reading `f_locals` fills a dict that stays on the frame and keeps the values alive. It is emptied
again at once; frames in which other code may use that dict (a debugger, `locals()`) are left out.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from functools import lru_cache
from inspect import CO_OPTIMIZED
from pathlib import PurePath
from types import CoroutineType, FrameType, GeneratorType, MemberDescriptorType, ModuleType
from typing import Any

from stepscope.tracer.runtime.program_frames import frames_of_threads

USES_LOCALS = {"locals", "vars", "dir", "eval", "exec"}
MOST_NAMES = 100_000
_VARIABLE = re.compile(r"((?:local variable |closure variable |attribute )?\w+)( of .*)")
_CACHE = type(lru_cache(int))
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


def container_words(container: Any) -> str:
    """Describe a container, such as ``list of 3``."""
    return f"{type(container).__name__} of {len(container)}"


def subscript(container: Any, member: Any) -> str | None:
    """Return the subscript by which a dict has `member`, such as ``['h']``; None if it is no value of a dict."""
    if not issubclass(type(container), dict):
        return None
    key = next((key for key, value in list(container.items()) if value is member), None)
    return f"[{_short(key)}]" if key is not None else None


def subscripted(place: str, subscripts: str) -> str | None:
    """Return a place with subscripts behind its variable: ``feats[5] of __main__``; None if it has no variable."""
    found = _VARIABLE.fullmatch(place)
    return f"{found[1]}{subscripts}{found[2]}" if found is not None else None


def attribute_words(owner: Any, value: Any) -> str:
    """Describe the attribute of `owner` that is `value`, such as ``attribute cache of Net``, or else only its type."""
    kind = type(owner)
    if issubclass(kind, (GeneratorType, CoroutineType)):
        return f"a local variable of the suspended {owner.__qualname__}()"
    if kind is _CACHE:
        cached = (own_dict(owner) or {}).get("__wrapped__")
        return f"the functools.lru_cache of {getattr(cached, '__qualname__', 'a function')}()"
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


def locals_by_identity() -> tuple[dict[int, list[str]], set[int]]:
    """Return ``local variable h of train() at train.py:31`` by the `id` of the variable's value, for all threads.

    Also returns the `id` of every running frame, and of the values of the recorder's own variables.
    """
    words: dict[int, list[str]] = {}
    ours: set[int] = set()
    frames = frames_of_threads()
    try:
        for frame in frames:
            if len(ours) >= MOST_NAMES:
                break
            _read(frame, words, ours)
    finally:
        del frame, frames  # they include this function's own frame: a cycle that would keep all locals alive
    return words, ours


def _read(frame: FrameType, words: dict[int, list[str]], ours: set[int]) -> None:
    ours.add(id(frame))
    held = held_by(frame)
    if str(frame.f_globals.get("__name__", "")).startswith("stepscope."):
        ours.update(held)
        return
    where = f"{frame.f_code.co_name}() at {PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"
    for identity, name in held.items():
        words.setdefault(identity, []).append(f"local variable {name} of {where}")


def held_by(frame: FrameType) -> dict[int, str]:
    """Return a frame's local variables by the `id` of their values; empty if they cannot be read safely."""
    code = frame.f_code
    if not code.co_flags & CO_OPTIMIZED:  # its f_locals is its namespace
        return {}
    if sys.version_info >= (3, 13):
        return {id(value): name for name, value in frame.f_locals.items()}
    if _has_debugger(frame) or sys.gettrace() is not None or USES_LOCALS.intersection(code.co_names):
        return {}
    snapshot: dict[str, Any] = frame.f_locals
    held = {id(value): name for name, value in snapshot.items()}
    snapshot.clear()
    return held


def _has_debugger(frame: FrameType) -> bool:
    """Return whether a debugger traces `frame`; `lifecycle_checks` also sets `f_trace`."""
    return frame.f_trace is not None and not type(frame.f_trace).__module__.startswith("stepscope.")
