"""Kills a compiled program again and again: ``python -m tests.capture.kill_program FOLDER KILLS SEED``.

The program is compiled once; each victim is forked from it, records into a log of its own and trains until it dies:
of a signal at a random moment, or by its own hand in the midst of a random launch. Stand-ins for the kernels keep an
account of their own in shared memory. FOLDER/deaths.json gets one entry for each victim.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch._inductor.codecache import PyCodeCache

import stepscope
from tests.capture.independent import LaunchCounts

SIGNALS = signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT
LONGEST_S = 0.4
MOST_LAUNCHES = 2000
HANGS_AFTER_S = 120
NAME_BITS = 16


class Account(LaunchCounts):
    """Launches that began and returned, and steps that ended, in memory that outlives the process."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = mmap.mmap(-1, 4096)
        self.words = memoryview(self.memory).cast("q")
        self.names: list[str] = []
        self.dies_at: int | None = None
        self.die: Callable[[], None] = os.abort

    def clear(self) -> None:
        for word in range(3):
            self.words[word] = 0

    def add(self, name: str) -> None:
        if name not in self.names:
            self.names.append(name)
        began = (self.words[0] >> NAME_BITS) + 1
        self.words[0] = began << NAME_BITS | self.names.index(name)  # both at once
        if began == self.dies_at:
            self.die()

    def returned(self) -> None:
        self.words[1] += 1

    def step_ended(self) -> None:
        self.words[2] += 1

    def entry(self) -> dict[str, object]:
        began, name = self.words[0] >> NAME_BITS, self.words[0] & (1 << NAME_BITS) - 1
        return {"began": began, "name": self.names[name], "returned": self.words[1], "steps": self.words[2]}


def build() -> Callable[[], None]:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(96, 96), torch.nn.GELU(), torch.nn.LayerNorm(96), torch.nn.Linear(96, 96)]
    model = torch.nn.Sequential(*layers)
    compiled = torch.compile(model)
    x = torch.randn(64, 96)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        compiled(x).sum().backward()

    return step


def live(step: Callable[[], None], account: Account) -> None:
    while True:
        step()
        stepscope.step()
        account.step_ended()


def read_nothing() -> None:
    ctypes.string_at(0)


def victim(step: Callable[[], None], account: Account, chance: random.Random) -> dict[str, object]:
    """Fork one and see it die."""
    account.clear()
    by_its_own_hand = chance.random() < 0.3
    number = chance.choice(SIGNALS)
    account.dies_at = chance.randrange(1, MOST_LAUNCHES) if by_its_own_hand else None
    deadly: dict[int, Callable[[], None]] = {
        signal.SIGABRT: os.abort,
        signal.SIGSEGV: read_nothing,
        signal.SIGKILL: lambda: os.kill(os.getpid(), signal.SIGKILL),
    }
    account.die = deadly[number]
    wait_s = chance.random() * LONGEST_S
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(HANGS_AFTER_S)
        live(step, account)
    if not by_its_own_hand:
        while not account.words[2] and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            time.sleep(0.001)
        time.sleep(wait_s)
        os.kill(pid, number)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == number, status
    return {"pid": pid, "signal": signal.Signals(number).name, "own_hand": by_its_own_hand, **account.entry()}


def main() -> int:
    folder, kills, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    torch.set_num_threads(1)
    step, account = build(), Account()
    with stepscope.trace(folder, provenance=False):
        step()
        for module in PyCodeCache.modules:
            if callable(getattr(module, "call", None)):
                account.count(module)
        step()
        stepscope.step()
        deaths = [victim(step, account, chance) for _ in range(kills)]
    (folder / "deaths.json").write_text(json.dumps(deaths))
    return 0


if __name__ == "__main__":
    assert struct.calcsize("q") == 8
    sys.exit(main())
