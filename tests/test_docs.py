"""Tests that the documentation is current: generated files, options and variables, links and pictures."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Literal, get_args, get_origin

import click
import pytest

from stepscope.tracer.config import VARIABLES
from stepscope.tracer.schema import graphs, launches, memory, records, ring_format, steps, values
from stepscope.viewer.cli import COMMANDS, app

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT.joinpath("docs", "reference.md").read_text("utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LARGEST_PICTURE = 120_000
OF_THE_VIEWER = "STEPSCOPE_INDEX_BYTES"


def section(title: str) -> str:
    """Return the text of the reference below a heading."""
    found: list[str] = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", REFERENCE, re.DOTALL | re.MULTILINE)
    assert len(found) == 1
    return found[0]


def in_first_column(text: str, pattern: str) -> list[str]:
    """Return the matches in the first column of a table."""
    cells = re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(pattern, cell)]


@pytest.mark.parametrize("name", ["generate_findings.py", "generate_format.py", "generate_schemas.py"])
def test_what_is_generated_is_current(name: str) -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs" / name), "--check"], check=False)
    assert done.returncode == 0, f"what it makes is not current: run `python docs/{name}`"


def test_the_format_description_says_what_names_of_types_mean() -> None:
    text = (ROOT / "docs" / "format.md").read_text("utf-8")
    modules = (graphs, launches, memory, records, ring_format, steps, values)
    named = [name for module in modules for name, value in vars(module).items() if get_origin(value) is Literal]
    assert {"Held", "MismatchKind", "Role"} <= {*named}
    assert not re.findall(rf"\| `[^`]*\b(?:{'|'.join(named)})\b", text)
    assert "`stepscope_output_code_N`" in text
    for event in get_args(graphs.MemoryEvent):
        assert f"`{event}`:" in text, "a statement's event is explained"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reference_lists_every_option_of_a_command(name: str) -> None:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    options = [option for option in command.params if isinstance(option, click.Option)]
    accepted = {spelling for option in options for spelling in [*option.opts, *option.secondary_opts]}
    listed = in_first_column(section(f"`stepscope {name}`"), r"`(-[\w-]+)`")
    assert sorted(listed) == sorted(accepted)


def test_the_reference_lists_every_variable() -> None:
    listed = in_first_column(section("Variables"), r"`(STEPSCOPE_\w+)`")
    assert sorted(listed) == sorted([*VARIABLES.values(), OF_THE_VIEWER])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_pictures_of_a_page_are_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL))
    targets = [link.partition("#")[0] for link in links if not re.match(r"https?://|#", link)]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"`((?:tracer|viewer|templates|static|tests|docs)/[\w./]+\.\w+)`", page.read_text("utf-8"))
    assert page.name == "CHANGELOG.md" or [name for name in named if not (ROOT / name).is_file()] == []


def test_pictures_are_small_and_each_is_shown() -> None:
    texts = "\n".join(page.read_text("utf-8") for page in PAGES)
    pictures = [*ROOT.glob("docs/pictures/*")]
    assert [picture.name for picture in pictures if picture.stat().st_size > LARGEST_PICTURE] == []
    assert [picture.name for picture in pictures if f"pictures/{picture.name})" not in texts] == []
