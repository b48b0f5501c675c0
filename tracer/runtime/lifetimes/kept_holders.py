"""Finds the container, the cache or the graph that keeps more and more tensors alive."""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from time import monotonic
from types import CellType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from stepscope.tracer.runtime.lifetimes.adding_lines import Added, adding_line
from stepscope.tracer.runtime.lifetimes.holders import UNKNOWN, UNNAMED, find_held, find_places
from stepscope.tracer.runtime.lifetimes.own_cycles import own_cycle
from stepscope.tracer.runtime.lifetimes.referrers import (
    attribute_words,
    held_by,
    is_container,
    is_dict_of,
    module_dicts,
    own_dict,
)
from stepscope.tracer.runtime.program_frames import frames_of_threads

SAMPLE = 8
"""Number of tensors of which holders are searched."""
LEVELS = 4
"""Largest number of objects on the way from a tensor to the container that grows, such as a tuple in a list. The
variable of a function's closure does not count, because the function and its closure are on the way as well."""
MOST_NODES = 500
_CACHE = type(lru_cache(int))
_NOT_ON_THE_WAY = FrameType, ModuleType, type


@dataclass
class Holder:
    """What keeps the tensors alive."""

    words: str
    file: str | None = None
    """The place of the function that a cache is around, or of the only statement that adds to a container."""
    line: int | None = None
    hits: int | None = None
    """How often a cache of `functools` was hit; None for another holder."""
    lost_keys: int | None = None
    """The number of entries of such a cache with a tensor in their key that nothing else in Python refers to."""
    most_elements: int | None = None
    """The largest number of elements; None if there is no limit."""
    cycle_is_collected: bool | None = None
    """Whether the garbage collector is on, if a reference cycle of each tensor keeps it; None for another holder."""


