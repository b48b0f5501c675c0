"""Tests the page of a comparison: the sides that an address names, its sentences, and the links that lead to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.compare.compare import compare, wanted
from stepscope.viewer.compare.html import render_html
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.report.markdown import render_markdown
from stepscope.viewer.report.ticket import gather
from stepscope.viewer.report.write import render_ticket
from stepscope.viewer.store.open import open_trace
from tests.logs.synthetic import recorded
from tests.logs.value_logs import Stat
from tests.viewer.client import Client
from tests.viewer.compare.test_compare import OTHER, attention_log, code

pytestmark = pytest.mark.slow


STEPS = "/compare?left=0&left_step={}&right=0&right_step={}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return two logs: the last step of the first has other values in buf1, and the code of the second differs."""
    folder = tmp_path_factory.mktemp("runs")
    attention_log(3, code(), buf1=OTHER, buf2=Stat(mean=0.5)).write(folder / "a.log")
    attention_log(3, code(2.5), buf0=OTHER).write(folder / "b.log")
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with open_trace(folder) as trace:
        yield Client(trace)


def data(client: Client, address: str) -> Any:
    answer = client.get(address.replace("/compare", "/compare.json", 1))
    assert answer.status_code == 200, answer.text
    return answer.json()


def shown(page: str) -> str:
    """Return the text of a page without its tags and its frame."""
    main = re.search(r"<main.*?</main>", page, re.DOTALL)
    assert main is not None
    return " ".join(unescape(re.sub(r"<[^<>]+>", " ", main[0])).split())


def test_two_steps_are_compared_as_the_command_does(client: Client, folder: Path) -> None:
    found = data(client, STEPS.format(1, 2))["found"]
    log = str(folder / "a.log")
    command = compare(wanted(f"{log}#step=1"), wanted(f"{log}#step=2"))
    assert (found["verdict"], found["sentence"]) == (command.verdict, command.sentence)
    assert found["launches"][0]["outputs"][0]["left"]["mean"] == command.launches[0].outputs[0].left.mean
    page, file = client.get(STEPS.format(1, 2)).text, render_html(command)
    heads = [re.findall(r"<h[23]>(.*?)</h[23]>", text, re.DOTALL) for text in (page, file)]
    titles = [[" ".join(re.sub(r"<[^<>]+>", "", head).split()) for head in one if "Keys" not in head] for one in heads]
    assert titles[0] == titles[1]
    assert titles[0][0] == "Launches whose outputs differ first"
    assert command.sentence in shown(page)
    assert 'href="/launches/7"' in page
    assert "<a " not in file


def test_without_sides_the_first_two_logs_are_compared(client: Client) -> None:
    found = data(client, "/compare")
    assert (found["left"], found["right"]) == ({"log": 0, "step": None}, {"log": 1, "step": None})
    assert found["found"]["verdict"] == "launch"
    assert found["found"]["kernels"][0]["kernel"] == "cpp_fused__softmax_0"
    assert (found["found"]["left"]["log"], found["found"]["left"]["trace"]) == (0, ["a.log"])
    assert client.get("/compare").text.count("* 2.5; }") == 1


def test_the_last_two_steps_of_the_only_log_are_compared(tmp_path: Path) -> None:
    with open_trace(attention_log(4).write(tmp_path / "a.log")) as trace:
        found = data(Client(trace), "/compare")
    assert (found["left"]["step"], found["right"]["step"], found["before"], found["after"]) == (2, 3, [1, 2], None)
    assert found["found"]["verdict"] == "no difference"


def test_one_step_alone_shows_how_to_record_two_runs(tmp_path: Path) -> None:
    with open_trace(attention_log(1).write(tmp_path / "a.log")) as trace:
        page = Client(trace).get("/compare")
    assert page.status_code == 200
    assert "Both sides are the same: choose two steps, or two logs." in page.text
    assert "stepscope run -o runs --level values" in page.text


def test_logs_of_unrelated_programs_leave_the_choice_open(tmp_path: Path) -> None:
    attention_log().write(tmp_path / "a.log")
    recorded().write(tmp_path / "b.log")
    with open_trace(tmp_path) as trace:
        page = Client(trace).get("/compare")
    assert page.status_code == 200
    assert "a.log and b.log have no graph in common, so there is nothing to compare" in shown(page.text)
    assert 'name="right_step"' in page.text


def test_logs_without_values_say_what_records_them(tmp_path: Path) -> None:
    with open_trace(recorded(3).write(tmp_path / "a.log")) as trace:
        page = shown(Client(trace).get(STEPS.format(1, 2)).text)
    assert "Neither side has values, so results were not compared" in page
    assert "To record them, run stepscope run --level values" in page


@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        ("left=7", 404, "This trace contains no log 7."),
        ("left_step=x&right_step=1", 404, "“x” is not a number: left_step must be one."),
        ("left=-1", 404, "This address needs a left number."),
        ("left_step=1", 404, "give a step for both sides, or for neither."),
        ("left_step=1&right_step=99", 404, "Log 0 of this trace contains no step 99."),
        ("tolerance=nan", 404, "“nan” is not a tolerance: it must be a number that is not negative, such as 1e-5."),
        ("tolerance=-1", 404, "“-1” is not a tolerance"),
        ("tolerance=<b>", 404, "“<b>” is not a tolerance"),
    ],
)
def test_bad_parameters_are_one_sentence(client: Client, query: str, status: int, sentence: str) -> None:
    answer = client.get(f"/compare?{query}")
    assert answer.status_code == status
    assert sentence in shown(answer.text)
    assert "<b>" not in answer.text


def test_the_tolerance_of_the_address_decides(client: Client) -> None:
    assert data(client, f"{STEPS.format(1, 2)}&tolerance=2")["found"]["verdict"] == "no difference"
    assert data(client, f"{STEPS.format(1, 2)}&tolerance=0.01")["found"]["verdict"] == "launch"


def test_the_pages_of_a_trace_lead_to_comparisons(client: Client) -> None:
    links = {
        address: [unescape(link) for link in re.findall(r'href="(/compare[^"]*)"', client.get(address).text)]
        for address in ("/", "/steps/0?log=0", "/steps/2?log=0", STEPS.format(1, 2))
    }
    assert links["/"].count("/compare") == 2  # the navigation, and the table of runs
    assert STEPS.format(0, 1) in links["/steps/0?log=0"]
    assert STEPS.format(1, 2) in links["/steps/2?log=0"]
    assert STEPS.format(0, 1) in links[STEPS.format(1, 2)], "the key < leads to the steps before"
    assert STEPS.format(2, 1) in links[STEPS.format(1, 2)], "both sides can be swapped"


def test_a_report_holds_its_comparison(folder: Path) -> None:
    ours, theirs = folder / "a.log", str(folder / "b.log")
    command = compare(wanted(str(ours)), wanted(theirs))
    with open_trace(ours) as trace:
        ticket = gather(trace, against=theirs)
        html, markdown = render_ticket(ticket), render_markdown(ticket)
        assert "Compared with another run" not in render_markdown(gather(trace))
        assert not gather(trace).contents.shown["comparison"]
        with pytest.raises(StepscopeError, match="not both"):
            gather(trace, against=theirs, redact=True)
        with pytest.raises(StepscopeError):
            gather(trace, against=str(folder / "missing.log"))
    assert ticket.contents.shown["comparison"].verdict == command.verdict
    assert 'href="#/compare"' in html
    assert command.sentence.partition(" ")[0] in markdown
    assert "Compared with another run" in markdown
