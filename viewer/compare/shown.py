"""Says which numbers of a tensor that differs are shown, and how, in terminals and on pages."""

from __future__ import annotations

from stepscope.viewer.compare.rows import Numbers

STATISTICS = ("min", "max", "mean", "std")
_HASHES = ("norm", "hash")
"""What is known only beside a log of DebugMode."""


def shown_names(one: Numbers, other: Numbers) -> list[str]:
    """Return the fields of `Numbers` that are shown of both sides."""
    has_hashes = any((one.norm, one.hash, other.norm, other.hash))
    return [
        name
        for name in (*STATISTICS, *_HASHES)
        if (getattr(one, name), getattr(other, name)) != (None, None) or (name in STATISTICS and not has_hashes)
    ]


def number_text(value: object) -> str:
    """Return a statistic, a hash, or a norm, of which a pair gives the bounds if it is not known."""
    if isinstance(value, tuple):
        return " to ".join(dict.fromkeys(f"{one:.7g}" for one in value))
    return "–" if value is None else f"{value:.7g}" if isinstance(value, float) else str(value)
