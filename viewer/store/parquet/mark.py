"""Tells a STORE from logs without importing what opens it."""

from __future__ import annotations

from pathlib import Path

MARK = "stepscope-store.json"


def means_store(names: list[str]) -> bool:
    """Whether these names of a trace are that of a STORE: a folder that is one, or an address that is no path."""
    return len(names) == 1 and ("://" in names[0] or Path(names[0], MARK).is_file())
