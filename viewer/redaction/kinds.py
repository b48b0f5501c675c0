"""The kinds of texts that `--redact` removes, each of which `--keep` can keep."""

from __future__ import annotations

from stepscope.viewer.errors import StepscopeError

KINDS: dict[str, tuple[str, str]] = {
    "user": ("names of users", "user"),
    "host": ("names of hosts", "host"),
    "paths": ("paths and file names", "file"),
    "environment": ("command lines, variables, settings and facts of the machine", "setting"),
    "source": ("lines of source and of generated code", "line"),
    "constants": ("string constants and guards", "constant"),
    "texts": ("texts of graph breaks, exceptions and programs", "text"),
    "names": ("names of functions, modules, scripts and variables", "name"),
    "values": ("numbers read from tensors, beyond their classes", "value"),
}
"""For each kind what it is in a sentence, and the noun of its placeholders."""


def kept_kinds(text: str) -> frozenset[str]:
    """Return the kinds that `text` names, separated by commas. Raises StepscopeError for an unknown one."""
    kinds = frozenset(filter(None, (part.strip() for part in text.split(","))))
    unknown = sorted(kinds - KINDS.keys())
    if unknown:
        raise StepscopeError(f"--keep does not know {', '.join(unknown)}: it takes {', '.join(KINDS)}.")
    return kinds
