"""Rules stand in the docstrings of their modules, and are shown beside what they found."""

from __future__ import annotations


def rule_of(docstring: str | None) -> str:
    """A module's docstring as one line."""
    return " ".join((docstring or "").split())
