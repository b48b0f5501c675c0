"""Scripts that a server runs in processes of their own, forked from one that has loaded torch."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.capture.conftest import ROOT, clean_environment

# Every script runs `step` recorded and not recorded, and prints whether the results were equal.
PRELUDE = """
import os, sys, threading
import torch
import stepscope

torch.set_num_threads(1)
FOLDER = sys.argv[1]
VALUE = torch.arange(64.0).reshape(8, 8) / 64

@torch.compile
def model(value):
    return (value @ value).sin().sum(0)

def expected():
    return (VALUE @ VALUE).sin().sum(0)

def same(found):
    print("same" if torch.allclose(found, expected()) else "DIFFERENT", flush=True)
"""


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


class Scripts:
    """Runs scripts that share one compile cache, each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = clean_environment(folder / "cache", TORCHINDUCTOR_COMPILE_THREADS="1")
        command = [sys.executable, "-m", "tests.capture.script_server"]
        self._server = subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self._server.stdout is not None
        return self._server.stdout.readline().strip()

    def run(self, folder: Path, body: str, **environment: str) -> Done:
        out, err = self.folder / "stdout", self.folder / "stderr"
        request = {
            "body": PRELUDE + textwrap.dedent(body),
            "arguments": [str(folder)],
            "environment": environment,
            "stdout": str(out),
            "stderr": str(err),
        }
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return Done(int(self._answer()), out.read_text(), err.read_text())

    def run_alone(self, folder: Path, body: str, **environment: str) -> Done:
        """Without anything loaded before, nor the prelude."""
        command = [sys.executable, "-c", textwrap.dedent(body), str(folder)]
        env = self.environment | environment
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=150)
        return Done(done.returncode, done.stdout, done.stderr)

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()
