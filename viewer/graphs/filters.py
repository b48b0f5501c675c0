"""What the templates of graphs use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.viewer.graphs.rows import SiteRow, SourceLine


def flow_text(site: SiteRow) -> str:
    """``buf0, primals_3 → buf1``: what goes in and what comes out."""
    sides = {"in": ("in", "inout"), "out": ("out", "inout")}
    names = {
        side: [row.buffer or row.name for row in site.arguments if row.role in roles] for side, roles in sides.items()
    }
    return " → ".join(", ".join(dict.fromkeys(side)) or "∅" for side in names.values())


def touches_text(site: SiteRow, buffer: str) -> str:
    """Whether a launch site reads or writes a buffer; the names of a reused storage differ from launch to launch."""
    roles = {row.role for row in site.arguments if buffer in (row.buffer, row.storage)}
    reads, writes = roles & {"in", "inout"}, roles & {"out", "inout"}
    return " and ".join(word for word, does in (("reads", reads), ("writes", writes)) if does) or "uses"


def distinct(stacks: list[list[SourceLine]]) -> list[SourceLine]:
    """The last line of every stack, each once."""
    return list(dict.fromkeys(stack[-1] for stack in stacks if stack))


FILTERS = {"distinct": distinct, "flow": flow_text, "touches": touches_text}
GLOBALS: dict[str, Any] = {}
