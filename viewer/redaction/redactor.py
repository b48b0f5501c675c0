"""What a report shows to strangers. Nothing is looked for and taken out: a text stands there only with a proof that no
program, file or machine has named it, and every other text becomes a placeholder, the same one wherever it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from stepscope.viewer.findings.crash.launch_deaths import LaunchDeath
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.redaction import findings, own_words, proofs, rules
from stepscope.viewer.redaction.proofs import words
from stepscope.viewer.redaction.rules import Rule
from stepscope.viewer.web.addresses import slug, unslug

T = TypeVar("T")

_ENDING = re.compile(r"\.(?:py|cpp|cu|log|pt|ipynb|gz|zst|txt|so)(?::\d{1,7})?$")
_FINDING = frozenset({"kind", "severity", "title", "rule", "evidence", "page"})
_DEATHS = {
    "died": "The process died at this launch",
    "in_flight": "The device had not finished this launch when the process died",
    "last_finished": "This is the last launch that the device had finished when the process died",
}
_PAGES = words(
    "steps graphs memory kernels values compile compile-time caches graph-breaks recompiles problems "
    "records ranks difference recompute buffers curves metrics cuda-graphs vllm draft-export "
    "provenance"
)
_NAMED = {"kernels": rules.KERNEL, "buffers": rules.NAME, "compile": rules.COMPILE_ID}
"""Parts of addresses behind which a name stands."""
_NUMBERS = words("log launch call site step record argument item rank snode left right")
_MOST_NESTED = 4
_LONGEST_SENTENCE = 2000
_IN_SENTENCES = (proofs.number, proofs.kernel, proofs.name, proofs.graph_label, proofs.symptom)


def _ending(path: str) -> str:
    """``.py``; with the line, where one is behind it."""
    found = _ENDING.search(path)
    return found[0] if found else ""


def _is_plain(name: str, text: str) -> bool:
    """Of what stands behind the ? of an address."""
    return (name in _NUMBERS and text.isdecimal()) or (name == "aspect" and text in own_words.texts())


def _is_public(text: str) -> bool:
    return any(holds(text) for holds in _IN_SENTENCES)


class Redactor:
    """Placeholders of one report."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def redact(self, value: T, key: str = "", owner: str = "") -> T:
        """A copy of rows, lists or JSON with what may be shown; `key` is the name of the field in `owner`."""
        return self._redact(value, key, owner)  # type: ignore[no-any-return]

    def _redact(self, value: Any, key: str, owner: str) -> Any:
        if isinstance(value, Finding):
            parts = {field.name: getattr(value, field.name) for field in fields(value)}
            return replace(
                value, **findings.redacted(self, parts), source=self._redact(value.source, "source", "Finding")
            )
        if isinstance(value, LaunchDeath):
            return LaunchDeath(self.text(value.part, rules.OWN), _DEATHS.get(value.part, ""), [])  # type: ignore[arg-type]
        if is_dataclass(value) and not isinstance(value, type):
            name = type(value).__name__
            return replace(value, **{f.name: self._redact(getattr(value, f.name), f.name, name) for f in fields(value)})
        if isinstance(value, Mapping):
            return self._mapping(value, key, owner)
        if isinstance(value, list | tuple):
            return (
                type(value)() if key in rules.DROPPED else type(value)(self._redact(one, key, owner) for one in value)
            )
        if isinstance(value, str):
            return self._text(value, key, owner)
        return value

    def _text(self, text: str, key: str, owner: str) -> Any:
        if (owner, key) == ("SourceLine", "code") or (owner, key) == ("Problem", "text"):
            return ""
        if key in rules.DROPPED:
            return rules.DROPPED[key]
        if key == "page":
            return self.address(text)
        rule = rules.RULES_OF.get((owner, key)) or rules.RULES.get(key, rules.TEXT)
        if rule is rules.SENTENCE:
            return self.sentence(text) or self.text(text, rule)
        return self.text(text, rule)

    def _mapping(self, value: Mapping[Any, Any], key: str, owner: str) -> dict[Any, Any]:
        if value.keys() >= _FINDING:
            new = findings.redacted(self, value)
            return {name: new[name] if name in new else self._redact(one, name, "") for name, one in value.items()}
        if key == "metrics":
            return {name: one for name, one in value.items() if proofs.metric(name) and isinstance(one, int | float)}
        if (owner, key) == ("LaunchDetail", "config"):
            return {name: one for name, one in value.items() if proofs.block(name)}
        if key in rules.DROPPED:
            return {}
        return {
            self._key(name): self._redact(one, key if isinstance(name, int) else str(name), key)
            for name, one in value.items()
        }

    def _key(self, name: Any) -> Any:
        if not isinstance(name, str) or name.replace(" ", "").isdecimal():
            return name
        return self.sentence(name) or self.text(name, rules.OWN)

    def optional(self, text: str | None, rule: Rule) -> str | None:
        return None if text is None else self.text(text, rule)

    def text(self, text: str, rule: Rule) -> str:
        """The text, or its placeholder."""
        if not text or any(holds(text) for holds in rule.proofs):
            return text
        place = (rule.noun, text)
        if place not in self._known:
            self._counts[rule.noun] = number = self._counts.get(rule.noun, 0) + 1
            self._known[place] = f"{rule.noun}_{number}" + (_ending(text) if rule is rules.FILE else "")
        return self._known[place]

    def sentence(self, text: str, nested: int = 0) -> str | None:
        """One of stepscope's own sentences, with placeholders for what is not public in it; None: it is none."""
        if text in own_words.texts():
            return text
        for parts in own_words.sentences() if len(text) <= _LONGEST_SENTENCE else ():
            holes = own_words.fill(parts, text)
            if holes is None:
                continue
            is_sure = own_words.letters(parts) >= own_words.FEWEST_LETTERS
            if is_sure or all(_is_public(hole) or hole in own_words.texts() for hole in holes):
                shown = iter([self._hole(hole, nested + 1) for hole in holes])
                return "".join(next(shown) if part is None else part for part in parts)
        return None

    def _hole(self, text: str, nested: int) -> str:
        if not text or _is_public(text):
            return text
        said = self.sentence(text, nested) if nested < _MOST_NESTED else None
        if said is not None:
            return said
        name, comma, rest = text.partition(", ")
        if comma and _is_public(name) and nested < _MOST_NESTED:
            return name + self._hole(comma + rest, nested + 1)
        return self.text(text, rules.NAME if text.isidentifier() else rules.TEXT)

    def address(self, page: str) -> str:
        """An address with the names in it as they stand elsewhere; one that is not known leads to the first page."""
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
