"""Distinguishes a STORE from logs without importing the modules that open it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

MARK = "stepscope-store.json"


def means_store(names: Sequence[str]) -> bool:
    """Return whether these names of a trace name a STORE: a folder with its mark, or an address that is not a path."""
    return len(names) == 1 and ("://" in names[0] or Path(names[0], MARK).is_file())
