"""Tests the contents of the wheel and of the source distribution."""

from __future__ import annotations

import re
import runpy
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[1]
ENTRY_POINTS = ("_stepscope_autostart.py", "_stepscope_pytest.py")


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return Path(path)


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> list[str]:
    with zipfile.ZipFile(wheel_file) as wheel:
        return wheel.namelist()


def test_the_description_leads_to_no_file_of_the_checkout(wheel_file: Path) -> None:
    with zipfile.ZipFile(wheel_file) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        head, _, text = wheel.read(name).decode().partition("\n\n")
    assert "Description-Content-Type: text/markdown" in head
    assert "Keywords: " in head
    assert text.startswith("# stepscope\n")
    assert "stepscope serve" in text
    targets = re.findall(r"\]\(([^)]*)\)|(?:src|href)=[\"']([^\"']*)", text)
    assert all(any(target.startswith("https://") for target in found) for found in targets)


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("a\n\n![x](docs/step.png)\n\nb", "a\n\nb"),
        ("see [the format](docs/format.md).", "see the format."),
        ("see [it](https://example.com) and [above](#use-it)", "see [it](https://example.com) and [above](#use-it)"),
    ],
)
def test_links_to_files_become_their_words(markdown: str, shown: str) -> None:
    without_files = runpy.run_path(str(ROOT / "static" / "hatch_build.py"))["without_files"]
    assert without_files(markdown) == shown


def files(folder: str, pattern: str = "*") -> list[str]:
    found = (path for path in (ROOT / folder).rglob(pattern) if path.is_file() and "__pycache__" not in path.parts)
    return [path.relative_to(ROOT).as_posix() for path in found]


def test_the_wheel_has_every_module_page_style_and_script(wheel: list[str]) -> None:
    expected = [*files("tracer"), *files("viewer"), *files("templates"), *files("static/css"), *files("static/js")]
    expected = [name for name in expected if not name.startswith("tracer/package/")] + ["static/package.json"]
    assert len(expected) > 400
    assert [name for name in expected if f"stepscope/{name}" not in wheel] == []
    assert {"stepscope/__init__.py", "stepscope/__main__.py", "stepscope/integrations.py", *ENTRY_POINTS} <= {*wheel}


def test_the_wheel_owns_one_import_name_beside_the_modules_that_others_load(wheel: list[str]) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in wheel)
    tops = {name.split("/")[0] for name in wheel}
    assert tops == {"stepscope", *ENTRY_POINTS, *(top for top in tops if top.endswith(".dist-info"))}


def test_the_folder_of_links_has_what_the_wheel_has(wheel: list[str], tmp_path: Path) -> None:
    for name in ("pyproject.toml", "tracer", "viewer", "templates", "static"):
        (tmp_path / name).symlink_to(ROOT / name)
    make_links = runpy.run_path(str(ROOT / "static" / "links.py"))["make_links"]
    assert make_links(tmp_path) == make_links(tmp_path) == tmp_path / "build" / "import"
    named = [name for name in wheel if ".dist-info/" not in name]
    missing = [name for name in named if not (tmp_path / "build" / "import" / name).is_file()]
    assert missing == []


@pytest.mark.slow
def test_the_source_distribution_can_be_built_and_tested(tmp_path: Path) -> None:
    (path,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path))
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ["Makefile", "constraints.txt", "LICENSE", "README.md", "tests/__init__.py"]
    for name in [*needed, "static/hatch_build.py", "static/links.py", "tracer/package/_stepscope_autostart.py"]:
        assert name in names
