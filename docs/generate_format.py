"""Writes docs/format.md, the description of the log's records, from the modules in tracer/schema.

python docs/generate_format.py          # write it
python docs/generate_format.py --check  # exit 1 when it is not current
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "tracer" / "schema"
RECORDS, CONSTANTS = SCHEMA / "records.py", SCHEMA / "constants.py"
PARTS = {
    "Graphs": SCHEMA / "graphs.py",
    "Launches": SCHEMA / "launches.py",
    "Choices of the autotuner": SCHEMA / "tuning.py",
    "Steps": SCHEMA / "steps.py",
    "Parameters of optimizers": SCHEMA / "parameters.py",
    "Weights that are saved and loaded": SCHEMA / "states.py",
    "Losses outside of compiled code": SCHEMA / "losses.py",
    "What each step repeats": SCHEMA / "repeats.py",
    "Profiled operators": SCHEMA / "profiles.py",
    "Arguments that are no tensors": SCHEMA / "scalars.py",
    "Values": SCHEMA / "values.py",
    "Statistics": SCHEMA / "statistics.py",
    "Judged launches": SCHEMA / "judging.py",
    "Memory": SCHEMA / "memory.py",
    "Comparisons between layers of a compile": SCHEMA / "layer_checks.py",
    "What failed or could not be recorded": SCHEMA / "gaps.py",
    "Exceptions of compiled code": SCHEMA / "raised_calls.py",
    "How a process ended": SCHEMA / "process_ends.py",
}
TARGET = ROOT / "docs" / "format.md"

INTRODUCTION = """# The log

<!-- Made from the modules of records in tracer/ by docs/generate_format.py; do not edit. -->

A stepscope log is a text file in the line grammar of TORCH_TRACE, so every reader of such logs opens it:

```
record   = prefix SP header LF {{ TAB payload-line LF }}
prefix   = level MMDD SP HH:MM:SS.uuuuuu SP pid SP path ":" line "]"
```

The header is one JSON object. `has_payload` in it is the md5 of the payload, which follows with one tab
before each of its lines. A log holds the records that torch itself wrote, unchanged in content, and
stepscope's own as `{{"artifact": {{"name": "stepscope_KIND", "encoding": "json"}}}}` with the
JSON payloads below. This is `FORMAT_VERSION` {version}; `log.schema.json` says the same as a JSON schema.
A header of ours names the compile that its record is about as torch's headers do (`frame_id`, `frame_compile_id`,
`attempt`, `compiled_autograd_id`), where it is about one.

{rules}
"""


def literals(tree: ast.Module) -> dict[str, str]:
    """Names of the module's `Literal` aliases and their values."""
    found: dict[str, str] = {}
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Subscript)
            and isinstance(node.value.value, ast.Name)
            and node.value.value.id == "Literal"
            and isinstance(node.targets[0], ast.Name)
        ):
            found[node.targets[0].id] = ast.unparse(node.value)
    return found


def constant(tree: ast.Module, name: str) -> object:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise LookupError(name)


def described(tree: ast.Module, name: str) -> str:
    """The text that follows the constant `name`."""
    for node, following in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and isinstance(following, ast.Expr):
            return prose(str(ast.literal_eval(following.value)))
    raise LookupError(name)


def type_text(annotation: ast.expr, aliases: dict[str, str]) -> str:
    text = re.sub(r"\b\w+\b", lambda match: aliases.get(match[0], match[0]), ast.unparse(annotation))
    text = re.sub(r"Literal\[([^]]*)\]", lambda match: match[1].replace(", ", " | "), text)
    return f"`{text}`".replace("|", "\\|")


def prose(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def fields(node: ast.ClassDef, aliases: dict[str, str]) -> list[tuple[str, str, str]]:
    """(name, type, description) of each field; its description is the string that follows it."""
    rows: list[tuple[str, str, str]] = []
    for statement, following in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if ast.unparse(statement.annotation).startswith("ClassVar"):
            continue
        text = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = prose(str(following.value.value))
        rows.append((statement.target.id, type_text(statement.annotation, aliases), text))
    return rows


def kind(node: ast.ClassDef) -> str | None:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "KIND" and statement.value:
            return str(ast.literal_eval(statement.value))
    return None


def section(node: ast.ClassDef, aliases: dict[str, str]) -> str:
    name = kind(node)
    title = f"`stepscope_{name}`" if name else f"{node.name}, part of other records"
    lines = [
        f"## {title}",
        "",
        prose(ast.get_docstring(node) or ""),
        "",
        "| field | type | |",
        "|---|---|---|",
    ]
    lines += [f"| `{field}` | {text} | {description} |" for field, text, description in fields(node, aliases)]
    return "\n".join(lines) + "\n"


def sections(tree: ast.Module, aliases: dict[str, str], written: set[str]) -> list[str]:
    return [section(node, aliases) for node in tree.body if isinstance(node, ast.ClassDef) and node.name in written]


def written_classes(trees: Iterable[ast.Module]) -> set[str]:
    """The records, and the classes that their fields name, directly or not."""
    classes = {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    waiting = [node for node in classes.values() if kind(node) is not None]
    found: set[str] = set()
    while waiting:
        node = waiting.pop()
        found.add(node.name)
        named = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} & classes.keys()
        waiting += [classes[name] for name in named - found]
    return found


def rules(tree: ast.Module) -> str:
    return (ast.get_docstring(tree) or "").split("\n\n", 1)[-1].replace("``", "`")


def render() -> str:
    tree, constants = ast.parse(RECORDS.read_text("utf-8")), ast.parse(CONSTANTS.read_text("utf-8"))
    parts = {title: ast.parse(path.read_text("utf-8")) for title, path in PARTS.items()}
    aliases = {name: text for module in (tree, *parts.values()) for name, text in literals(module).items()}
    written = written_classes((tree, *parts.values()))
    introduction = INTRODUCTION.format(version=constant(constants, "FORMAT_VERSION"), rules=rules(tree))
    text = [introduction, *sections(tree, aliases, written)]
    for title, part in parts.items():
        text += [f"# {title}\n\n{rules(part)}\n", *sections(part, aliases, written)]
    text.append(f"# Generated code\n\n## `stepscope_output_code_N`\n\n{described(constants, 'OUTPUT_CODE')}\n")
    return "\n".join(text)


def main() -> int:
    text = render()
    if "--check" in sys.argv[1:]:
        return int(not TARGET.exists() or TARGET.read_text("utf-8") != text)
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
