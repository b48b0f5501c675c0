"""Tests what the run record says of the machine."""

from __future__ import annotations

import getpass
import json
import platform
import socket
import subprocess
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest
import torch

from stepscope.tracer.runtime.machine import HIDDEN, machine, variables
from stepscope.tracer.schema.machine import Machine
from stepscope.tracer.schema.records import Run
from stepscope.viewer.ingest.decode import decode
from tests.logs import synthetic


def test_a_bug_report_finds_what_it_asks_for() -> None:
    found = machine(torch)
    assert found.torch_git == torch.version.git_version
    assert found.architecture == platform.machine()
    assert found.packages["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert found.torch_build
    assert "Build settings" not in "".join(found.torch_build)


def test_no_process_is_started_and_nothing_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    machine(torch)
    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def test_a_torch_that_answers_nothing_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = SimpleNamespace(backends=SimpleNamespace(cpu=SimpleNamespace(get_cpu_capability=None)))
    monkeypatch.setattr(platform, "machine", None)
    monkeypatch.setattr("sys.path", ["/does/not/exist", ""])
    found = machine(empty)
    assert found.architecture is found.torch_git is found.cudnn_version is None
    assert found.torch_build == []


def test_variables_are_those_of_torch_and_hold_no_secret() -> None:
    found = variables(
        {
            "TORCHINDUCTOR_CACHE_DIR": "/tmp/x",
            "TRITON_ACCESS_TOKEN": "hunter2",
            "TORCHINDUCTOR_REDIS_URL": "redis://me:hunter2@host/0",
            "HOME": "/home/me",
            "AWS_SECRET_ACCESS_KEY": "hunter2",
            "CUDA_VISIBLE_DEVICES": "0",
        }
    )
    assert found == {
        "CUDA_VISIBLE_DEVICES": "0",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/x",
        "TORCHINDUCTOR_REDIS_URL": "redis://host/0",
        "TRITON_ACCESS_TOKEN": HIDDEN,
    }


def test_neither_user_nor_host_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCH", "CUDA"):
        monkeypatch.delenv(name, raising=False)
    text = json.dumps(asdict(machine(torch)) | {"variables": {}})
    for name in (socket.gethostname(), getpass.getuser(), str(Path.home())):
        assert len(name) < 5 or name not in text


def test_a_log_of_before_has_no_machine() -> None:
    payload = asdict(synthetic.run())
    del payload["machine"]
    assert decode(Run, payload).machine is None
    payload["machine"] = asdict(machine(torch))
    again = decode(Run, orjson.loads(orjson.dumps(payload))).machine
    assert isinstance(again, Machine)
    assert asdict(again) == payload["machine"]
