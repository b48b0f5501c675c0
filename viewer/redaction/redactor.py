"""Redacts a report. It does not search for secrets: a text stays only with a proof that no program, file or machine
named it. Every other text becomes a placeholder, the same one everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from stepscope.tracer.schema.statistics import Statistics
from stepscope.viewer.findings.crash.launch_deaths import LaunchDeath
from stepscope.viewer.judged.rows import JudgedBufferRow
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.redaction import findings, proofs, rules
from stepscope.viewer.redaction.placeholders import Placeholders
from stepscope.viewer.values.rows import MagnitudeMap, Spread, ValueCurve

_FINDING = frozenset({"kind", "severity", "title", "rule", "evidence", "page"})
_DEATHS = {
    "died": "The process died at this launch",
    "in_flight": "The device had not finished this launch when the process died",
    "last_finished": "This is the last launch that the device had finished when the process died",
}


class Redactor(Placeholders):
    """Copies the rows of one report without what may not be shown."""

    def redact(self, value: Any, key: str = "", owner: str = "") -> Any:
        """Return a redacted copy of rows, lists or JSON; `key` is the name of the field in `owner`."""
        if isinstance(value, Finding):
            parts = {field.name: getattr(value, field.name) for field in fields(value)}
            source = self.redact(value.source, "source", "Finding")
            return replace(value, **findings.redacted(self, parts), source=source)
        if isinstance(value, LaunchDeath):
            return LaunchDeath(self.text(value.part, rules.OWN), _DEATHS.get(value.part, ""), [])  # type: ignore[arg-type]
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **self._fields(value))
        if isinstance(value, Mapping):
            return self._mapping(value, key, owner)
        if isinstance(value, list | tuple):
            if (gone := self._dropped(key, value)) is not None:
                return gone[0]
            return type(value)(self.redact(one, key, owner) for one in value)
        if isinstance(value, str):
            return self._text(value, key, owner)
        return value

    def _fields(self, row: Any) -> dict[str, Any]:
        name, found = type(row).__name__, {f.name: getattr(row, f.name) for f in fields(row)}
        if "values" in self.kept:
            return {key: self.redact(one, key, name) for key, one in found.items()}
        if isinstance(row, Statistics):
            found |= dict.fromkeys(rules.VALUES)
        elif isinstance(row, JudgedBufferRow):
            found |= dict.fromkeys(rules.ELEMENTS)
        elif isinstance(row, ValueCurve):
            numbers = rules.VALUES.intersection(row.columns)
            found["columns"] = row.columns | {key: [None] * len(row.launch) for key in numbers}
        elif isinstance(row, MagnitudeMap):
            found["numbers"] = [[None] * len(row.steps) for _ in row.rows]
        elif isinstance(row, Spread) and row.name in rules.VALUES:
            found |= {"low": None, "high": None}
        return {key: self.redact(one, key, name) for key, one in found.items()}

    def _dropped(self, key: str, value: Any) -> tuple[Any] | None:
        """Return the replacement of a field without a public part, or None if it may be looked at."""
        replacement, kind = rules.DROPPED.get(key, (None, None))
        if kind is None or kind in self.kept:
            return None
        for own_kind, text in _texts(value, kind):
            self.remove(own_kind, text)
        empty = type(value)() if isinstance(value, list | tuple | dict) else replacement
        return (empty,)

    def _text(self, text: str, key: str, owner: str) -> Any:
        rule = rules.RULES_OF.get((owner, key))
        if rule in rules.EMPTIED and rule is not None and rule.kind not in self.kept:
            self.remove(rule.kind, text)
            return ""
        if rule is None and (gone := self._dropped(key, text)) is not None:
            return gone[0]
        if key == "page":
            return self.address(text)
        rule = (
            rule
            or rules.RULES.get(key)
            or (rules.RULES.get(owner, rules.TEXT) if owner in rules.DROPPED else rules.TEXT)
        )
        if rule is rules.SENTENCE:
            return self.sentence(text) or self.text(text, rule)
        return self.text(text, rule)

    def _mapping(self, value: Mapping[Any, Any], key: str, owner: str) -> dict[Any, Any]:
        if value.keys() >= _FINDING:
            new = findings.redacted(self, value)
            return {name: new[name] if name in new else self.redact(one, name, "") for name, one in value.items()}
        if key == "metrics":
            return {name: one for name, one in value.items() if proofs.metric(name) and isinstance(one, int | float)}
        if (owner, key) == ("LaunchDetail", "config"):
            return {name: one for name, one in value.items() if proofs.block(name)}
        if key == "packages":
            return {name: self.text(one, rules.VERSION) for name, one in value.items() if proofs.package(name)}
        if (gone := self._dropped(key, value)) is not None:
            return dict(gone[0])
        return {
            self._key(name, key): self.redact(one, key if isinstance(name, int) else str(name), key)
            for name, one in value.items()
        }

    def _key(self, name: Any, owner: str) -> Any:
        if owner in rules.DROPPED and isinstance(name, str):
            return self.text(name, rules.RULES.get(owner, rules.TEXT))
        if not isinstance(name, str) or name.replace(" ", "").isdecimal():
            return name
        return self.sentence(name) or self.text(name, rules.OWN)


_KIND_OF_FIELD = {"file": "paths", "function": "names"}


def _texts(value: Any, kind: str) -> Iterator[tuple[str, str]]:
    """Yield every text in rows, lists and mappings with its kind, which is `kind` unless its field says another."""
    if isinstance(value, str):
        if value:
            yield kind, value
    elif isinstance(value, Mapping):
        yield from _texts([*value, *value.values()], kind)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one, kind)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _texts(getattr(value, field.name), _KIND_OF_FIELD.get(field.name, kind))
