"""Lines of text for a terminal."""

from __future__ import annotations

import textwrap

from stepscope.viewer.text.clean import clean

WIDTH = 100


def wrapped(
    text: str, indent: str = "", width: int = WIDTH, following: str | None = None, most: int | None = None
) -> list[str]:
    """Return the cleaned lines of a text, at most `most` of them; those after the first are indented by `following`, by
    default like the first. Options such as ``--red-zones`` stay whole, so that they can be copied."""
    return textwrap.wrap(
        clean(text),
        width,
        initial_indent=indent,
        subsequent_indent=indent if following is None else following,
        break_on_hyphens=False,
        max_lines=most,
        placeholder=" …",
    )
