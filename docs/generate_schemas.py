"""Writes JSON schemas (draft 2020-12) from the dataclasses that are written: docs/log.schema.json of stepscope's
records in a log, docs/summary.schema.json of the answer of `stepscope summary --json`, and docs/findings.schema.json of
the answer of `stepscope findings --json`.

python docs/generate_schemas.py          # write them
python docs/generate_schemas.py --check  # exit 1 when one is not current
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
import types
from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from stepscope.tracer.log.run_log import COMPILE_KEYS
from stepscope.tracer.schema.constants import FORMAT_VERSION, OUTPUT_CODE
from stepscope.tracer.schema.record import artifact_name
from stepscope.tracer.schema.records import RECORD_TYPES
from stepscope.viewer.overview.summary_answer import FindingsAnswer, Summary

ROOT = Path(__file__).resolve().parents[1]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
_TYPES: dict[Any, str] = {
    int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null",
}  # fmt: skip


class Definitions:
    """Schemas of dataclasses by name, which refer to one another. `written`: every field is there, also one with a
    default, which older logs may lack."""

    def __init__(self, written: bool) -> None:
        self.found: dict[str, Schema] = {}
        self._written = written

    def of(self, hint: Any) -> Schema:
        origin, arguments = get_origin(hint), get_args(hint)
        if hint is Any:
            return {}
        if origin in (Union, types.UnionType):
            return _either([self.of(argument) for argument in arguments])
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin is list:
            return {"type": "array", "items": self.of(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if is_dataclass(hint):
            return self._reference(hint)
        return {"type": _TYPES[hint]}

    def _reference(self, cls: Any) -> Schema:
        if cls.__name__ not in self.found:
            self.found[cls.__name__] = {}  # a class may hold itself
            self.found[cls.__name__] = self._object(cls)
        return {"$ref": f"#/$defs/{cls.__name__}"}

    def _object(self, cls: Any) -> Schema:
        hints, texts = get_type_hints(cls), descriptions(cls)
        properties, needed = {}, []
        for field in fields(cls):
            schema = self.of(hints[field.name])
            if field.name in texts:
                schema = {**schema, "description": texts[field.name]}
            has_default = field.default is not MISSING or field.default_factory is not MISSING
            if self._written or not has_default:
                needed.append(field.name)
            properties[field.name] = schema
        return _described(cls, {"type": "object", "properties": properties, "required": needed})


def descriptions(cls: Any) -> dict[str, str]:
    """Of fields: the text that follows each in the source."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(node, ast.ClassDef)
    found = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            found[ast.unparse(statement.target)] = _plain(str(following.value.value))
    return found


def log_schema() -> Schema:
    """Of one of stepscope's records: its header, and its payload as JSON."""
    definitions = Definitions(written=False)
    payloads = {artifact_name(kind): definitions.of(kind) for kind in RECORD_TYPES}
    code = f"^{OUTPUT_CODE}[0-9]+$"
    name = {"anyOf": [{"enum": list(payloads)}, {"pattern": code}]}
    ids = {key: {"type": "integer", "minimum": 0} for key in COMPILE_KEYS}
    header = {
        "type": "object",
        "properties": {
            "artifact": {
                "type": "object",
                "properties": {"name": name, "encoding": {"enum": ["json", "string"]}},
                "required": ["name", "encoding"],
            },
            **{key: {**schema, "description": "Of the compile, as PyTorch counts."} for key, schema in ids.items()},
            "has_payload": {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "The payload's md5."},
        },
        "required": ["artifact", "has_payload"],
    }
    rules = [_when({"const": name}, schema) for name, schema in payloads.items()]
    return {
        "$schema": DRAFT,
        "title": f"A record of stepscope in a log of format version {FORMAT_VERSION}",
        "description": "`header` is the JSON of the record's header line, `payload` that of its payload, or its text.",
        "type": "object",
        "properties": {"header": {"$ref": "#/$defs/Header"}, "payload": True},
        "required": ["header", "payload"],
        "allOf": [*rules, _when({"pattern": code}, {"type": "string"})],
        "$defs": {"Header": header, **dict(sorted(definitions.found.items()))},
    }


def answer_schema(answer: type) -> Schema:
    definitions = Definitions(written=True)
    definitions.of(answer)
    whole = definitions.found.pop(answer.__name__)
    (title,) = whole["properties"]["format"]["enum"]
    return {"$schema": DRAFT, "title": title, **whole, "$defs": dict(sorted(definitions.found.items()))}


def _either(schemas: Iterable[Schema]) -> Schema:
    found = list(schemas)
    if all(schema.keys() == {"type"} for schema in found):
        return {"type": [schema["type"] for schema in found]}
    return {"anyOf": found}


def _when(name: Schema, payload: Schema) -> Schema:
    """A rule for records whose artifact has such a name."""
    asked: Schema = {"required": ["artifact"], "properties": {"artifact": {"properties": {"name": name}}}}
    return {"if": {"properties": {"header": asked}}, "then": {"properties": {"payload": payload}}}


def _described(cls: Any, schema: Schema) -> Schema:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(node, ast.ClassDef)
    text = ast.get_docstring(node)  # that which `dataclass` makes says nothing
    return {"description": _plain(text), **schema} if text else schema


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def render() -> dict[Path, str]:
    made = {
        "log.schema.json": log_schema(),
        "summary.schema.json": answer_schema(Summary),
        "findings.schema.json": answer_schema(FindingsAnswer),
    }
    return {ROOT / "docs" / name: json.dumps(schema, indent=1) + "\n" for name, schema in made.items()}


def main() -> int:
    made = render()
    if "--check" in sys.argv[1:]:
        return int(any(not path.exists() or path.read_text("utf-8") != text for path, text in made.items()))
    for path, text in made.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
