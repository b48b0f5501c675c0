"""Replaces texts that a redacted report may not show by placeholders, the same one for equal texts."""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from stepscope.viewer.redaction import own_words, proofs, rules
from stepscope.viewer.redaction.kinds import KINDS
from stepscope.viewer.redaction.proofs import words
from stepscope.viewer.redaction.rules import Rule
from stepscope.viewer.redaction.secrets import Secrets
from stepscope.viewer.web.addresses import slug, unslug

_ENDING = re.compile(r"\.(?:py|cpp|cu|log|pt|ipynb|gz|zst|txt|so)(?::\d{1,7})?$")
_PAGES = words(
    "steps graphs memory kernels values compile compile-time caches graph-breaks recompiles problems "
    "records ranks difference recompute buffers curves metrics cuda-graphs vllm draft-export "
    "provenance"
)
_NAMED = {"kernels": rules.KERNEL, "buffers": rules.NAME, "compile": rules.COMPILE_ID}
"""Parts of addresses that a name follows."""
_NUMBERS = words("log launch call site step record argument item rank snode left right")
_MOST_NESTED = 4
_LONGEST_SENTENCE = 2000
_IN_SENTENCES = (proofs.number, proofs.kernel, proofs.name, proofs.graph_label, proofs.symptom)


def _ending(path: str) -> str:
    """Return an ending such as ``.py`` with the number of a line if there is one, or ""."""
    found = _ENDING.search(path)
    return found[0] if found else ""


def _is_plain(name: str, text: str) -> bool:
    """Return whether a parameter of an address may be shown."""
    return (name in _NUMBERS and text.isdecimal()) or (name == "aspect" and text in own_words.texts())


def _is_public(text: str) -> bool:
    return any(holds(text) for holds in _IN_SENTENCES)


class Placeholders:
    """The placeholders of one report. Texts of the kinds `kept` are shown, but with placeholders for what `secrets`
    finds in them."""

    def __init__(self, kept: Collection[str] = (), secrets: Secrets | None = None) -> None:
        self.kept = kept
        self.removed: dict[str, set[str]] = {}
        """Removed texts by kind."""
        self.shown: set[str] = set()
        """Texts of the log that are shown."""
        self._secrets = secrets or Secrets({})
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def optional(self, text: str | None, rule: Rule) -> str | None:
        return None if text is None else self.text(text, rule)

    def text(self, text: str, rule: Rule) -> str:
        """Return the text if a proof of `rule` holds, else its placeholder."""
        if not text:
            return text
        if any(holds(text) for holds in rule.proofs):
            self.shown.add(text)
            return text
        if rule.kind in self.kept:
            return self._kept(text)
        self.remove(rule.kind, text)
        return self._placeholder(rule.noun, text, _ending(text) if rule is rules.FILE else "")

    def remove(self, kind: str, text: str) -> None:
        """Count a text that is not shown."""
        self.removed.setdefault(kind, set()).add(text)

    def _kept(self, text: str) -> str:
        shown = self._secrets.replaced(text, lambda kind, found: self._placeholder(KINDS[kind][1], found))
        self.shown.add(shown)
        return shown

    def _placeholder(self, noun: str, text: str, ending: str = "") -> str:
        place = (noun, text)
        if place not in self._known:
            self._counts[noun] = number = self._counts.get(noun, 0) + 1
            self._known[place] = f"{noun}_{number}{ending}"
        return self._known[place]

    def sentence(self, text: str, nested: int = 0) -> str | None:
        """Return a sentence of stepscope with placeholders for all that is not public; None if `text` is not one."""
        if text in own_words.texts():
            return text
        for parts in own_words.sentences() if len(text) <= _LONGEST_SENTENCE else ():
            holes = own_words.fill(parts, text)
            if holes is None:
                continue
            is_sure = own_words.letters(parts) >= own_words.FEWEST_LETTERS
            if is_sure or all(_is_public(hole) or hole in own_words.texts() for hole in holes):
                shown = iter([self._hole(hole, nested + 1) for hole in holes])
                said = "".join(next(shown) if part is None else part for part in parts)
                return self._kept(said) if self.kept and not nested else said
        return None

    def _hole(self, text: str, nested: int) -> str:
        if not text or _is_public(text):
            self.shown.add(text)
            return text
        said = self.sentence(text, nested) if nested < _MOST_NESTED else None
        if said is not None:
            return said
        name, comma, rest = text.partition(", ")
        if comma and _is_public(name) and nested < _MOST_NESTED:
            return name + self._hole(comma + rest, nested + 1)
        return self.text(text, rules.NAME if text.isidentifier() else rules.TEXT)

    def address(self, page: str) -> str:
        """Return an address with its names replaced as elsewhere; an unknown one becomes that of the first page."""
        parts = urlsplit(page)
        segments, before = [], ""
        for segment in parts.path.split("/")[1:]:
            rule = _NAMED.get(before)
            if rule is rules.COMPILE_ID:
                shown = quote(self.text(unquote(segment).replace("_", "/"), rule).replace("/", "_"), safe="!")
            elif rule is not None:
                shown = slug(self.text(unslug(segment), rule))
            elif segment in _PAGES or segment.isdecimal() or not segment:
                shown = segment
            else:
                return "/"
            segments.append(shown)
            before = segment
        asked = [(name, text) for name, text in parse_qsl(parts.query) if _is_plain(name, text)]
        return f"/{'/'.join(segments)}" + (f"?{urlencode(asked)}" if asked else "")
