"""Loads wrappers whose source is changed, as if Inductor had generated them so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch._inductor.codecache import PyCodeCache


@contextmanager
def changed_wrappers(change: Callable[[str], str]) -> Iterator[None]:
    """Change the source of each wrapper that is loaded inside; its file has the change only meanwhile."""
    before = PyCodeCache.__dict__["load_by_key_path"]
    load = PyCodeCache.load_by_key_path

    def changed(cls: Any, key: str, path: str, *args: Any, **kwargs: Any) -> Any:
        file = Path(path)
        text = file.read_text("utf-8")
        file.write_text(change(text), "utf-8")
        try:
            return load(key, path, *args, **kwargs)
        finally:
            file.write_text(text, "utf-8")

    setattr(PyCodeCache, "load_by_key_path", classmethod(changed))  # noqa: B010 - mypy rejects assigning to a method
    try:
        yield
    finally:
        setattr(PyCodeCache, "load_by_key_path", before)  # noqa: B010
