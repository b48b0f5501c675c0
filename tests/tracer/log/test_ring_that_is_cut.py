"""Another process truncates the launch ring: the program goes on, and a SIGBUS that is not ours kills as before."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment

PRELUDE = """
import ctypes, mmap, os, signal, subprocess, sys, tempfile
from pathlib import Path
from stepscope.tracer.log.launch_ring import LaunchRing
from stepscope.tracer.log.launch_ring import FunctionShape
from stepscope.tracer.runtime import ticks
from stepscope.tracer.runtime.calls import GraphCall
said = []
ring = LaunchRing(lambda: Path(sys.argv[1], "x.log"), said.append)
ring.guard_by(ticks)
shape = FunctionShape(0, 5000)
call = GraphCall(0, 0, None, None)
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
ring.begin(GraphCall(0, 0, None, None), shape)
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

FAULTHANDLER = "import faulthandler; faulthandler.enable()\n"
FLUSHED = "ring.check_file()\n"
DISABLED = "faulthandler.disable()\n"
OWN_HANDLER = "signal.signal(signal.SIGBUS, lambda *_: print('own', flush=True))\n"
TRACE = "Fatal Python error: Bus error"
LATER = {
    "faulthandler": FAULTHANDLER + FLUSHED,
    "faulthandler that is off again": FAULTHANDLER + FLUSHED + DISABLED,
    "faulthandler that is on again": 20 * (FAULTHANDLER + FLUSHED + DISABLED + FLUSHED) + FAULTHANDLER + FLUSHED,
    "a handler of the program": OWN_HANDLER + FLUSHED,
    "both": OWN_HANDLER + FLUSHED + FAULTHANDLER + FLUSHED,
    "the default": "signal.signal(signal.SIGBUS, signal.SIG_DFL)\n" + FLUSHED,
    "each of them in turn": 20 * (FAULTHANDLER + FLUSHED + DISABLED + OWN_HANDLER + FLUSHED),
}
"""What the program makes of SIGBUS once the ring is guarded, and a flush behind it."""

PROGRAM = """
import faulthandler, os, sys, time
from pathlib import Path
import torch
import stepscope
from stepscope.tracer.runtime.outbox import FLUSH_NS
compiled = torch.compile(lambda x: (x @ x).sin())
with stepscope.trace(sys.argv[1]):
    compiled(torch.ones(8, 8))
    faulthandler.enable()
    time.sleep(2 * FLUSH_NS / 1e9)
    compiled(torch.ones(8, 8))
    (ring,) = Path(sys.argv[1]).glob("*.ring")
    ring.chmod(0o600)
    os.truncate(ring, 0)
    for _ in range(100):
        compiled(torch.ones(8, 8))
print("alive")
"""


def run(folder: Path, body: str, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PRELUDE + body, str(folder)]
    return python_processes.run(command, env=clean_environment(cache))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("way", [COMPILED, IN_PYTHON], ids=["compiled", "python"])
def test_the_program_goes_on(tmp_path: Path, cache: Path, way: str) -> None:
    found = run(tmp_path, CUT + way + REST, cache)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == ["15000", "['another program truncated the launch ring']", "[]"]


@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
def test_the_program_goes_on_with_a_handler_that_it_sets_later(tmp_path: Path, cache: Path, later: str) -> None:
    found = run(tmp_path, later + CUT + COMPILED + REST, cache)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[0] == "15000"
    assert TRACE not in found.stderr


def test_a_recorded_program_goes_on_with_faulthandler(tmp_path: Path, cache: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    found = python_processes.run(command, env=clean_environment(cache))
    assert (found.returncode, found.stdout.split()) == (0, ["alive"]), found.stderr


@pytest.mark.parametrize("signal_of", [FOREIGN, "os.kill(os.getpid(), signal.SIGBUS)"], ids=["fault", "sent"])
@pytest.mark.parametrize("later", ["faulthandler", "faulthandler that is off again", "faulthandler that is on again"])
def test_faulthandler_tells_once_of_what_is_not_ours(tmp_path: Path, cache: Path, later: str, signal_of: str) -> None:
    found = run(tmp_path, LATER[later] + signal_of, cache)
    assert found.returncode == -signal.SIGBUS
    assert found.stderr.count(TRACE) == (0 if "off" in later else 1)


def test_a_handler_that_the_program_sets_later_is_called_each_time(tmp_path: Path, cache: Path) -> None:
    sent = 3 * "os.kill(os.getpid(), signal.SIGBUS); time.sleep(0)\n"
    found = run(tmp_path, "import time\n" + LATER["a handler of the program"] + sent + "print('alive')", cache)
    assert (found.returncode, found.stdout.split()) == (0, ["own", "own", "own", "alive"])


@pytest.mark.parametrize("before", ["", FAULTHANDLER])
def test_what_is_not_ours_kills_as_before(tmp_path: Path, cache: Path, before: str) -> None:
    assert run(tmp_path, before + FOREIGN, cache).returncode == -signal.SIGBUS
    assert run(tmp_path, before + "os.kill(os.getpid(), signal.SIGBUS)", cache).returncode == -signal.SIGBUS


def test_a_handler_of_the_program_is_called(tmp_path: Path, cache: Path) -> None:
    body = "os.kill(os.getpid(), signal.SIGBUS); print('alive')"
    command = [sys.executable, "-c", "import signal\n" + OWN_HANDLER + PRELUDE + body, str(tmp_path)]
    found = python_processes.run(command, env=clean_environment(cache))
    assert found.stdout.split() == ["own", "alive"]