def growing(tensors: Sequence[Any], least: int, deadline: float) -> Any:
    """Return the container or the cache that has most of the tensors and at least `least` elements, or a `Holder` if
    only a graph or a reference cycle keeps them; None if nothing does. Looks through the whole heap several times, but
    begins no such look after the deadline (`monotonic`)."""
    sample = [tensors[n * len(tensors) // SAMPLE] for n in range(SAMPLE)] if len(tensors) > SAMPLE else [*tensors]
    found = _growing(sample, least, {id(tensors), id(sample)}, deadline)
    if found is None and (cycle := own_cycle(sample)) is not None:
        file, line = cycle.place()
        return Holder(cycle.words, file, line, cycle_is_collected=gc.isenabled())
    return found if found is not None else _graph_of(sample, deadline)


def described(found: Any, deadline: float) -> Holder | None:
    """Return the description of what `growing` found, or None if it has no name or after the deadline. The caller has
    no tensors any more, so that their references are those of the program."""
    if found is None or type(found) is Holder:
        return found
    if monotonic() > deadline:
        return None
    cache = found if type(found) is _CACHE else next((one for one in _holding(found) if type(one) is _CACHE), None)
    return _of_cache(cache) if cache is not None else _of_container(found, deadline)


def _growing(sample: Sequence[Any], least: int, ours: set[int], deadline: float) -> Any:
    """Return the innermost container with `least` elements that has more than half of the sample; None if there is
    none."""
    reached: dict[int, set[int]] = {id(one): {n} for n, one in enumerate(sample)}
    objects = [*sample]
    seen = {*ours, *_named_elsewhere(), id(reached)}
    level = 0
    while level < LEVELS and monotonic() < deadline:
        seen |= {id(objects), *map(id, objects)}
        members: dict[int, set[int]] = {}
        following: list[Any] = []
        seen |= {id(members), id(following)}
        for one in _referrers(objects, seen):
            inside = set[int]().union(*(reached.get(id(inner), ()) for inner in gc.get_referents(one)))
            members[id(one)] = inside
            following.append(one)
        grown = [one for one in following if 2 * len(members[id(one)]) > len(sample) and _length(one) >= least]
        if grown:
            return max(grown, key=lambda one: (len(members[id(one)]), -_length(one)))
        reached, objects = members, following[:MOST_NODES]
        seen.add(id(reached))
        if not objects:
            return None
        level += not any(type(one) is CellType for one in objects)
    return None


def _referrers(objects: Sequence[Any], seen: set[int]) -> list[Any]:
    found = gc.get_referrers(*objects)
    return [one for one in found if id(one) not in seen and not issubclass(type(one), _NOT_ON_THE_WAY)]


def _named_elsewhere() -> Iterator[int]:
    """Yield the `id` of the namespaces of modules, and of this search's frames."""
    yield from module_dicts()
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield id(frame)
        frame = frame.f_back


def _length(one: Any) -> int:
    if type(one) is _CACHE:
        size: int = one.cache_info().currsize
        return size
    return len(one) if is_container(one) else 0


def _holding(one: Any) -> list[Any]:
    return [other for other in gc.get_referrers(one) if type(other) is not FrameType]


def _of_cache(cache: Any) -> Holder:
    info, function = cache.cache_info(), (own_dict(cache) or {}).get("__wrapped__")
    code = getattr(function, "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if isinstance(code, CodeType) else (None, None)
    return Holder(attribute_words(cache, None), file, line, info.hits, _lost_keys(cache), info.maxsize)


def _lost_keys(cache: Any) -> int:
    """Return the number of keys with a tensor that nothing else refers to: tensors are compared by identity, so no
    call can find such an entry again."""
    import torch

    kinds = torch.Tensor, torch.nn.Parameter
    (alone,) = _references((torch.empty(0, device="cpu"),), kinds)
    keys = [key for one in gc.get_referents(cache) if type(one) is dict for key in list(one)]
    return sum(type(key) is tuple and alone in _references(key, kinds) for key in keys)


def _references(key: tuple[Any, ...], kinds: tuple[type, ...]) -> list[int]:
    return [sys.getrefcount(one) for one in key if type(one) in kinds]


def _of_container(container: Any, deadline: float) -> Holder | None:
    places = [one for one in find_places([container], deadline - monotonic())[0] if UNNAMED not in one]
    if not places:
        return None
    named = [*_owners(container)] if monotonic() < deadline else []
    line = adding_line(named[0]) if len(named) == 1 else None
    file = named[0].file if line is not None else None
    return Holder(places[0], file, line, most_elements=getattr(container, "maxlen", None))


def _owners(container: Any, depth: int = 1) -> Iterator[Added]:
    """Yield the variables and the attributes that are a container, or a container with it in it."""
    modules = module_dicts()
    yield from _in_frames(container)
    for one in _holding(container):
        if id(one) in modules:
            file = getattr(sys.modules.get(modules[id(one)]), "__file__", None)
            yield from (Added(file, name) for name, value in [*one.items()] if value is container and file)
        elif type(one) is CellType:
            yield from (added for function in _holding(one) for added in _in_closure(function, one))
        elif type(one) is dict and (owner := next((it for it in _holding(one) if is_dict_of(one, it)), None)):
            yield from _in_attribute(owner, container)
        elif is_container(one):
            yield from _owners(one, depth - 1) if depth else ()
        else:
            yield from _in_attribute(one, container)


def _in_frames(container: Any) -> list[Added]:
    found: list[Added] = []
    frames = frames_of_threads()
    try:
        for frame in frames:
            code = frame.f_code
            if not str(frame.f_globals.get("__name__", "")).startswith("stepscope."):
                name = held_by(frame).get(id(container))
                if name is not None:
                    found.append(Added(code.co_filename, name, function_line=code.co_firstlineno))
    finally:
        del frame, frames  # they include this function's own frame: a cycle that would keep all locals alive
    return found


def _in_closure(function: Any, cell: CellType) -> Iterator[Added]:
    """Yield the variable of a function's closure."""
    if type(function) is tuple:  # the closure
        yield from (one for owner in _holding(function) for one in _in_closure(owner, cell))
    elif type(function) is FunctionType:
        for name, one in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            if one is cell:
                yield Added(function.__code__.co_filename, name, function_line=function.__code__.co_firstlineno)


def _in_attribute(owner: Any, value: Any) -> Iterator[Added]:
    kind = owner if issubclass(type(owner), type) else type(owner)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    names = [name for name, one in [*(own_dict(owner) or {}).items()] if one is value]
    yield from (Added(file, name, is_attribute=True) for name in names if file)


def _graph_of(sample: Sequence[Any], deadline: float) -> Holder | None:
    """Return what holds the memory of most tensors of the sample, such as the graph of one tensor."""
    found: defaultdict[str, int] = defaultdict(int)
    for held in find_held([one.untyped_storage() for one in sample], deadline - monotonic()):
        for words in held.words:
            found[words] += 1
    common = [
        words
        for words, number in found.items()
        if 2 * number > len(sample) and not words.startswith(UNKNOWN) and UNNAMED not in words
    ]
    return Holder(min(common, key=len)) if common else None
