"""Parses PyTorch's text of failed guards into the source, the expected value and the actual value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.program_names import in_modules

_FAILED = re.compile(r"^((?:r\d+:)?!?[\d/]+): (.*)$")
_MISMATCH = re.compile(r"^tensor '(.+?)' (size|stride) mismatch at index (\d+)\. expected (\S+), actual (\S+?)\.?$")
_GRADIENT = re.compile(r"^tensor '(.+?)' requires_grad mismatch\. expected requires_grad=(0|1)\b")
_OTHER_MISMATCH = re.compile(r"^tensor '(.+?)' (.+?) mismatch\. expected (.+), actual (.+?)\.?$")
_IDENTITY = re.compile(r"^___check_(type|obj)_id\((.+), \d+\)")
"""A guard whose number is an address, which differs between processes."""
_FREED = re.compile(r"^Cache line invalidated because (.+) got deallocated\b")
"""What stands for a guard if the compiled code went with an object that it was compiled for."""
FREED = "lifetime of "
_NO_KEY = re.compile(r"^KeyError on (.+)\[('[^']*'|\"[^\"]*\"|-?\d+)\]$")
"""A call passed a dictionary without a key that the compiled code reads."""
KEYS = "keys of "
_KEY = re.compile(r"^list\(dict\.keys\((.+)\)\)\[\d+\] == ('[^']*'|\"[^\"]*\"|-?\d+)$")
"""A key at a position of a dictionary."""
_OTHER_LENGTH = re.compile(r"^(len\(.+\)) != (\d+)$")
"""What holds for the length of a list or dictionary of the call, in place of the guard that failed."""
ANOTHER = "another of torch's own modules or functions"
"""What stands for the guard of the module or function that torch compiles through its wrapper."""
_EQUALS = re.compile(r"^([^=!<>]+?) == (.+)$")
_EMPTY = re.compile(r"^not ((?:[LG]\['[^']+'\]|[A-Za-z_])[\w.\[\]'\"]*)$")
EMPTY = "empty"
"""The value of a list, dictionary or set without items."""
_COMMENT = re.compile(r"\s{2,}# (.*)$")
_HINT = re.compile(r"\(HINT: (.*)\)\s*$", re.S)
_MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]")
"""A part of a module as guards name it."""
_KEYS = re.compile(r"\blist\(dict\.keys\(([^()]+)\)\)")
_VARIABLE = re.compile(r"(?<![\w.\])])[LG]\['([^']+)'\]")
"""A local or global variable as guards name it."""


@dataclass(frozen=True)
class FailedGuard:
    """One failed guard of the reason for a recompile."""

    against: str | None
    """Compile whose guard failed; None if the text does not name it."""
    guard: str
    """Guard as PyTorch writes it, without the trailing comment."""
    source: str
    """Expression that was checked, such as ``x.size()[0]`` or ``self.step``; guards are grouped by it."""
    expected: str | None
    actual: str | None
    code: str | None
    """Program line that the guard came from."""
    hint: str | None


def failed_guards(text: str) -> list[FailedGuard]:
    """Return all failed guards of a recompile, in the order in which PyTorch tried the earlier compiles."""
    found: list[FailedGuard] = []
    for line in text.split("\n"):
        match = _FAILED.match(line)
        if match:
            found.append(_guard(match[1], match[2]))
    return found or [_guard(None, text.split("\n", 1)[0])]


def same_source(symbol_source: str) -> str:
    """Return a source as the program names it: ``x.size()[0]`` for ``L['x'].size()[0]``, ``self.head.bias`` for
    ``L['self']._modules['head']._parameters['bias']``."""
    plain = in_modules(_VARIABLE.sub(r"\1", symbol_source))
    return _KEYS.sub(r"list(\1)", _MEMBER.sub(r".\1", plain))


def _guard(against: str | None, text: str) -> FailedGuard:
    hint, comment = _HINT.search(text), _COMMENT.search(text)
    guard = text[: comment.start()].rstrip() if comment else text.strip()
    code = comment[1].split("  #", 1)[0].strip() if comment else None
    source, expected, actual = guard, None, None
    if match := _MISMATCH.match(guard):
        source = f"{same_source(match[1])}.{match[2]}()[{match[3]}]"
        expected, actual = match[4], match[5]
    elif match := _GRADIENT.match(guard):
        source = f"requires_grad of {same_source(match[1])}"
        expected, actual = ("True", "False") if match[2] == "1" else ("False", "True")
    elif match := _OTHER_MISMATCH.match(guard):
        source, expected, actual = f"{match[2]} of {same_source(match[1])}", match[3], match[4]
    elif match := _IDENTITY.match(guard):
        source = f"{'type' if match[1] == 'type' else 'identity'} of {same_source(match[2])}"
    elif match := _FREED.match(guard):
        source = f"{FREED}{same_source(match[1])}"
    elif match := _NO_KEY.match(guard) or _KEY.match(guard):
        source, expected = f"{KEYS}{same_source(match[1])}", match[2]
    elif match := _OTHER_LENGTH.match(guard):
        source, expected = same_source(match[1]), match[2]
    elif match := _EQUALS.match(guard):
        source, expected = same_source(match[1].strip()), match[2].strip()
    elif match := _EMPTY.match(guard):
        source, expected = same_source(match[1]), EMPTY
    return FailedGuard(against, guard, source, expected, actual, code, hint[1] if hint else None)
