"""`stepscope run`: what is run, with which environment, and what comes back."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from stepscope.tracer.command import run
from stepscope.tracer.config import ConfigError, TraceConfig, from_environment, to_environment


def test_a_script_or_module_gets_this_python() -> None:
    assert run.argv(["train.py", "--lr", "1"]) == [sys.executable, "train.py", "--lr", "1"]
    assert run.argv(["-m", "package"]) == [sys.executable, "-m", "package"]
    assert run.argv(["torchrun", "x.py"]) == ["torchrun", "x.py"]


def test_exit_codes_are_the_commands_own(tmp_path: Path) -> None:
    config = TraceConfig(tmp_path)
    assert run.run(["-c", "raise SystemExit(7)"], config).exit_code == 7
    killed = run.run(["-c", "import os; os.kill(os.getpid(), 9)"], config)
    assert killed.exit_code == 128 + signal.SIGKILL
    assert killed.logs == []


def test_how_a_command_ended_is_written_where_it_does_not_say_so(tmp_path: Path) -> None:
    """A log that it ended itself stays as it is; one that it left by `os._exit`, or died over, gets a record."""
    for number, (end, code, told) in enumerate([(True, 0, 0), (False, 0, 1), (True, 3, 1), (False, -9, 1)]):
        folder = tmp_path / str(number)
        last = '{"artifact": {"name": "stepscope_end"}}' if end else '{"artif'
        program = (
            "import os, pathlib\n"
            f"log = pathlib.Path({str(folder)!r}, f'stepscope_trace_rank_0_{{os.getpid()}}_0a.log')\n"
            f"log.parent.mkdir()\nlog.write_text({last!r})\n"
            f"os.kill(os.getpid(), {-code}) if {code} < 0 else os._exit({code})"
        )
        result = run.run(["-c", program], TraceConfig(folder))
        (log,) = result.logs
        text = log.read_text()
        assert text.count('"stepscope_process_end"') == told
        assert text.startswith(last + ("\n" if told else ""))


def test_the_environment_carries_the_settings(tmp_path: Path) -> None:
    config = TraceConfig(tmp_path, level="off", provenance=False)
    assert from_environment(to_environment(config)) == config
    assert from_environment({}) is None


def test_a_level_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="level is 'loud'"):
        TraceConfig(tmp_path, level="loud")


def test_a_fresh_cache_is_empty_and_removed(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    program = (
        "import os, pathlib; d = os.environ['TORCHINDUCTOR_CACHE_DIR'];"
        f"assert not os.listdir(d); pathlib.Path({str(seen)!r}).write_text(d)"
    )
    assert run.run(["-c", program], TraceConfig(tmp_path), fresh_cache=True).exit_code == 0
    assert not os.path.exists(seen.read_text())


MAKES = (
    "import os, pathlib; cache = pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR'])\n"
    "for name in ('c3/a.py', 'c3/a.so', 'fxgraph/x/y', 'triton/z/k.cubin', 'locks/l', 'c3/a.so.lock'):\n"
    "    path = cache / name\n"
    "    path.parent.mkdir(parents=True, exist_ok=True)\n"
    "    path.write_bytes(b'1234')\n"
)


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "os.kill(os.getpid(), 9)", "raise ValueError", ""])
def test_a_fresh_cache_is_kept_where_the_program_failed(tmp_path: Path, end: str) -> None:
    cache = run.run(["-c", MAKES + end], TraceConfig(tmp_path), fresh_cache=True).cache
    assert cache is not None
    assert cache.entries == dict.fromkeys(("c3/a.py", "c3/a.so", "fxgraph/x/y", "triton/z/k.cubin"), 4)
    assert cache.text.startswith("the fresh cache received 4 files, 16 bytes (1 .py, 1 .so, 1 fxgraph, 1 triton); ")
    assert (cache.kept is not None) is bool(end)
    if cache.kept is not None:
        assert cache.text.endswith(f"the program failed, so the cache is kept: {cache.kept}")
        assert all((cache.kept / name).read_bytes() == b"1234" for name in cache.entries)
        shutil.rmtree(cache.kept)


def test_nothing_is_kept_of_a_failed_program_that_made_nothing(tmp_path: Path) -> None:
    cache = run.run(["-c", "raise SystemExit(3)"], TraceConfig(tmp_path), fresh_cache=True).cache
    assert cache is not None
    assert (cache.entries, cache.kept, cache.text) == (
        {},
        None,
        "the fresh cache received 0 files; the cache was removed",
    )
    assert run.run(["-c", "raise SystemExit(3)"], TraceConfig(tmp_path)).cache is None


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run.run(["no-such-command-here"], TraceConfig(tmp_path))
