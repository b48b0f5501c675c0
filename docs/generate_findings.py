"""Writes docs/findings.md, the rule of each kind of finding, from the modules of `viewer/findings`.

python docs/generate_findings.py          # write it
python docs/generate_findings.py --check  # exit 1 when it is not current
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from stepscope.viewer.findings import MODULES, rule_of_kind

TARGET = Path(__file__).resolve().parent / "findings.md"
HEAD = """# Findings

Each line of the verdict is a finding of one of these kinds. A finding has a severity: *critical* is kept for what makes
results wrong or lets the program die, *warning* is for what probably is a fault, and *info* is for what is good to
know. `stepscope summary`, the first page and the report show the rule beside the finding; `stepscope check --fail-on
KIND` fails for a kind ([ci.md](ci.md)).

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
    parts = [HEAD]
    for folder, modules in groupby(sorted(MODULES, key=_order), key=lambda module: module.partition(".")[0]):
        parts.append(f"## {TITLES[folder]}\n")
        for kind in (module.rpartition(".")[2] for module in modules):
            parts.append(f"### `{kind}`\n\n{rule_of_kind(kind)}\n")
    return "\n".join(parts)


def _order(module: str) -> int:
    return list(TITLES).index(module.partition(".")[0])


def main() -> int:
    if "--check" in sys.argv[1:]:
        return int(TARGET.read_text("utf-8") != text())
    TARGET.write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
