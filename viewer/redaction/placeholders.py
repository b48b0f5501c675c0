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
from stepscope.viewer.text.formats import basename
from stepscope.viewer.web.addresses import slug, unslug

_ENDING = re.compile(r"\.(?:py|cpp|cu|log|pt|ipynb|gz|zst|txt|so)(?::\d{1,7})?$")
_PAGES = words(
    "steps graphs memory kernels values compile compile-time caches graph-breaks recompiles problems "
    "records ranks difference recompute buffers curves metrics cuda-graphs vllm draft-export "
    "provenance magnitudes"
)
_NAMED = {"kernels": rules.KERNEL, "buffers": rules.NAME, "compile": rules.COMPILE_ID}
"""Parts of addresses that a name follows."""
_NUMBERS = words("log launch call site step record argument item rank snode left right")
_ASIDE = re.compile(r"(.*) \(([^()]*)\)")
"""A text with lines of the model, a kernel or a size behind it."""
_PROGRAM_NAME = re.compile(r"([^()]+) \(([a-z]\w*)\) ")
"""A name of the program with that of the compiler behind it."""
_LINE = re.compile(r"([^/:()]+):(\d{1,7})")
_BETWEEN = re.compile(r"; (?!else )")
_MOVED = re.compile(r"(.+) (wrote|read) (.+): ([^:]*)")
"""What a launch wrote or read, whose fixed words are too few to be told from other texts by themselves."""
_COUNTED = re.compile(r"\d[\d,]{0,20} ([a-z]{2,20})")
_MOST_NESTED = 4
_LONGEST_SENTENCE = 2000
_IN_SENTENCES = (proofs.number, proofs.kernel, proofs.name, proofs.graph_label, proofs.symptom)


def _ending(path: str) -> str:
    """Return an ending such as ``.py`` with the number of a line if there is one, or ""."""
    found = _ENDING.search(path)
    return found[0] if found else ""


def _is_plain(name: str, text: str) -> bool:
    """Return whether a parameter of an address may be shown."""
    is_number = name in _NUMBERS and text.isdecimal()
    return is_number or (name in ("aspect", "of", "statistic") and text in own_words.texts())


def _is_public(text: str) -> bool:
    return any(holds(text) for holds in _IN_SENTENCES)


def _is_counted(text: str) -> bool:
    """Return whether the text is a number of things that stepscope counts, such as ``3 launches``."""
    found = _COUNTED.fullmatch(text)
    return found is not None and not {found[1], found[1].removesuffix("s"), found[1].removesuffix("es")}.isdisjoint(
        own_words.texts()
    )


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
        if (moved := _MOVED.fullmatch(text)) is not None and (said := self._moved(moved, nested)) is not None:
            return self._kept(said) if self.kept and not nested else said
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
        if not text or _is_public(text) or _is_counted(text):
            self.shown.add(text)
            return text
        said = self.sentence(text, nested) if nested < _MOST_NESTED else None
        if said is not None:
            return said
        if (described := self.described(text)) is not None:
            return described
        if len(several := _BETWEEN.split(text)) > 1 and nested < _MOST_NESTED:
            return "; ".join(self._hole(part, nested + 1) for part in several)
        if (aside := _ASIDE.fullmatch(text)) is not None and nested < _MOST_NESTED:
            inside = [self._aside(part, nested + 1) for part in aside[2].split(", ")]
            return f"{self._hole(aside[1], nested + 1)} ({', '.join(inside)})"
        name, comma, rest = text.partition(", ")
        if comma and _is_public(name) and nested < _MOST_NESTED:
            return name + self._hole(comma + rest, nested + 1)
        name, both, rest = text.partition(" and ")
        if both and _is_public(name) and nested < _MOST_NESTED:
            return name + both + self._hole(rest, nested + 1)
        return self.text(text, rules.NAME if text.isidentifier() else rules.TEXT)

    def _moved(self, found: re.Match[str], nested: int) -> str | None:
        """Return a sentence like ``mm wrote buf3: NaN in 4 of 8 elements``, or None if it is another sentence."""
        subject, verb, name, content = found.groups()
        whole, rest = self.described(f"{name} {content}"), self.described(f"buf0 {content}")
        if whole is None or rest is None:
            return None
        rest = rest.removeprefix("buf0 ")
        return f"{self._hole(subject, nested + 1)} {verb} {whole.removesuffix(f' {rest}')}: {rest}"

    def described(self, text: str) -> str | None:
        """Return a text like ``buf3 NaN in 4 of 8 elements``, with a placeholder for a name of the program, or None."""
        if (both := _PROGRAM_NAME.match(text)) is not None and proofs.name(both[2]):
            rest = self.described(text[both.start(2) :].replace(")", "", 1))
            return None if rest is None else f"{self.text(both[1], rules.NAME)} ({rest.replace(' ', ') ', 1)}"
        name, space, content = text.partition(" ")
        name, bracket, item = name.partition("[")
        content = bracket + item + space + content
        if not proofs.described(content):
            return None
        return self.text(name, rules.NAME) + (content if "values" in self.kept else proofs.without_values(content))

    def _aside(self, text: str, nested: int) -> str:
        line = _LINE.fullmatch(text)
        return f"{self._file(line[1])}:{line[2]}" if line is not None else self._hole(text, nested)

    def _file(self, name: str) -> str:
        """Return the placeholder of a file without its folders: that of the file of this name which was seen first."""
        known = (path for noun, path in self._known if noun == rules.FILE.noun and basename(path) == name)
        return self.text(next(known, name), rules.FILE)

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
