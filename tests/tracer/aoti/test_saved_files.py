"""Files of tensors that generated code saves: which ones are copied, and when."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from stepscope.tracer.aoti.capture import Capture
from stepscope.tracer.aoti.printed_log import PrintedLog, run_record
from stepscope.tracer.aoti.saved_files import SavedFiles, describe
from stepscope.tracer.log.writer import LogWriter
from stepscope.viewer.overview.summary import summary
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace


def tensor_file(path: Path, value: float) -> Path:
    import torch

    torch.save(torch.full((2, 3), value, dtype=torch.float16), path)
    return path


def test_saved_files_are_copied_before_they_are_written_over(tmp_path: Path) -> None:
    files = SavedFiles(tmp_path / "log_tensors", 10**6)
    path = tensor_file(tmp_path / "aoti_torchbefore_launch_k_buf0_cpu.pt", 1.0)
    os.utime(path, ns=(path.stat().st_mtime_ns,) * 2)
    first = files.keep(str(path))
    assert (first.problem, first.dtype, first.size, first.tensor_bytes) == (None, "float16", [2, 3], 12)
    later = tensor_file(path, 2.0).stat().st_mtime_ns + 10**7
    os.utime(path, ns=(later, later))
    second = files.keep(str(path))
    assert (first.problem, second.problem) == (None, None)
    assert first.sha256 != second.sha256
    assert describe(tmp_path / second.file) == ("float16", [2, 3], 2)
    assert "overwrote" in (files.keep(str(path)).problem or second.problem or "")


@pytest.mark.parametrize("separator", ["", "/"])  # of torch 2.13 and of 2.15
def test_only_files_of_the_chosen_kernels_are_copied(tmp_path: Path, separator: str) -> None:
    names = [f"aoti_torch{separator}{moment}_launch_{kernel}_cpu.pt" for kernel in ("cpp_fused_0_buf0", "mm_out_buf1")
             for moment in ("before", "after")]  # fmt: skip
    (tmp_path / names[0]).parent.mkdir(exist_ok=True)
    files = [tensor_file(tmp_path / name, 1.0) for name in names]
    log = PrintedLog(0, lambda kernel: kernel.startswith("cpp"))
    target = tmp_path / "t" / "log_tensors"
    capture = Capture(LogWriter(tmp_path / "t", None), run_record(["x"], 1, "save"), log, SavedFiles(target, 10**6))
    for file in files:
        capture.feed(f"aoti_torch_save_tensor_handle: Saved tensor to {file}\n".encode())
    capture.end()
    with open_trace([str(capture.writer.path)]) as trace:
        rows = sql.rows(
            trace, "SELECT s.kernel, t.moment FROM saved_tensors t JOIN sites s ON s.site = t.site ORDER BY 2"
        )
        assert summary(trace)["counts"]["launches"] == 2
        skipped = [one["what"] for one in summary(trace)["ingest"]["not_recorded"]]
    assert rows == [("cpp_fused_0", "after"), ("cpp_fused_0", "before")]
    assert len(list(target.iterdir())) == 2
    assert "saved tensors" not in skipped


def test_a_file_that_is_torn_is_a_problem_of_that_file(tmp_path: Path) -> None:
    torn = tmp_path / "before_launch_k_buf0_cpu.pt"
    with zipfile.ZipFile(torn, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(5000))
    data = bytearray(torn.read_bytes())
    data[40:50] = b"\xff" * 10
    torn.write_bytes(data)
    assert "cannot be read" in (SavedFiles(tmp_path / "out", 1 << 20).keep(str(torn)).problem or "")


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    files = SavedFiles(tmp_path / "log_tensors", 10**6)
    old = tensor_file(tmp_path / "old.pt", 1.0)
    os.utime(old, (1, 1))
    assert "not written by this run" in (files.keep(str(old)).problem or "")
    (tmp_path / "link.pt").symlink_to(old)
    assert "not written by this run" in (files.keep(str(tmp_path / "link.pt")).problem or "")
    assert "cannot be read" in (files.keep(str(tmp_path / "none.pt")).problem or "")
    (tmp_path / "text.pt").write_text("no zip")
    assert "cannot be read" in (files.keep(str(tmp_path / "text.pt")).problem or "")
    with zipfile.ZipFile(tmp_path / "empty.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02.")
    assert "contains no tensor" in (files.keep(str(tmp_path / "empty.pt")).problem or "")
    small = SavedFiles(tmp_path / "log_tensors", 10)
    assert "--save-quota" in (small.keep(str(tensor_file(tmp_path / "new.pt", 1.0))).problem or "")
