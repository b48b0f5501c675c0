"""Each page that docs/tlparse.md names is there on the log that it names, and holds what it is said to hold."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from stepscope.viewer.cli import app
from stepscope.viewer.store.open import open_trace
from tests.logs import compile_summary_logs, rank_logs
from tests.logs.compile_logs import run, without_id
from tests.logs.synthetic import LogBuilder, compile_records
from tests.viewer.client import Client
from tests.viewer.conftest import sample_logs

TEXT = Path(__file__).resolve().parents[2].joinpath("docs", "tlparse.md").read_text("utf-8")
PROOFS = re.findall(r"`(/[^`]*)` of `([^`]+)`: “([^”]+)”", TEXT)
FOLDER = sample_logs()


def write(log: LogBuilder) -> Callable[[Path], Path]:
    return lambda folder: log.write(folder / "x.log")


MADE: dict[str, Callable[[Path], Path]] = {
    "compiles": write(run()),
    "without_id": write(without_id()),
    "cuda_graphs": write(compile_summary_logs.with_cuda_graphs()),
    "vllm": write(compile_summary_logs.with_vllm()),
    "unknown": write(compile_records(LogBuilder()).torch("from_tomorrow", {"a": 1})),
    "ranks": lambda folder: rank_logs.write(
        folder, rank_logs.with_change(3, changed=1, at=1, schedule=rank_logs.SCHEDULE[:1])
    ),
}


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Client]]:
    """The dashboard of a log by the name that it has in the table."""
    open_now = {}

    def client(name: str) -> Client:
        if name not in open_now:
            folder = tmp_path_factory.mktemp("log")
            if name.startswith("made:"):
                trace = open_trace(MADE[name.removeprefix("made:")](folder))
            else:
                assert FOLDER is not None
                trace = open_trace(FOLDER / name, index_dir=folder)
            open_now[name] = trace, Client(trace)
        return open_now[name][1]

    yield client
    for trace, _ in open_now.values():
        trace.close()


def words_of(page: str) -> str:
    """What a reader sees of the page itself: without navigation and tags."""
    main = re.search(r"<main.*?</main>", page, re.DOTALL)
    text = re.sub(r"<script.*?</script>|<[^>]+>", "", main[0] if main else page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(text))


@pytest.mark.parametrize(("address", "log", "said"), PROOFS)
def test_the_page_proves_it(clients: Callable[[str], Client], address: str, log: str, said: str) -> None:
    if FOLDER is None and not log.startswith("made:"):
        pytest.skip("no sample logs: set STEPSCOPE_SAMPLES to a folder of TORCH_TRACE logs")
    answer = clients(log).get(address)
    assert answer.status_code == 200
    assert said in words_of(answer.text)


def test_every_row_has_a_proof() -> None:
    sections = {part.partition("\n")[0]: part for part in TEXT.split("\n## ")[1:]}
    rows = [line for title in ("What both show", "What only stepscope has") for line in sections[title].splitlines()]
    rows = [line for line in rows if line.startswith("|") and not line.startswith(("|---", "| What |"))]
    assert [row for row in rows if not re.search(r"`/[^`]*` of `[^`]+`: “[^”]+” \|$", row)] == []
    assert len(rows) == len(PROOFS)


@pytest.mark.parametrize("words", sorted(set(re.findall(r"`stepscope (\w+)", TEXT))))
def test_commands_are_there(words: str) -> None:
    assert CliRunner().invoke(app, [words, "--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("command", "option"),
    [("serve", "--follow"), ("check", "--strict"), ("export", "--record"), ("report", "--note")]
    + [(command, "--latest") for command in ("serve", "summary", "check", "report")],
)  # fmt: skip
def test_options_are_there(command: str, option: str) -> None:
    assert option in TEXT
    assert option in CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
