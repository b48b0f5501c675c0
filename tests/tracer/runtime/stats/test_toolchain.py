"""Compiled parts are kept in a folder of the user's own."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from stepscope.tracer.inductor.stats_toolchain import build_library, own_folder

SOURCE = 'extern "C" int answer() { return 42; }'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/stepscope/libraries"


def test_it_is_built_once_and_again_when_the_file_is_broken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = build_library(SOURCE)
    assert built.parent == folder
    assert ctypes.CDLL(str(built)).answer() == 42
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", None)  # nothing is compiled
        assert build_library(SOURCE) == built
    whole = built.read_bytes()
    broken = built.with_name("broken")  # the library is in use: its file must stay as it is
    broken.write_bytes(whole[: len(whole) // 2])
    broken.replace(built)
    again = build_library(SOURCE)
    assert ctypes.CDLL(str(again)).answer() == 42
    assert list(folder.iterdir()) == [again]


def test_a_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    assert own_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert own_folder() is None


def test_without_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert own_folder() is None
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    assert build_library(SOURCE).parent == tmp_path / "inductor/stepscope"
