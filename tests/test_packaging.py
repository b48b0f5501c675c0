"""What is in the wheel and in the source distribution."""

from __future__ import annotations

import runpy
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return zipfile.ZipFile(path).namelist()


def files(folder: str) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*") if path.is_file()]


def test_the_wheel_has_every_page_style_and_script(wheel: list[str]) -> None:
    expected = [*files("templates"), *files("static/css"), *files("static/js"), "static/package.json"]
    assert len(expected) > 10
    assert [name for name in expected if f"viewer/{name}" not in wheel] == []


def test_the_wheel_has_the_licence_and_no_tests(wheel: list[str]) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in wheel)
    tops = {name.split("/")[0] for name in wheel}
    assert tops - {"tracer", "viewer"} == {top for top in tops if top.endswith(".dist-info")}


@pytest.mark.parametrize(("version", "copies"), [("standard", True), ("editable", False)])
def test_only_an_install_that_is_not_editable_gets_copies(version: str, copies: bool) -> None:
    scope = runpy.run_path(str(ROOT / "static" / "hatch_build.py"))
    hook = scope["CustomBuildHook"](str(ROOT), {}, None, None, "", "wheel")
    build_data: dict[str, dict[str, str]] = {"force_include": {}}
    hook.initialize(version, build_data)
    assert bool(build_data["force_include"]) == copies


def test_the_source_distribution_can_be_built_and_tested(tmp_path: Path) -> None:
    (path,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path))
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for needed in ("Makefile", "constraints.txt", "LICENSE", "README.md", "static/hatch_build.py", "tests/__init__.py"):
        assert needed in names
