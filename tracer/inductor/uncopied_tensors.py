"""Finds tensors in containers of the program that show the memory of parameters, as those of `state_dict()` do."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch

from stepscope.tracer.runtime.lifetimes.holders import UNNAMED, find_places, searching

LEAST_TENSORS = 2
"""Number of such tensors, because a variable of a loop over a `state_dict()` may still hold the last one."""
SECONDS = 2.0
"""Longest search for the containers."""
_SIZE = re.compile(r" \(\w+ of \d+\)$")
"""What is said of the dictionary of an element: `` (dict of 6)``."""
_IN_CONTAINER = re.compile(r"\b(?:\w*[Dd]ict|list|tuple|deque) of \d+\b")


@dataclass
class Uncopied:
    """A tensor with the memory of a parameter. Does not keep it alive."""

    tensor: ref[Any]
    name: str
    """Where it is, such as ``weights['0.bias'] of Average``."""

    def parameter(self) -> Any:
        return self.tensor()


def uncopied_tensors(
    everything: Iterable[Any], place_of: Callable[[Any], object], wanted: Container[object], most: int
) -> tuple[list[tuple[object, Uncopied]], int]:
    """Return the places of memory and the first tensors, at most `most`, that are no parameters, require no gradient
    and show one of the wanted places, and how many there are. There are none unless containers of the program hold
    them."""
    with searching():
        found = [one for one in everything if type(one) is torch.Tensor and _is_at(one, place_of, wanted)]
        shown = found[:most]
        names = [_name(next(filter(_is_container, words), "")) for words in find_places(shown, SECONDS)]
        told = [(place_of(one), Uncopied(ref(one), name)) for one, name in zip(shown, names, strict=True) if name]
        return (told, len(found)) if len(told) >= LEAST_TENSORS else ([], 0)


def _name(words: str) -> str:
    return _SIZE.sub("", words).removeprefix("attribute ")


def _is_container(words: str) -> bool:
    return UNNAMED not in words and _IN_CONTAINER.search(words) is not None


def _is_at(tensor: Any, place_of: Callable[[Any], object], wanted: Container[object]) -> bool:
    try:
        return not tensor.requires_grad and tensor.layout is torch.strided and place_of(tensor) in wanted
    except (RuntimeError, AttributeError):  # a tensor of a function transform, without memory of its own
        return False
