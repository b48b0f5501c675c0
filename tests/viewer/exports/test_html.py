"""The folder of pages: every link leads to a file, nothing leaves the folder, and text of a log stays text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import pytest
from click.testing import CliRunner

from stepscope.viewer.cli import app
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.exports.formats import WantedPages
from stepscope.viewer.exports.html.addresses import address_of, route_patterns
from stepscope.viewer.exports.write import export
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs import overflow_log
from tests.logs.poisoned import write_poisoned
from tests.logs.rich import write_rich

pytestmark = pytest.mark.slow


CASES = Path(__file__).parents[2] / "js" / "exports" / "folder_cases.json"
OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|/", re.I)
ADVICE = "https://example.org/gb/"
"""Address of PyTorch's advice about graph breaks in the logs, which a page links to but does not load."""
VOID = {"img", "iframe", "object", "embed", "base", "frame", "applet", "style"}


class Links(HTMLParser):
    """Collects the addresses of a page and its ids; `wrong` says what would run or load more."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.wrong: list[str] = []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.add(values.get("id", ""))
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"]
        for name, value in values.items():
            if name in ("href", "src") and not value.startswith("data:"):
                (self.links if tag == "a" else self.loaded).append(value)
            elif name.startswith("on") or name in ("style", "action", "formaction", "srcdoc"):
                self.wrong.append(f"{tag} {name}={value}")
        is_data = values.get("type") in ("application/json", "importmap")
        if tag in VOID or (tag == "script" and "src" not in values and not is_data):
            self.wrong.append(f"<{tag}>")


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    with open_trace(write_rich(tmp_path_factory.mktemp("rich"))) as trace:
        yield trace


@pytest.fixture
def overflow(tmp_path: Path) -> Iterator[Trace]:
    with open_trace(overflow_log.recorded().write(tmp_path / "log.log")) as trace:
        yield trace


@pytest.fixture(scope="module")
def folder(rich: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(rich, tmp_path_factory.mktemp("rich"), 150)


def written(trace: Trace, parent: Path, most: int, remarks: list[str] | None = None) -> Path:
    told = [] if remarks is None else remarks
    path, count = export(trace, "html", "", parent / "pages", pages=WantedPages(most, remark=told.append))
    assert count == len([*path.glob("*.html")])
    return path


def pages(folder: Path) -> dict[str, Links]:
    return {file.name: Links(file.read_text("utf-8")) for file in sorted(folder.glob("*.html"))}


def test_every_link_leads_to_a_file_of_the_folder(folder: Path) -> None:
    found = pages(folder)
    assert len(found) > 80
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    wrong, followed = [], 0
    for name, page in found.items():
        for link in page.links + page.loaded:
            if link in page.links and link.startswith(ADVICE):
                continue
            parts = urlsplit(link)
            file = unquote(parts.path) or name
            followed += 1
            is_there = file in files and not OUTSIDE.match(link)
            if not is_there or (file in found and unquote(parts.fragment) not in {"", *found[file].ids}):
                wrong.append((name, link))
    assert followed > 3000
    assert wrong == []


def test_pages_load_relative_scripts_under_a_strict_policy(folder: Path) -> None:
    for name, page in pages(folder).items():
        assert page.wrong == [], name
        assert page.policy.startswith("default-src 'none'; script-src 'self' 'sha256-"), name
        assert "unsafe" not in page.policy
        assert "frame-ancestors" not in page.policy  # not allowed in a meta element
        assert "static/css/stepscope.css" in {link.split("?")[0] for link in page.loaded}
    text = (folder / "index.html").read_text("utf-8")
    found = re.search(r'<script type="importmap">(.*?)</script>', text)
    assert found is not None
    modules = json.loads(found[1])["imports"]
    assert modules["#js/core/server.js"].startswith("./static/js/exports/folder.js?")
    for module in modules.values():
        assert (folder / module.split("?")[0]).is_file()


def test_what_needs_a_server_is_left_out(folder: Path) -> None:
    for file in folder.glob("*.html"):
        text = file.read_text("utf-8")
        assert 'class="filters"' not in text, file.name
        assert ">SQL<" not in re.sub(r"<title>.*?</title>", "", text), file.name
    assert {"search.html", "sql.html", "tables.html"}.isdisjoint(pages(folder))
    listed = Links((folder / "compile.html").read_text("utf-8"))
    assert not [link for link in listed.links if "sort" in link]


def test_steps_have_their_timelines_sums_and_launches(overflow: Trace, tmp_path: Path) -> None:
    folder = written(overflow, tmp_path, 150)
    files = json.loads((folder / "folder.json").read_text("utf-8"))["files"]

    def answer(key: str) -> Any:
        return json.loads((folder / files[key]).read_text("utf-8"))

    steps = [key for key in files if re.fullmatch(r"/steps/\d+\?log=\d+", key)]
    assert len(steps) == overview(overflow).counts.steps
    for path, _, query in (key.partition("?") for key in steps):
        timeline = answer(f"{path}/timeline.json?{query}")
        assert (
            sum(site["launches"] for site in answer(f"{path}/area.json?{query}")["sites"]) == timeline["total_launches"]
        )
        for launch in timeline["launches"]["launch"]:
            assert answer(f"/launches/{launch}.json")["launch"]["launch"] == launch


def test_findings_come_first_and_the_rest_is_counted(rich: Trace, tmp_path: Path) -> None:
    remarks: list[str] = []
    small = written(rich, tmp_path, 75, remarks)
    files = json.loads((small / "folder.json").read_text("utf-8"))["files"]
    named = [address_of(finding.page) for finding in overview(rich).findings]
    assert named
    assert {address.key for address in named if address} <= set(files)
    assert len(remarks) == 1
    assert re.match(r"This folder has 75 pages and launches; [\d,]+ more", remarks[0])
    assert remarks[0].split(";")[0] in (small / "index.html").read_text("utf-8")
    assert "`stepscope serve TRACE` shows it." in (small / "records.html").read_text("utf-8")


def test_the_same_trace_gives_the_same_files(overflow: Trace, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    one, other = written(overflow, tmp_path, 60), written(overflow, tmp_path / "a", 60)
    names = {file.relative_to(one) for file in one.rglob("*") if file.is_file()}
    assert names == {file.relative_to(other) for file in other.rglob("*") if file.is_file()}
    assert [name for name in names if (one / name).read_bytes() != (other / name).read_bytes()] == []


def test_text_of_a_hostile_log_stays_text(tmp_path: Path) -> None:
    with open_trace(write_poisoned(tmp_path / "logs")) as trace:
        folder = written(trace, tmp_path, 150)
    for name, page in pages(folder).items():
        assert re.fullmatch(r"[a-z0-9_.-]+", name)
        assert page.wrong == [], name
        assert not [link for link in page.links if OUTSIDE.match(link) and not link.startswith(ADVICE)], name
        assert "<img src=x" not in (folder / name).read_text("utf-8"), name


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_text("x"), "is a file"),
        (lambda path: (path / "inside").mkdir(parents=True), "is not empty"),
        (lambda path: None, ""),
        (lambda path: path.mkdir(), ""),
    ],
)
def test_only_a_new_or_empty_folder_is_written(make: Any, reason: str, overflow: Trace, tmp_path: Path) -> None:
    out = tmp_path / "pages"
    make(out)
    if reason:
        with pytest.raises(StepscopeError, match=reason):
            export(overflow, "html", "", out, pages=WantedPages(3))
    else:
        export(overflow, "html", "", out, pages=WantedPages(3))
        assert (out / "index.html").is_file()


def test_no_other_folder_is_made(overflow: Trace, tmp_path: Path) -> None:
    with pytest.raises(StepscopeError, match="There is no folder"):
        export(overflow, "html", "", tmp_path / "a" / "b")
    with pytest.raises(StepscopeError, match="writes a folder and not to standard output"):
        export(overflow, "html", "", Path("-"))


def test_the_command(tmp_path: Path) -> None:
    log, out = overflow_log.recorded().write(tmp_path / "log.log"), tmp_path / "pages"
    link = "https://host/repository/{path}#L{line}"
    command = ["export", str(log), "--to", "html", "-o", str(out), "--max-pages", "30", "--source-link", link]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert re.search(rf"{re.escape(str(out))} \(\d+ pages\)", done.output)
    assert "more that its pages link to were left out" in done.output
    assert "vscode://" not in "".join(file.read_text("utf-8") for file in out.glob("*.html"))


def test_addresses_have_the_same_keys_as_in_scripts() -> None:
    told = json.loads(CASES.read_text("utf-8"))
    patterns = dict(route_patterns())
    assert {pattern: patterns.get(pattern) for pattern, _ in told["routes"]} == dict(told["routes"])
    for link, key, state, file in told["cases"]:
        address = address_of(link)
        assert address is not None
        assert (address.key, urlencode(address.state), address.file) == (key, state, file)
    files = [file.lower() for *_, file in told["cases"]]
    pages_of_cases = {key for _, key, *_ in told["cases"]}
    assert len(set(files)) == len(pages_of_cases)


@pytest.mark.parametrize("link", ["//evil.example/x", "/sql?query=1", "/search", "/records/5/raw", "/nothing", "x"])
def test_other_addresses_have_no_file(link: str) -> None:
    assert address_of(link) is None
