"""Parses the comments that Inductor writes above a launch (torch/_inductor/utils.py, `get_kernel_metadata`)."""

from __future__ import annotations

import re

_HANDLE = "[Provenance debug handles] "
_COMMENT = re.compile(r"Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]")


def commented(text: str) -> tuple[list[str], list[str]] | None:
    """Return the names of nodes and of operators in Inductor's comment, or None if `text` is not such a comment."""
    found = _COMMENT.search(text)
    return (_names(found[1]), _names(found[2])) if found else None


def debug_handle(text: str) -> str | None:
    """Return the first handle in a comment of debug handles (``extern_kernels.mm:3``), or None for other text."""
    return text.partition(_HANDLE)[2].split(",")[0].strip() or None


def _names(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]
