"""Knows the words that any report may hold: those of stepscope's own files and of PyTorch's public names."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from stepscope.viewer.redaction import proofs
from stepscope.viewer.web import assets

_WORD = re.compile(r"\w{3,}")
_PROOFS = (
    proofs.kernel, proofs.name, proofs.operator, proofs.dtype, proofs.device, proofs.version, proofs.compile_id,
    proofs.graph_label, proofs.snode, proofs.span, proofs.metric, proofs.parameter, proofs.scalar, proofs.scalar_type,
    proofs.wrapper_function, proofs.block, proofs.signal, proofs.platform, proofs.package, proofs.number,
)  # fmt: skip
_PLACEHOLDER = re.compile(
    r"(?:text|file|function|kernel|name|operator|node|type|device|compile|graph|version|sentence|span|record|value|"
    r"guard|setting|line|machine|user|host|constant)_\d+"
)


@cache
def corpus() -> str:
    """Return all texts of stepscope, with single spaces between words."""
    top = Path(__file__).resolve().parents[2]
    paths = [path for part in ("viewer", "tracer") for path in sorted((top / part).rglob("*.py"))]
    paths += [*sorted(assets.folder("templates").rglob("*.html")), *assets.static_files().values()]
    paths.append(Path(__file__).with_name("torch_names.json"))
    return " ".join(" ".join(path.read_text("utf-8").split()) for path in paths)


@cache
def words() -> frozenset[str]:
    return frozenset(_WORD.findall(corpus()))


@cache
def joined() -> str:
    """Return all common words in one text, in which parts of them are found fast."""
    return "\n".join(sorted(words()))


def is_public(word: str) -> bool:
    """Return whether a proof says that PyTorch or Inductor gives this name."""
    return _PLACEHOLDER.fullmatch(word) is not None or any(holds(word) for holds in _PROOFS)
