"""Writes docs/findings.md, the rule of each kind of finding from the modules of `viewer/findings`, and an example of it
from the programs in `docs/examples/findings`.

python docs/generate_findings.py          # write it
python docs/generate_findings.py --check  # exit 1 when it is not current
"""

from __future__ import annotations

import ast
import sys
import textwrap
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from stepscope.viewer.findings import MODULES, redaction_of, rule_of_kind

TARGET = Path(__file__).resolve().parent / "findings.md"
EXAMPLES = TARGET.parent / "examples" / "findings"
HEAD = """# Findings

Each line of the verdict is a finding of one of these kinds. A finding has a severity: *critical* is kept for what makes
results wrong or lets the program die, *warning* is for what probably is a fault, and *info* is for what is good to
know. `stepscope summary`, the first page and the report show the rule beside the finding; `stepscope check --fail-on
KIND` fails for a kind ([ci.md](ci.md)).

The example of each kind is a program in [examples/findings](examples/findings), shown with the command that records it
and with the first line of the verdict. The numbers of lines are those of the file, which begins with a docstring. With
`--fixed` as its last argument, each program runs without the problem and has no such finding.

This file is generated from the rules in the code by `docs/generate_findings.py`.
"""
TITLES = {
    "judged": "Judged launches",
    "values": "Values", "memory": "Memory", "crash": "Crashes", "logs": "Logs", "compiles": "Compilation",
    "ranks": "Ranks", "speed": "Speed",
}  # fmt: skip
"""The heading of each folder of `viewer/findings`."""


def text() -> str:
    """Return the document."""
    contents, sections = [], []
    for folder, modules in groupby(sorted(MODULES, key=_order), key=lambda module: module.partition(".")[0]):
        contents.append(f"\n{TITLES[folder]}:\n")
        sections.append(f"## {TITLES[folder]}\n")
        for kind in (module.rpartition(".")[2] for module in modules):
            summary, _ = redaction_of(kind)
            contents.append(f"- [`{kind}`](#{kind}): {summary}.")
            sections.append(f"### `{kind}`\n\n{rule_of_kind(kind)}\n\n{_shown(kind)}\n")
    return "\n".join([HEAD, "## Kinds", *contents, "", *sections])


class Example(NamedTuple):
    """A program with the problem that a kind of finding is about."""

    sentence: str
    """What is wrong in the program."""
    command: str
    """The command that records it in its folder."""
    verdict: str
    """The severity and the title of the finding."""
    code: str
    """The program without its docstring."""


def example_of(kind: str) -> Example:
    """Return the example of a kind. Raises OSError if there is none, and ValueError if its docstring has another form:
    a sentence, an empty line, the command after a dollar sign, and the verdict."""
    source = (EXAMPLES / f"{kind}.py").read_text("utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    sentence, _, session = docstring.partition("\n\n$ ")
    command, _, verdict = session.partition("\n")
    if not verdict:
        raise ValueError(f"{kind}.py has no command and no verdict in its docstring")
    code = source.split('"""', 2)[2].strip()
    sentence, command, verdict = (" ".join(part.split()) for part in (sentence, command, verdict))
    return Example(sentence, command, verdict, code)


def _shown(kind: str) -> str:
    example = example_of(kind)
    session = "\n".join([f"$ {example.command}", *textwrap.wrap(example.verdict, 116, subsequent_indent="    ")])
    blocks = f"```python\n{example.code}\n```\n\n```text\n{session}\n```"
    return f"[Example](examples/findings/{kind}.py): {example.sentence}\n\n{blocks}"


def _order(module: str) -> int:
    return list(TITLES).index(module.partition(".")[0])


def main() -> int:
    if "--check" in sys.argv[1:]:
        return int(TARGET.read_text("utf-8") != text())
    TARGET.write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
