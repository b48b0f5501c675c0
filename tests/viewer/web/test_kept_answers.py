"""Answers are kept while a trace is open, browsers ask for versions, and a new reading has new answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.viewer.steps import page as steps_page
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.follow import Current
from tests.logs.synthetic import recorded
from tests.viewer.client import Client

PAGES = ["/", "/steps", "/steps/1?log=0", "/launches/3.json", "/steps/1/timeline.json?log=0&width=50"]


def test_a_browser_that_has_an_answer_gets_it_only_once(tmp_path: Path) -> None:
    with open_trace(recorded(steps=3).write(tmp_path / "a.log"), index_dir=tmp_path) as trace:
        client = Client(trace)
        for page in PAGES:
            first = client.get(page)
            tag = first.headers["etag"]
            assert client.get(page).content == first.content == Client(trace).get(page).content
            same = client.get(page, headers={"if-none-match": tag})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
            assert same.headers["content-security-policy"] == first.headers["content-security-policy"]
            assert client.get(page, headers={"if-none-match": '"other"'}).content == first.content
        assert "etag" not in client.get("/search?text=relu").headers
        assert "etag" not in client.get("/steps/99").headers


def test_a_new_reading_has_new_answers(tmp_path: Path) -> None:
    first, second = (recorded(steps=count).write(tmp_path / f"{count}.log") for count in (2, 4))
    current = Current(open_trace(first, index_dir=tmp_path))
    client = Client(current)
    before = client.get("/steps.json")
    current.replace(open_trace(second, index_dir=tmp_path))
    after = client.get("/steps.json", headers={"if-none-match": before.headers["etag"]})
    current.close()
    assert [len(answer.json()["steps"]) for answer in (before, after)] == [2, 4]


def test_an_answer_with_a_part_that_failed_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("not now")

    with open_trace(recorded(steps=2).write(tmp_path / "a.log"), index_dir=tmp_path) as trace:
        client = Client(trace)
        with monkeypatch.context() as patched:
            patched.setattr(steps_page, "_marks", fail)
            assert "could not be shown" in client.get("/steps/1.json").json()["not_shown"][0]
        assert "not_shown" not in client.get("/steps/1.json").json()


def test_a_notice_that_comes_later_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notices = ["The first log is missing."]
    monkeypatch.setattr(Trace, "notices", property(lambda _: list(notices)))
    with open_trace(recorded(steps=2).write(tmp_path / "a.log"), index_dir=tmp_path) as trace:
        client = Client(trace)
        assert "The second" not in client.get("/steps").text
        notices.append("The second log is missing.")
        assert "The second log is missing." in client.get("/steps").text


def test_an_answer_is_not_kept_if_a_notice_came_while_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[str] = []

    def noticing(*_: object) -> list[object]:
        notices[:] = ["A log is missing."]
        return []

    monkeypatch.setattr(Trace, "notices", property(lambda _: list(notices)))
    with open_trace(recorded(steps=2).write(tmp_path / "a.log"), index_dir=tmp_path) as trace:
        reading = Current(trace)._reading
        client = Client(trace)
        monkeypatch.setattr(steps_page, "_marks", noticing)
        client.get("/steps/1")
        assert reading.key_of("any")[1:] == ("A log is missing.",)
        assert "A log is missing." in client.get("/steps/1").text
