"""The compiler of the tests gives what the real one gives, and asks it once for each input."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPILER = Path(__file__).with_name("g++")
REAL = """#!/bin/sh
echo "$@" >> calls
test "$1" = wrong.cpp && { echo "wrong.cpp: error" >&2; exit 3; }
cat "$1" > "$3"
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems use their compiler itself")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    real = tmp_path / "real"
    real.write_text(REAL)
    real.chmod(0o700)
    (tmp_path / "kept").mkdir()
    for name in ("wrong", "first", "second"):
        (tmp_path / f"{name}.cpp").write_text(name)
    ours = {"COMPILED_BY": str(real), "COMPILED_KEY": "version", "COMPILED": str(tmp_path / "kept")}
    return os.environ | ours | {"COMPILED_WITHOUT": "/environment", "COMPILED_STUBS": ""}


def compile_it(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(COMPILER), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_same_input_is_compiled_once(tmp_path: Path, environment: dict[str, str]) -> None:
    for name in ("first", "second", "first"):
        (tmp_path / "copy.cpp").write_text((tmp_path / f"{name}.cpp").read_text())
        for source in (f"{name}.cpp", "copy.cpp"):  # a name is no input
            done = compile_it(tmp_path, environment, source, "-o", "made.o", "-O3")
            assert (done.returncode, (tmp_path / "made.o").read_text()) == (0, name)
    assert (tmp_path / "calls").read_text().splitlines() == ["first.cpp -o made.o -O3", "second.cpp -o made.o -O3"]
    for arguments, key in (("-O0", "version"), ("-O3", "newer")):
        compile_it(tmp_path, environment | {"COMPILED_KEY": key}, "first.cpp", "-o", "made.o", arguments)
    assert len((tmp_path / "calls").read_text().splitlines()) == 4


def test_where_the_environment_lies_is_no_input(tmp_path: Path, environment: dict[str, str]) -> None:
    for place in ("/environment", "/elsewhere"):
        there = environment | {"COMPILED_WITHOUT": place}
        compile_it(tmp_path, there, "first.cpp", "-o", "made.o", f"-I{place}/include")
    assert (tmp_path / "calls").read_text().splitlines() == ["first.cpp -o made.o -I/environment/include"]


def test_a_program_looks_for_libraries_where_its_environment_lies(tmp_path: Path, environment: dict[str, str]) -> None:
    for place in ("/environment", "/elsewhere"):
        there = environment | {"COMPILED_WITHOUT": place}
        compile_it(tmp_path, there, "first.cpp", "-o", "made", f"-Wl,-rpath,{place}/lib")
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


def test_a_kernel_is_linked_with_empty_libraries(tmp_path: Path, environment: dict[str, str]) -> None:
    there = environment | {"COMPILED_STUBS": "/stubs"}
    for name, library in (("first", "-ltorch_python"), ("second", "-ltorch_cpu")):
        compile_it(
            tmp_path, there, f"{name}.cpp", "-o", "made.so", "-shared", "-include", "header", library, "-L/torch"
        )
    assert (tmp_path / "calls").read_text().splitlines() == [
        "first.cpp -o made.so -shared -include header -L/stubs -Wl,--no-as-needed -ltorch_python -L/torch",
        "second.cpp -o made.so -shared -include header -ltorch_cpu -L/torch",
    ]


def test_errors_and_questions_are_the_compilers_own(tmp_path: Path, environment: dict[str, str]) -> None:
    for _ in range(2):
        done = compile_it(tmp_path, environment, "wrong.cpp", "-o", "made.o")
        assert (done.returncode, done.stderr) == (3, "wrong.cpp: error\n")
    compile_it(tmp_path, environment, "--version")
    assert (tmp_path / "calls").read_text().splitlines() == ["wrong.cpp -o made.o"] * 2 + ["--version"]
