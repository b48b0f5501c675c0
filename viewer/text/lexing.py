"""Splits source text into (class, text) pieces with one regular expression per language.

It distinguishes only what colours need, forty times as fast as a full lexer, because generated code is long.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator

_STRING = r"\"(?:[^\"\\\n]|\\.)*\"?"
_NUMBER = r"(?<!\w)(?:0[xX][\da-fA-F]+|(?:\d[\d_']*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[a-zA-Z]*"
_PYTHON = re.compile(
    rf"""(?P<c>\#[^\n]*)
    |(?P<s>(?:\b[rRbBfFuU]{{1,2}})?(?:\"\"\"(?s:.*?)(?:\"\"\"|\Z)|'''(?s:.*?)(?:'''|\Z)|{_STRING}|'(?:[^'\\\n]|\\.)*'?))
    |(?P<d>(?m:^)[ \t]*@[\w.]+)
    |(?P<f>(?<=\bdef\ )\w+|(?<=\bclass\ )\w+)
    |(?P<n>{_NUMBER})
    |(?P<word>(?<![\w.])[A-Za-z_]\w*)
    |[\w.]+""",
    re.VERBOSE,
)
_CPP = re.compile(
    rf"""(?P<c>//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)|(?m:^)[ \t]*\#[^\n]*)
    |(?P<s>R"\((?s:.*?)(?:\)"|\Z)|{_STRING}|'(?:[^'\\\n]|\\.)+')
    |(?P<n>{_NUMBER})
    |(?P<f>(?<=\bstruct\ )\w+|(?<=\bclass\ )\w+)
    |(?P<word>(?<!\w)[A-Za-z_]\w*)
    |\w+""",
    re.VERBOSE,
)
_JSON = re.compile(
    rf"""(?P<f>\"(?:[^\"\\\n]|\\.)*\"(?=\s*:))
    |(?P<s>{_STRING})
    |(?P<n>-?{_NUMBER})
    |(?P<k>\b(?:true|false|null)\b)
    |\w+""",
    re.VERBOSE,
)
_PYTHON_WORDS = {
    **{name: "b" for name in dir(builtins) if name[0].islower()},
    **dict.fromkeys(keyword.kwlist, "k"),
    "self": "b",
}
_CPP_KEYWORDS = """
    alignas auto bool break case catch char class const const_cast constexpr continue default delete do double
    dynamic_cast else enum explicit extern false float for friend goto if inline int int16_t int32_t int64_t int8_t
    long mutable namespace new noexcept nullptr operator override private protected public register reinterpret_cast
    return short signed size_t sizeof static static_assert static_cast struct switch template this throw true try
    typedef typename uint16_t uint32_t uint64_t uint8_t union unsigned using virtual void volatile while
"""
_CPP_WORDS = dict.fromkeys(_CPP_KEYWORDS.split(), "k")
_LEXERS = {"python": (_PYTHON, _PYTHON_WORDS), "cpp": (_CPP, _CPP_WORDS), "json": (_JSON, {})}


def pieces(text: str, language: str) -> Iterator[tuple[str, str]]:
    """Yield all of `text` in order; pieces of class "" are plain."""
    pattern, words = _LEXERS[language]
    end = 0
    for found in pattern.finditer(text):
        name = found.lastgroup
        if name is None:
            continue
        if name == "word":
            known = words.get(found[0])
            if known is None:
                continue
            name = known
        if found.start() > end:
            yield "", text[end : found.start()]
        yield name, found[0]
        end = found.end()
    if end < len(text):
        yield "", text[end:]
