"""Lines of model source open in an editor or a repository; nothing else can be made of the template or the names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.source_links import EDITOR, SourceLinks, checked, common_folder
from tests.logs.synthetic import LogBuilder
from tests.logs.unpacking import whole_report
from tests.logs.value_logs import ValueLog, attention
from tests.viewer.client import Client

CASES = Path(__file__).parents[2] / "js" / "core" / "source_link_cases.json"
REPOSITORY = "https://host/repository/blob/main/{path}#L{line}"


@pytest.mark.parametrize(("template", "folder", "file", "line", "href"), json.loads(CASES.read_text("utf-8")))
def test_addresses(template: str, folder: str | None, file: str, line: int, href: str | None) -> None:
    assert SourceLinks(template, folder).href(file, line) == href


@pytest.mark.parametrize(
    "template", [EDITOR, REPOSITORY, "vscode-insiders://file/{path}:{line}", "http://h:8/{path}?l={line}"]
)
def test_templates_that_are_accepted(template: str) -> None:
    assert checked(template) == template


@pytest.mark.parametrize(
    "template",
    [
        "", "https://host/{path}", "https://host/#L{line}", "javascript:alert('{path}{line}')", "{path}:{line}",
        "javascript://host/%0aalert({path}{line})", "data:text/html,{path}{line}", "https://{path}/#{line}",
        "https://host{path}#L{line}", "https://host/{path}#L{line}\" onclick=\"x", "https://host/{path} {line}",
        "https://host/{path}#{line}{column}", "file:///{path}#{line}", "vscode:{path}:{line}",
    ],
)  # fmt: skip
def test_templates_that_are_refused_in_a_sentence(template: str) -> None:
    with pytest.raises(StepscopeError, match=r"^--source-link [^\n]+\.$"):
        checked(template)


def test_the_common_folder_leaves_installed_packages_out() -> None:
    package = "/venv/lib/python3.11/site-packages/torch/nn/functional.py"
    assert common_folder(["/me/repo/src/a.py", "/me/repo/src/b/c.py", package, "<string>", None]) == "/me/repo/src/"
    assert common_folder(["/me/a.py"]) == "/me/"
    assert common_folder([package]) is None


@pytest.mark.slow
def test_pages_and_reports_link_lines(opened: Callable[[LogBuilder], Trace]) -> None:
    program = attention()
    log = ValueLog(program)
    log.call(program)
    trace = opened(log.end())
    assert 'href="vscode://file/src/model.py:11"' in Client(trace).get("/graphs/0").text
    assert "vscode:" not in whole_report(trace)
    report = whole_report(trace, source_link=REPOSITORY)
    assert 'href="https://host/repository/blob/main/model.py#L11"' in report
    assert "https://host" not in whole_report(trace, source_link=REPOSITORY, redact=True)
