"""Tests the command line itself: versions, completion, errors in one sentence, and use without the extra."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stepscope.tracer._version import __version__
from stepscope.viewer.cli import COMMANDS, GROUPS, WIDEST_HELP, app
from stepscope.viewer.cli.commands import PACKAGES, how_to_read
from tests.logs.synthetic import LogBuilder, compile_records
from tests.waiting import PATIENCE_S

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
WITHOUT = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Nothing())
"""
READING = sorted({*COMMANDS} - {"run", "import-aoti", "measure"})


def stepscope(*words: str | Path, before: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"{before}\nfrom stepscope.viewer.cli import main; main()", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_records(LogBuilder()).write(tmp_path_factory.mktemp("trace") / "plain.log")


def test_versions_are_said_without_importing_torch() -> None:
    said = stepscope("--version", before="import atexit, sys; atexit.register(lambda: print('torch' in sys.modules))")
    assert re.fullmatch(rf"stepscope {re.escape(__version__)} \(torch \S+, Python 3\.\S+\)\nFalse\n", said.stdout)


def test_a_run_says_what_reads_it(tmp_path: Path) -> None:
    """The folder is the trace of its only run; beside earlier logs the new log is."""
    program = "import os; open(f't/stepscope_trace_rank_0_{os.getpid()}_0a.log', 'x').close()"
    tmp_path.joinpath("t").mkdir()
    first, second = (stepscope("run", "-o", "t", "--", "-c", program, cwd=tmp_path).stderr for _ in range(2))
    assert first == "stepscope: 1 log in t\nstepscope: read it with `stepscope summary t` or `stepscope serve t`\n"
    log = re.search(r"`stepscope serve (.*)`", second)
    assert log is not None
    assert tmp_path.joinpath(log[1]).is_file()


@pytest.mark.parametrize(("searched", "name"), [("bin", "stepscope"), ("elsewhere", "bin/stepscope")])
def test_what_reads_a_trace_can_be_typed_in_the_same_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searched: str, name: str
) -> None:
    program = tmp_path / "bin" / "stepscope"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / searched))
    monkeypatch.setattr(sys, "argv", ["bin/stepscope", "run"])
    assert how_to_read(Path("a trace")) == f"`{name} summary 'a trace'` or `{name} serve 'a trace'`"


def test_without_words_three_commands_are_shown() -> None:
    said = stepscope()
    assert (said.returncode, said.stdout) == (2, "")
    shown = re.findall(r"^  \S.*?: +stepscope ([a-z]+) ", said.stderr, re.MULTILINE)
    assert shown == ["run", "serve", "report"]
    assert "`stepscope --help` lists all commands" in said.stderr


def test_the_help_shows_the_commands_in_groups() -> None:
    lines = stepscope("--help", env={**os.environ, "COLUMNS": "100"}).stdout.splitlines()
    assert [line for line in lines if re.fullmatch(r"[A-Z][^:]*:", line)] == [
        "Options:", *(f"{title}:" for title in GROUPS),
    ]  # fmt: skip
    assert [line.split()[0] for line in lines if re.match(r"  [a-z][a-z-]+ ", line)] == [*COMMANDS]


@pytest.mark.parametrize("words", [(), ("run",)], ids=["all", "run"])
@pytest.mark.parametrize("columns", [60, 100, 200])
def test_the_help_has_the_width_of_the_terminal(words: tuple[str, ...], columns: int) -> None:
    text = stepscope(*words, "--help", env={**os.environ, "COLUMNS": str(columns)}).stdout
    widest = max(map(len, text.splitlines()))
    limit = min(columns, WIDEST_HELP)
    assert limit - 20 < widest <= limit


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    command = app.commands.get(name) or app.get_command(app.make_context("stepscope", [name]), name)
    assert command is not None
    for parameter in command.params:
        assert getattr(parameter, "explanation", None) or getattr(parameter, "help", None), parameter.name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("sumary", "x"), "stepscope: There is no command 'sumary'. Did you mean `stepscope summary`?"),
        (("qqq",), "stepscope: There is no command 'qqq'. `stepscope --help` lists all commands."),
        (("report",), "stepscope report: Missing argument 'TRACE...'. `stepscope report --help` explains it."),
    ],
)
def test_a_slip_is_told_with_what_to_type(words: tuple[str, ...], says: str) -> None:
    assert stepscope(*words).stderr == f"{says}\n"


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "x", "--port", "99999"),
        ("serve", "x", "--port", "-1"),
        ("serve", "x", "--port", "http"),
        ("search", "x", "text", "--limit", "0"),
        ("sql", "x", "select 1", "--limit", "9" * 5000),
        ("export", "x", "--to", "raw", "--record", "99999999999999999999"),
        ("ingest", "x", "--to", "y", "--workers", "0"),
        ("repro", "x", "-o", "y", "--launch", "-3"),
        ("repro", "x"),
        ("run", "--crash", "--timeout", "nan", "--", "true"),
        ("run", "--crash", "--timeout", "0", "--", "true"),
        ("run", "--crash", "--max-runs", "many", "--", "true"),
        ("run",),
        ("summary",),
        ("summary", "x", "--nothing"),
        ("sumary", "x"),
        ("--nothing",),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_what_is_wrong_is_one_sentence(words: tuple[str, ...]) -> None:
    said = stepscope(*words)
    assert (said.returncode, said.stdout) == (2, "")
    assert re.fullmatch(r"stepscope[ a-z]*: .+[.?)]\n", said.stderr), said.stderr
    assert len(said.stderr) < 400


