"""docs/pytorch_helpers.md is whole: each row has a proof that is there, and each helper of this torch has a row."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache

import pytest
from click import Context
from click.testing import CliRunner

from stepscope.tracer.aoti.printer_output import FIELDS
from stepscope.viewer.cli import app
from tests.pytorch_helpers import table
from tests.pytorch_helpers.table import (
    HEAD,
    PAGE,
    ROOT,
    Row,
    definitions,
    named_in,
    rows,
    sections,
    settings,
    texts,
    variables,
)

RUNTIME = "torch/_inductor/runtime/debug_utils.py"
PRINTER = "torch/_inductor/codegen/debug_utils.py"
RECOMPUTE = "torch/_inductor/comms_debug.py"
UTILS = "torch/_inductor/utils.py"
GUIDE = "The AOTInductor debugging guide"
SETTINGS = "Settings that turn checks on"
BESIDES = "What else torch/_inductor/utils.py holds"
OF_CHECKS = r"debug|assert|track_memory|check_lower|filtered_kernel|provenance_tracking|save_real|save_args"
"""Names of settings that make PyTorch check, print or save something for whoever debugs."""
OF_PACKAGES = r"AOTI?_?(?:INDUCTOR)?_"

# A name of torch that is in every module and no helper.
COMMON = {"log"}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.helper)
def test_a_row_is_whole_and_proven(row: Row) -> None:
    assert row.names, "the first column names nothing"
    assert row.does.endswith(".")
    assert row.here.endswith(".")
    assert row.tests, "no test is named"
    assert not TEST_LIKE.sub("", row.proof).strip(", "), "the last column holds more than tests"
    for file, test in row.tests:
        assert test in functions_of(file), f"{file} has no {test}"
    assert any(not file.startswith("tests/gpu/") for file, _ in row.tests), "every proof needs a GPU"


TEST_LIKE = re.compile(r"`tests/[\w/]+\.py::\w+`")


@cache
def functions_of(file: str) -> set[str]:
    path = ROOT / file
    assert path.exists(), file
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_table_has_the_same_head() -> None:
    for title, text in sections().items():
        heads = [line for line in text.splitlines() if line.startswith("| helper")]
        assert len(heads) == (title != BESIDES), title
        assert all([cell.strip() for cell in head.strip("|").split("|")] == HEAD for head in heads)


@pytest.mark.parametrize("module", [RUNTIME, PRINTER, RECOMPUTE])
def test_every_definition_of_a_module_has_a_row(module: str) -> None:
    """Private ones too: these modules hold nothing but helpers."""
    assert named_in(module) >= definitions(module, private=True) - COMMON


def test_no_row_is_of_a_helper_that_is_gone() -> None:
    for module in (RUNTIME, PRINTER, RECOMPUTE, UTILS):
        own = {name for name in named_in(module) if re.fullmatch(r"[A-Za-z_]+(\.[A-Za-z_]+)?", name)}
        there = definitions(module, private=True) | {label for text in texts(module) for label in LABEL.findall(text)}
        assert own - there - OF_OTHERS - {field.decode() for field in FIELDS} == set(), module


LABEL = re.compile(r"[A-Z][A-Za-z_ ]+(?=: ?)|[A-Z_]{5,}|[A-Z ]{12,}")
OF_OTHERS = {
    "aoti_torch_print_tensor_handle", "aoti_torch_save_tensor_handle", "aoti_model_inputs", "debug_str",
    "max_numel_to_print",
}  # fmt: skip
"""Functions that these modules call, C++ ones too, and a variable in one of their functions."""


def test_every_message_of_the_memory_tracker_has_a_row() -> None:
    said = {text.removesuffix(": ") for text in texts(RUNTIME) if text.endswith(": ")}
    assert len(said) == 4
    assert named_in(RUNTIME) >= said


def test_every_figure_of_the_value_printer_has_a_row() -> None:
    said = {text.removesuffix(": ") for text in texts(PRINTER) if re.fullmatch(r"[A-Z][a-z ]+: ", text)}
    assert said >= {"Number of elements", "Std"}
    assert named_in(PRINTER) >= said
    assert named_in(PRINTER) >= {field.decode() for field in FIELDS}, "what C++ code prints"


def test_every_figure_of_the_recompute_check_has_a_row() -> None:
    said = {label for text in texts(RECOMPUTE) for label in re.findall(r"[A-Z_]{5,}|[A-Z]+(?: [A-Z]+){3,}", text)}
    assert said >= {"CANDIDATE", "NEW_PEAK"}
    rest = " ".join(named_in(RECOMPUTE))
    assert [label for label in said if label not in rest] == []


def test_every_definition_of_the_utilities_is_named_once() -> None:
    """In a row, or among what is no helper for debugging."""
    helpers, rest = named_in(UTILS), re.findall(r"`([^`]+)`", sections()[BESIDES])
    public = definitions(UTILS, private=False, members=False)
    assert sorted(public - helpers - set(rest)) == []
    assert sorted(set(rest) - public) == []
    assert len(rest) == len(set(rest))
    assert sorted(helpers & set(rest)) == []


def test_every_setting_of_a_check_has_a_row() -> None:
    found = settings("torch/_inductor/config.py", OF_CHECKS)
    found |= {f"config_comms.{k}": v for k, v in settings("torch/_inductor/config_comms.py", OF_CHECKS).items()}
    named = named_in(SETTINGS) | named_in(GUIDE)
    assert len(found) > 30
    assert sorted(found.keys() - named) == []
    assert sorted({variable for variables in found.values() for variable in variables} - named) == []


def test_every_variable_of_a_package_or_a_check_has_a_row() -> None:
    read = variables("torch/_inductor", f"^{OF_PACKAGES}|DEBUG|DUMP|ASSERTS")
    assert read >= {"AOTI_RUNTIME_CHECK_INPUTS", "AOT_INDUCTOR_DEBUG_COMPILE", "TORCHINDUCTOR_DUMP_LAUNCH_PARAMS"}
    assert sorted(read - named_in(GUIDE) - named_in(SETTINGS)) == []


def test_every_command_and_option_that_is_named_is_there() -> None:
    text = PAGE.read_text("utf-8")
    for name in set(re.findall(r"`stepscope (\w[\w-]*)", text)):
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0, name
    helps = "".join(_help(name) for name in app.list_commands(Context(app)))
    options = {option for row in rows() for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", row.here)}
    assert sorted(option for option in options if option not in helps and option not in OF_SCRIPTS) == []


OF_SCRIPTS = {"--bench"}
"""Of what `stepscope repro` writes."""


def _help(command: str) -> str:
    return CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output


@pytest.mark.parametrize(
    ("module", "added", "check"),
    [
        (RUNTIME, "def track_more(): pass", lambda: test_every_definition_of_a_module_has_a_row(RUNTIME)),
        (RUNTIME, "log.info('Expected a fifth thing: ')", test_every_message_of_the_memory_tracker_has_a_row),
        (PRINTER, "print('Median: ', 0)", test_every_figure_of_the_value_printer_has_a_row),
        (RECOMPUTE, "print('NEW_FIGURE:')", test_every_figure_of_the_recompute_check_has_a_row),
        (UTILS, "def dump_more(): pass", test_every_definition_of_the_utilities_is_named_once),
        ("torch/_inductor/config.py", "class cuda:\n    debug_more = False", test_every_setting_of_a_check_has_a_row),
    ],
)
def test_what_a_new_torch_adds_is_noticed(
    monkeypatch: pytest.MonkeyPatch, module: str, added: str, check: Callable[[], None]
) -> None:
    changed = {module: ast.parse(f"{ast.unparse(table.source(module))}\n{added}\n")}
    before = table.source
    check()
    monkeypatch.setattr(table, "source", lambda name: changed.get(name) or before(name))
    with pytest.raises(AssertionError):
        check()
