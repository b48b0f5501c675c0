"""Computes digests of this program's own code for the keys of kept files. The code of a process does not change."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path


@cache
def code_digest(*places: str) -> bytes:
    """Return a digest of the contents of modules, and of all modules in folders."""
    digest = hashlib.sha256()
    for path in modules(places):
        digest.update(path.read_bytes() + b"\0")
    return digest.digest()


def modules(places: Sequence[str]) -> list[Path]:
    """Return modules, and all modules in folders."""
    found = map(Path, places)
    return [path for place in found for path in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