def test_a_misspelt_option_is_no_program_to_run(tmp_path: Path) -> None:
    said = stepscope("run", "--output", "there", "--", sys.executable, "-c", "print(1)", cwd=tmp_path)
    assert (said.returncode, said.stdout) == (2, "")
    assert re.fullmatch(r"stepscope run: No such option\W+--output\W+Did you mean '?--out'?\?\n", said.stderr)


def test_a_report_makes_no_folder(log: Path, tmp_path: Path) -> None:
    said = stepscope("report", log, "-o", tmp_path / "missing" / "report.html")
    assert said.returncode == 2
    assert said.stderr == f"stepscope: There is no folder {tmp_path}/missing: make it first, or give another --out.\n"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell: str) -> None:
    environment = {**os.environ, "_STEPSCOPE_COMPLETE": f"{shell}_source"}
    assert "_STEPSCOPE_COMPLETE" in stepscope(env=environment).stdout


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--check-eager"], ["--check-eager", "2"], ["--check-eager", "--level", "values"]])
def test_a_number_of_checked_calls_may_be_left_out(tmp_path: Path, options: list[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys; print(sys.argv[1:])")
    said = stepscope("run", *options, program, "--check-eager", "x", cwd=tmp_path)
    assert said.stdout == "['--check-eager', 'x']\n", said.stderr


def test_commands_options_and_their_values_are_completed() -> None:
    def offered(line: str) -> list[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        said = stepscope(env={**os.environ, "_STEPSCOPE_COMPLETE": "bash_complete", **words}).stdout
        return [word.partition(",")[2] for word in said.splitlines()]

    assert offered("stepscope s") == ["summary", "serve", "search", "sql"]
    assert offered("stepscope summary --l") == ["--latest"]
    assert offered("stepscope run --level v") == ["values"]


@pytest.mark.slow
def test_ctrl_c_after_the_first_page_prints_nothing(log: Path) -> None:
    command = [sys.executable, "-c", "from stepscope.viewer.cli import main; main()", "serve", str(log), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            assert address is not None
            with urllib.request.urlopen(address[0], timeout=PATIENCE_S) as page:
                assert page.status == 200
            server.send_signal(signal.SIGINT)
            _, error = server.communicate(timeout=PATIENCE_S)
        finally:
            server.kill()
    assert (server.returncode, error.strip()) == (130, "")


def test_the_extra_is_what_the_commands_ask_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    base, extra = (
        {re.match(r"[\w.]+", line)[0] for line in lines}  # type: ignore[index]
        for lines in (project["dependencies"], project["optional-dependencies"]["viewer"])
    )
    assert base == {"click", "numpy", "orjson"}
    assert extra - base - {"backports.zstd"} == {*PACKAGES} - {"backports.zstd"}


@pytest.mark.parametrize("name", READING)
def test_without_the_extra_a_command_says_what_installs_it(name: str) -> None:
    words = {"search": ["x", "y"], "sql": ["x", "y"], "repro": ["x", "-o", "y"], "demo": []}
    words |= {"export": ["x", "--to", "csv"], "ingest": ["x", "--to", "y"], "compare": ["x", "y"]}
    missing = sorted(name.partition(".")[0] for name in PACKAGES)
    said = stepscope(name, *words.get(name, ["x"]), before=WITHOUT.format(missing=missing))
    assert (said.returncode, said.stdout) == (2, "")
    install = "which is not installed: pip install 'stepscope[viewer]'"
    assert said.stderr == f"stepscope: `stepscope {name}` needs duckdb, {install}\n"


@pytest.mark.slow
def test_without_the_extra_programs_are_recorded(tmp_path: Path) -> None:
    missing = sorted(name.partition(".")[0] for name in PACKAGES)
    program = "import torch; print(torch.compile(lambda x: x + 1, backend='aot_eager')(torch.ones(1)).item())"
    before = WITHOUT.format(missing=missing)
    (tmp_path / "program.py").write_text(f"{before}\n{program}\n")
    said = stepscope("run", "-o", "out", "--", "program.py", before=before, cwd=tmp_path)
    assert (said.returncode, said.stdout) == (0, "2.0\n"), said.stderr
    assert len([*(tmp_path / "out").glob("*.log")]) == 1
    crash = stepscope("run", "--crash", "-o", "again", "--", "program.py", before=before, cwd=tmp_path)
    assert crash.returncode == 2
    assert crash.stderr.endswith("pip install 'stepscope[viewer]'\n")
    assert crash.stdout == ""
