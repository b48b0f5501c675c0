"""Another process truncates the launch ring: the program goes on, and a SIGBUS that is not ours kills as before."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture.conftest import ROOT, clean_environment

PRELUDE = """
import ctypes, mmap, os, signal, subprocess, sys, tempfile
from pathlib import Path
from stepscope.tracer.launch_ring import LaunchRing, Shape
from stepscope.tracer.runtime import ticks
from stepscope.tracer.runtime.launches import Call
said = []
ring = LaunchRing(lambda: Path(sys.argv[1], "x.log"), said.append)
ring.guard_by(ticks)
shape = Shape(0, 5000)
call = Call(0, 0, None, None)
ring.begin(call, shape)
ring.started(call, shape)
def cut(path):
    subprocess.run(["truncate", "-s", "0", str(path)], check=True)
"""
CUT = """
cut(ring.path)
"""
COMPILED = """
tick = ticks.tick_type()(call.cells)
tick.rows = call.rows
for site in range(5000):
    tick(2 * site, site)
    tick(2 * site + 1)
print(len(call.rows))
"""
IN_PYTHON = """
for site in range(5000):
    call.cells[2 * site] = call.cells[2 * site + 1] = site
print(15000)
"""
REST = """
ring.end(call, shape)
ring.check_file()
ring.begin(Call(0, 0, None, None), shape)
print(said)
ring.close(keep=False)
print(os.listdir(sys.argv[1]))
"""
# A mapping of the program's own, of which the end is gone.
FOREIGN = """
file = tempfile.TemporaryFile()
file.truncate(1 << 16)
own = mmap.mmap(file.fileno(), 1 << 16)
file.truncate(0)
own[5] = 1
"""


def run(folder: Path, body: str, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PRELUDE + body, str(folder)]
    return subprocess.run(command, cwd=ROOT, env=clean_environment(cache), capture_output=True, text=True)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("way", [COMPILED, IN_PYTHON], ids=["compiled", "python"])
def test_the_program_goes_on(tmp_path: Path, cache: Path, way: str) -> None:
    found = run(tmp_path, CUT + way + REST, cache)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == ["15000", "['another program truncated the launch ring']", "[]"]


@pytest.mark.parametrize("before", ["", "import faulthandler; faulthandler.enable()\n"])
def test_what_is_not_ours_kills_as_before(tmp_path: Path, cache: Path, before: str) -> None:
    assert run(tmp_path, before + FOREIGN, cache).returncode == -signal.SIGBUS
    assert run(tmp_path, before + "os.kill(os.getpid(), signal.SIGBUS)", cache).returncode == -signal.SIGBUS


def test_a_handler_of_the_program_is_called(tmp_path: Path, cache: Path) -> None:
    own = "signal.signal(signal.SIGBUS, lambda *_: print('own', flush=True))\n"
    body = "os.kill(os.getpid(), signal.SIGBUS); print('alive')"
    command = [sys.executable, "-c", "import signal\n" + own + PRELUDE + body, str(tmp_path)]
    found = subprocess.run(command, cwd=ROOT, env=clean_environment(cache), capture_output=True, text=True)
    assert found.stdout.split() == ["own", "alive"]
