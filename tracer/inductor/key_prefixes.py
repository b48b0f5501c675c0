"""Explains the keys of a `state_dict` that match none of a module by a prefix that one of the two has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stepscope.tracer.schema.constants import COMPILED_PREFIX, PARALLEL_PREFIX

_COMPILED = re.compile(rf"(?<![^.]){re.escape(COMPILED_PREFIX)}")
_DEEPEST = 8
"""Number of names in the longest prefix."""


class Explained(NamedTuple):
    """A prefix, and the keys that match without it."""

    given: str
    """What the keys of the `state_dict` have and those of the module lack."""
    own: str
    """What the keys of the module have and those of the `state_dict` lack."""
    keys: list[str]
    """The module's keys that match then."""
    given_key: str
    """The key of the `state_dict` that matches the first one."""

    @property
    def is_of_torch(self) -> bool:
        """Whether only wrappers of torch have added it."""
        return not f"{self.given}{self.own}".replace(COMPILED_PREFIX, "").replace(PARALLEL_PREFIX, "")


def explained_by(missing: Mapping[str, Any], unexpected: Mapping[str, Any]) -> Explained | None:
    """Return the prefix because of which most keys are unexpected, among the keys with their shapes, or None."""
    own, given = _plain(missing), _plain(unexpected)
    found = Counter[tuple[str, bool]]()
    for is_of_given, (longer, shorter) in ((True, (given, own)), (False, (own, given))):
        for key, (_, shape) in longer.items():
            found.update(
                (prefix, is_of_given)
                for prefix, rest in _divided(key)
                if (other := shorter.get(rest)) is not None and other[1] == shape
                if prefix or is_of_given  # no prefix is the same both ways
            )
    if not found:
        return None
    (prefix, is_of_given), _ = found.most_common(1)[0]
    longer, shorter = (given, own) if is_of_given else (own, given)
    pairs = [
        (one, shorter[key.removeprefix(prefix)])
        for key, one in longer.items()
        if key.startswith(prefix) and key.removeprefix(prefix) in shorter
    ]
    same = [(one[0], other[0]) if is_of_given else (other[0], one[0]) for one, other in pairs if one[1] == other[1]]
    return Explained(*_differing(*same[0], prefix, is_of_given), [key for _, key in same], same[0][0])


def _plain(keys: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the keys and their shapes by the keys without what torch.compile adds."""
    return {_COMPILED.sub("", key): (key, shape) for key, shape in keys.items()}


def _divided(key: str) -> Iterator[tuple[str, str]]:
    yield "", key
    for dot in [position for position, letter in enumerate(key) if letter == "."][:_DEEPEST]:
        yield key[: dot + 1], key[dot + 1 :]


def _differing(given: str, own: str, prefix: str, is_of_given: bool) -> tuple[str, str]:
    """Return what the first key has and the second one lacks, and the other way round."""
    if given.endswith(own):
        return given.removesuffix(own), ""
    if own.endswith(given):
        return "", own.removesuffix(given)
    compiled = [COMPILED_PREFIX if COMPILED_PREFIX in key else "" for key in (given, own)]
    more, less = ("", "") if compiled[0] == compiled[1] else compiled
    return (prefix + more, less) if is_of_given else (more, prefix + less)
