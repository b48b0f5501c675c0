"""Generated documentation is current."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from stepscope.tracer.schema import records

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", ["generate_format.py", "generate_schemas.py"])
def test_what_is_generated_is_current(name: str) -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs" / name), "--check"], check=False)
    assert done.returncode == 0, f"what it makes is not current: run `python docs/{name}`"


def test_the_format_description_says_what_names_of_types_mean() -> None:
    text = (ROOT / "docs" / "format.md").read_text("utf-8")
    named = [name for name in vars(records) if get_origin(vars(records)[name]) is Literal]
    assert {"Held", "MismatchKind", "Role"} <= {*named}
    assert not re.findall(rf"\| `[^`]*\b(?:{'|'.join(named)})\b", text)
    assert "`stepscope_output_code_N`" in text
    for event in get_args(records.MemoryEvent):
        assert f"`{event}`:" in text, "a statement's event is explained"
