"""Redacts a report. It does not search for secrets: a text stays only with a proof that no program, file or machine
named it. Every other text becomes a placeholder, the same one everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from stepscope.viewer.findings.crash.launch_deaths import LaunchDeath
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.redaction import findings, proofs, rules
from stepscope.viewer.redaction.placeholders import Placeholders

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
            name = type(value).__name__
            return replace(value, **{f.name: self.redact(getattr(value, f.name), f.name, name) for f in fields(value)})
        if isinstance(value, Mapping):
            return self._mapping(value, key, owner)
        if isinstance(value, list | tuple):
            kept = () if key in rules.DROPPED else value
            return type(value)(self.redact(one, key, owner) for one in kept)
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
            return {name: new[name] if name in new else self.redact(one, name, "") for name, one in value.items()}
        if key == "metrics":
            return {name: one for name, one in value.items() if proofs.metric(name) and isinstance(one, int | float)}
        if (owner, key) == ("LaunchDetail", "config"):
            return {name: one for name, one in value.items() if proofs.block(name)}
        if key in rules.DROPPED:
            return {}
        return {
            self._key(name): self.redact(one, key if isinstance(name, int) else str(name), key)
            for name, one in value.items()
        }

    def _key(self, name: Any) -> Any:
        if not isinstance(name, str) or name.replace(" ", "").isdecimal():
            return name
        return self.sentence(name) or self.text(name, rules.OWN)
