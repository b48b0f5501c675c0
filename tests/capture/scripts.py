"""Scripts that run in processes of their own and share one compile cache."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests import python_processes
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
class Scripts:
    """Runs scripts with a compile cache in `folder`."""

    folder: Path

    def run(self, folder: Path, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PRELUDE + textwrap.dedent(body), str(folder)]
        return python_processes.run(command, env=self._environment(environment))

    def run_alone(self, folder: Path, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script without the prelude in an interpreter that has imported nothing."""
        command = [sys.executable, "-c", textwrap.dedent(body), str(folder)]
        env = self._environment(environment)
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        return clean_environment(self.folder / "cache", **more)
