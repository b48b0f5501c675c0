"""Tests an installed stepscope among modules with the same names: `import torch`, recording, and commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


ROOT = Path(__file__).resolve().parents[1]
NAMES = ("tracer", "viewer", "templates", "static", "tests")
PROGRAM = """\
import torch, tracer, viewer
print(tracer.WHOSE, viewer.WHOSE, torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(1)).item())
"""
MINE = "WHOSE = 'mine'\n"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def pip(python: Path, *words: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", *map(str, words)]
    subprocess.run(command, env=plain_environment(), check=True, capture_output=True, timeout=PATIENCE_S)


def plain_environment() -> dict[str, str]:
    """Return the environment without variables that lead to this checkout."""
    return {name: text for name, text in os.environ.items() if not name.startswith(("STEPSCOPE", "PYTHON"))}


def wheel_of_another(folder: Path, name: str, module: str) -> Path:
    """Write a wheel of another project that contains one module."""
    path = folder / f"{name}-9.0-py3-none-any.whl"
    info = f"{name}-9.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(module, MINE)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{module},,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return Path(path)


def environment(folder: Path) -> Path:
    """Create an empty environment and return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the wheel, followed by the packages of these tests, such as torch."""
    found = environment(tmp_path_factory.mktemp("environment"))
    pip(found, "install", "--no-deps", "--no-index", wheel)
    (site_packages(found) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return found


def site_packages(python: Path) -> Path:
    (folder,) = python.parents[1].glob("lib/python*/site-packages")
    return folder


@pytest.fixture
def run(python: Path, tmp_path: Path) -> Run:
    """Return a function that runs a command with the environment's Python in the folder ``work``."""
    (tmp_path / "work").mkdir()

    def run_words(
        *words: str | Path, path: Path | None = None, trace: Path | None = None, program: str = "python"
    ) -> subprocess.CompletedProcess[str]:
        environment = plain_environment()
        environment |= {"PYTHONPATH": str(path)} if path else {}
        environment |= {"STEPSCOPE_TRACE": str(trace)} if trace else {}
        command = [str(python.with_name(program)), *map(str, words)]
        return subprocess.run(
            command,
            cwd=tmp_path / "work",
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    return run_words


def other_modules(folder: Path) -> None:
    for name in NAMES:
        (folder / f"{name}.py").write_text(MINE)


def other_packages(folder: Path) -> None:
    for name in NAMES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(MINE)


@pytest.mark.parametrize(("others", "where"), [(other_modules, "work"), (other_packages, "elsewhere")])
def test_names_of_the_checkout_are_the_users_own(
    run: Run, tmp_path: Path, others: Callable[[Path], None], where: str
) -> None:
    """The folder `elsewhere` is on PYTHONPATH, which the Python of the command reads too."""
    (tmp_path / where).mkdir(exist_ok=True)
    others(tmp_path / where)
    path = tmp_path / where if where == "elsewhere" else None
    (tmp_path / "work" / "train.py").write_text(PROGRAM)
    silent = run("train.py", path=path)
    assert (silent.stdout, silent.stderr) == ("mine mine 2.0\n", "")
    recorded = run("train.py", path=path, trace=tmp_path / "by_variable")
    assert (recorded.stdout, recorded.stderr) == ("mine mine 2.0\n", "")
    assert len([*(tmp_path / "by_variable").glob("*.log")]) == 1
    out = tmp_path / "by_command"
    commanded = run("run", "-o", out, "--", "train.py", path=path, program="stepscope")
    assert (commanded.returncode, commanded.stdout) == (0, "mine mine 2.0\n"), commanded.stderr
    (log,) = out.glob("*.log")
    for words in (["stepscope", "summary", log], ["python", "-m", "stepscope", "summary", log]):
        read = run(*words[1:], path=path, program=str(words[0]))
        assert read.returncode == 0, read.stderr
        assert "<lambda> (train.py:2)" in read.stdout


def said_by(python: Path, code: str) -> str:
    command = [str(python), "-c", code]
    return subprocess.run(
        command,
        cwd=python.parent,
        env=plain_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    ).stdout


@pytest.mark.parametrize("first", ["stepscope", "tracer"])
def test_a_distribution_with_the_name_of_a_folder(wheel: Path, tmp_path: Path, first: str) -> None:
    """A distribution called `tracer` exists; installing it before or after, and removing it, changes nothing."""
    bare = environment(tmp_path / "environment")
    wheels = {"stepscope": wheel, "tracer": wheel_of_another(tmp_path, "tracer", "tracer.py")}
    for name in sorted(wheels, key=lambda name: name != first):
        pip(bare, "install", "--no-deps", "--no-index", wheels[name])
    code = "import tracer, stepscope; print(tracer.WHOSE, stepscope.trace.__module__)"
    assert said_by(bare, code) == "mine stepscope.tracer\n"
    pip(bare, "uninstall", "-y", "tracer")
    code = "import stepscope.tracer, _stepscope_autostart as a; print(a.autostart())"
    assert said_by(bare, code) == "None\n"


def test_a_script_that_is_named_stepscope(run: Run, tmp_path: Path) -> None:
    """The script is not imported instead of the package, as that would run it twice; it runs without recording."""
    script = tmp_path / "work" / "stepscope.py"
    script.write_text("print('runs')\nimport torch\nprint(torch.ones(1).item())\n")
    silent = run("stepscope.py")
    assert (silent.stdout, silent.stderr) == ("runs\n1.0\n", "")
    recorded = run("stepscope.py", trace=tmp_path / "out")
    assert recorded.stdout == "runs\n1.0\n"
    assert recorded.stderr == f"stepscope: nothing is recorded: the name stepscope is used by {script}\n"


def test_a_package_that_is_named_stepscope(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "work" / "stepscope"
    other.mkdir()
    (other / "__init__.py").write_text("raise RuntimeError('not asked for')\n")
    recorded = run("-c", "import torch; print(torch.ones(1).item())", trace=tmp_path / "out")
    assert recorded.stdout == "1.0\n"
    taken = f"stepscope: nothing is recorded: the name stepscope is used by {other / '__init__.py'}\n"
    assert recorded.stderr == taken


def test_a_folder_that_is_named_stepscope(run: Run, tmp_path: Path) -> None:
    """A clone of the repository or a folder of logs is not a package and does not interfere."""
    (tmp_path / "work" / "stepscope" / "tracer").mkdir(parents=True)
    code = "import torch; torch.compile(lambda x: x + 1, backend='aot_eager')(torch.ones(1))"
    recorded = run("-c", code, trace=tmp_path / "out")
    assert (recorded.returncode, recorded.stderr) == (0, "")
    assert len([*(tmp_path / "out").glob("*.log")]) == 1


def test_metadata_without_the_package(run: Run, python: Path, tmp_path: Path) -> None:
    """This is the state of an editable install whose checkout was moved, or of a package whose folder was deleted."""
    own = site_packages(python)
    left = tmp_path / "left"
    left.mkdir()
    shutil.move(own / "stepscope", left)
    try:
        code = "import torch; print(torch.ones(1).item())"
        silent = run("-c", code)
        assert (silent.stdout, silent.stderr) == ("1.0\n", "")
        recorded = run("-c", code, trace=tmp_path / "out")
        assert recorded.stdout == "1.0\n"
        assert recorded.stderr == (
            "stepscope: nothing is recorded: the package stepscope is not installed, only its entry point\n"
        )
    finally:
        shutil.move(left / "stepscope", own)


def test_an_editable_install_has_the_module_that_torch_loads(tmp_path: Path) -> None:
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["editable"])
    with zipfile.ZipFile(path) as built:
        assert "_stepscope_autostart.py" in built.namelist()
        assert b"_stepscope_autostart:autostart" in built.read(
            next(name for name in built.namelist() if name.endswith("entry_points.txt"))
        )


def test_what_cannot_be_imported_is_said_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "work" / "orjson.py").write_text("raise ValueError('mine')\n")
    code = "import torch; print(torch.compile(lambda x: x + 1, backend='aot_eager')(torch.ones(1)).item())"
    recorded = run("-c", code, trace=tmp_path / "out")
    assert (recorded.stdout, recorded.stderr) == ("2.0\n", "stepscope: nothing is recorded: mine\n")


def test_importing_the_package_imports_nothing_else(run: Run) -> None:
    code = "import __future__, sys, typing; before = {*sys.modules}; import stepscope"
    loaded = run("-c", f"{code}; print(sorted({{*sys.modules}} - before))")
    assert loaded.stdout == "['stepscope']\n"
    code = "import sys, os; before = {*sys.modules}; import _stepscope_autostart as a; a.autostart()"
    loaded = run("-c", f"{code}; print(sorted({{*sys.modules}} - before))")
    assert loaded.stdout == "['_stepscope_autostart']\n"
