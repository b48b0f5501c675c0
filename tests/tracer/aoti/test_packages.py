"""AOTInductor's packages under `stepscope run --aoti`, from Python and from a C++ program: levels, filter, death."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.aoti.capture import import_file
from stepscope.viewer.overview.summary import summary
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from tests import python_processes
from tests.capture.conftest import ROOT, clean_environment
from tests.tracer.aoti.test_capture import STEPSCOPE, kinds, logs

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="packages are compiled with g++"),
    pytest.mark.slow,
]
FUSED = "cpp_fused_log_relu_sub_0"
FILTER = ("aoti_torch_cpu_addmm_out", FUSED)
KERNELS = ["aoti_torch_cpu_addmm_out", FUSED, "aoti_torch_cpu_mm_out", "cpp_fused_sin_1"]


class Packages:
    """One package for each level, and a program that runs one; compiled once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.environment = folder, clean_environment(folder / "cache")
        building = subprocess.Popen(compiler(folder / "model"), stderr=subprocess.DEVNULL)
        self.compiled = self.run(
            "values", "python", sys.executable, "-m", "tests.tracer.aoti.packages", str(folder), "printed", "launches",
            "save", kernels=",".join(FILTER), cwd=ROOT,
        )  # fmt: skip
        assert building.wait(300) == 0
        self.cpp_program = str(folder / "model")

    def run(
        self,
        level: str,
        name: str,
        *command: str,
        kernels: str = "",
        options: Sequence[str] = (),
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Logs come into the folder `name`, which the command runs in."""
        target = self.folder / name
        target.mkdir()
        chosen = [*(["--kernels", kernels] if kernels else []), *options]
        words = [*STEPSCOPE, "run", "--aoti", level, *chosen, "-o", target, "--", *command]
        return python_processes.run(words, timeout=900, cwd=cwd or target, env=self.environment)

    def printed(self, name: str, package: str, calls: int) -> str:
        """What the C++ program prints without stepscope, in a folder `name` of its own."""
        folder = self.folder / name
        folder.mkdir()
        command = [self.cpp_program, str(self.folder / package), str(calls)]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=900, cwd=folder, env=self.environment
        ).stdout


def compiler(target: Path) -> list[str]:
    """The command that builds model.cpp with the libtorch of this Python."""
    import torch
    from torch.utils.cpp_extension import include_paths, library_paths

    includes = [f"-I{path}" for path in include_paths()]
    libraries = [flag for path in library_paths() for flag in (f"-L{path}", f"-Wl,-rpath,{path}")]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    source = str(Path(__file__).with_name("model.cpp"))
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O0", abi, *includes, source, "-o", str(target)]
    return [*command, *libraries, "-ltorch", "-ltorch_cpu", "-lc10"]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return Packages(tmp_path_factory.mktemp("packages"))


def recorded(folder: Path) -> tuple[dict[str, Any], list[Any], list[Any]]:
    """Of the log of what was printed: the summary, its launches with their times, its saved tensors."""
    for log in logs(folder):
        with open_trace([str(log)]) as trace:
            found = summary(trace)
            if found["runs"][0]["torch"] is None:  # the other log is of the process itself
                launches = sql.rows(
                    trace,
                    "SELECT l.step, s.kernel, l.returned, l.device_duration_ns FROM launches l"
                    " JOIN sites s ON s.site = l.site ORDER BY l.launch",
                )
                saved = sql.rows(
                    trace,
                    "SELECT s.kernel, a.name, t.moment, t.file, t.dtype, t.size, l.step FROM saved_tensors t"
                    " JOIN sites s ON s.site = t.site JOIN launches l ON l.launch = t.launch"
                    " JOIN arguments a ON a.site = t.site AND a.argument = t.argument ORDER BY t.tensor",
                )
                return found, launches, saved
    raise AssertionError("no log of what was printed")


def test_values_from_python_with_the_printers_filter(packages: Packages) -> None:
    done = packages.compiled
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [f"own line {n}" for n in range(3)]
    text = packages.printed("filtered", "printed.pt2", 1)
    assert f"before_launch - {FUSED}" in text
    assert "before_launch - cpp_fused_sin_1" not in text
    found, launches, _ = recorded(packages.folder / "python")
    of_values = [row for row in launches if row[0] < 3]
    assert [(step, kernel) for step, kernel, *_ in of_values] == [(step, k) for step in range(3) for k in FILTER]
    (finding,) = [one for one in found["findings"] if one["kind"] == "nonfinite"]
    assert (finding["kernel"], finding["evidence"]["origin"]) == (FUSED, "not known")
    assert kinds(found) == {"nonfinite"}
    with open_trace(packages.folder / "python") as trace:  # with the code, which says that the kernel reads no more
        (finding,) = [one for one in summary(trace)["findings"] if one["kind"] == "nonfinite"]
    assert (finding["kernel"], finding["evidence"]["origin"]) == (FUSED, "made")


def test_a_cpp_program_prints_the_same(packages: Packages) -> None:
    done = packages.run("values", "cpp", packages.cpp_program, str(packages.folder / "printed.pt2"), "2")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("own")] == ["own line 0", "own line 1"]
    found, launches, _ = recorded(packages.folder / "cpp")
    assert [kernel for _, kernel, *_ in launches] == [*FILTER] * 2
    assert "nonfinite" in kinds(found)
    (packages.folder / "sent.txt").write_text(packages.printed("alone", "printed.pt2", 2))
    log, runs, count = import_file(str(packages.folder / "sent.txt"), packages.folder / "sent")
    assert (runs, count) == (2, 4)
    assert log.exists()


def test_names_of_kernels_and_the_launch_in_which_it_died(packages: Packages) -> None:
    package = str(packages.folder / "launches.pt2")
    done = packages.run("launches", "names", packages.cpp_program, package, "3")
    assert done.returncode == 0, done.stderr
    _, launches, _ = recorded(packages.folder / "names")
    assert [(step, kernel) for step, kernel, *_ in launches] == [(step, k) for step in range(3) for k in KERNELS]
    assert all(returned for _, _, returned, _ in launches)
    done = packages.run("launches", "death", packages.cpp_program, package, "1", "then die")
    assert done.returncode == 128 + signal.SIGSEGV
    found, launches, _ = recorded(packages.folder / "death")
    assert [kernel for _, kernel, *_ in launches] == KERNELS  # nothing that was printed is lost in the crash
    assert "crash" in kinds(found)


def test_tensors_that_it_saves_are_collected(packages: Packages) -> None:
    import torch

    done = packages.run("save", "save", packages.cpp_program, str(packages.folder / "save.pt2"), "1")
    assert done.returncode == 0, done.stderr
    folder = packages.folder / "save"
    _, launches, saved = recorded(folder)
    assert [kernel for _, kernel, *_ in launches] == KERNELS
    printed = packages.printed("saves", "save.pt2", 1).splitlines()
    assert len(saved) == len([line for line in printed if "Saved tensor to" in line]) > len(KERNELS)
    for kernel, name, moment, file, dtype, size, _ in saved:
        tensor = torch.load(folder / file, weights_only=True)
        assert (str(tensor.dtype), str(list(tensor.shape))) == (f"torch.{dtype}", size.replace(",", ", "))
        (original,) = (folder / "tmp").rglob(f"*{moment}_launch_{kernel}_{name}_cpu.pt")
        assert torch.equal(tensor.nan_to_num(), torch.load(original, weights_only=True).nan_to_num())
    listed = subprocess.run([*STEPSCOPE, "tensor", str(folder)], capture_output=True, text=True, check=True).stdout
    assert (listed.count(" present"), listed.count(" missing")) == (len(saved), 0)


def test_only_tensors_of_the_chosen_kernels_are_collected(packages: Packages) -> None:
    package = str(packages.folder / "save.pt2")
    done = packages.run("save", "chosen", packages.cpp_program, package, "1", kernels="*_mm_*,cpp_fused_s*")
    assert done.returncode == 0, done.stderr
    _, launches, saved = recorded(packages.folder / "chosen")
    assert [kernel for _, kernel, *_ in launches] == KERNELS
    assert {kernel for kernel, *_ in saved} == {"aoti_torch_cpu_mm_out", "cpp_fused_sin_1"}
    files = {path.name for path in packages.folder.glob("chosen/*_tensors/*")}
    assert files == {Path(file).name for _, _, _, file, *_ in saved}


def test_a_program_without_python_is_run_again_with_what_its_package_prints(packages: Packages) -> None:
    """The package prints names in each run, the first included; what it prints was settled when it was compiled."""
    package, options = str(packages.folder / "launches.pt2"), ("--crash", "--max-runs", "3")
    done = packages.run("values", "again", packages.cpp_program, package, "1", "then die", options=options)
    assert done.returncode == 128 + signal.SIGSEGV
    with open_trace(packages.folder / "again") as trace:
        found = summary(trace)
    purposes = [
        "as it is",
        "one launch at a time",
        "sanity checks",
    ]  # it died outside any launch: no values are asked for
    assert [(row["purpose"], row["symptom"]) for row in found["crash_runs"]] == [(one, "SIGSEGV") for one in purposes]
    (finding,) = [one for one in found["findings"] if one["kind"] == "crash"]
    assert [row["kernel"] for row in finding["evidence"]["ran_before"]] == KERNELS[::-1]
    assert finding["kernel"] is None
    assert "no printed launch was seen" not in done.stderr


def test_durations_of_the_programs_own_profiler(packages: Packages) -> None:
    text = packages.folder / "names.txt"
    lines = packages.printed("timed_alone", "launches.pt2", 2).splitlines(keepends=True)
    text.write_text("".join(line for line in lines if line.startswith("[ ") and "_launch: " in line))
    log, runs, count = import_file(str(text), packages.folder / "timed", packages.folder / "profile.json")
    assert (runs, count) == (2, 2 * len(KERNELS))
    with open_trace([str(log)]) as trace:
        times = [time for (time,) in sql.rows(trace, "SELECT device_duration_ns FROM launches ORDER BY launch")]
    assert len(times) == count
    assert all(time is not None and 0 < time < 10**9 for time in times)


def test_a_package_that_does_not_print_is_said_to(packages: Packages) -> None:
    done = packages.run("values", "silent", sys.executable, "-c", "print('quiet')")
    assert done.returncode == 0
    assert done.stdout == "quiet\n"
    assert "no printed launch was seen" in done.stderr
    assert logs(packages.folder / "silent") == []
