"""The filters of the templates of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.viewer.graphs.rows import SiteRow, SourceLine


def flow_text(site: SiteRow) -> str:
    """Return the inputs and the outputs of a launch site: ``buf0, primals_3 → buf1``."""
    sides = {"in": ("in", "inout"), "out": ("out", "inout")}
    names = {
        side: [row.buffer or row.name for row in site.arguments if row.role in roles] for side, roles in sides.items()
    }
    return " → ".join(", ".join(dict.fromkeys(side)) or "∅" for side in names.values())


def touches_text(site: SiteRow, buffer: str) -> str:
    """Return whether a launch site reads or writes a buffer, which may be an earlier name of its storage."""
    roles = {row.role for row in site.arguments if buffer in (row.buffer, row.storage)}
    reads, writes = roles & {"in", "inout"}, roles & {"out", "inout"}
    return " and ".join(word for word, does in (("reads", reads), ("writes", writes)) if does) or "uses"


def distinct(stacks: list[list[SourceLine]]) -> list[SourceLine]:
    """Return the last line of each stack, each line once."""
    return list(dict.fromkeys(stack[-1] for stack in stacks if stack))


FILTERS = {"distinct": distinct, "flow": flow_text, "touches": touches_text}
GLOBALS: dict[str, Any] = {}
