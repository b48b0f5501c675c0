"""`stepscope tensor`: what is listed and copied, and that no name in a log leads anywhere else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepscope.tracer.runtime.values.save import file_stem, tensors_folder
from stepscope.tracer.schema.values import SavedTensor
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries import saved_files
from tests.logs import synthetic

CONTENT = b"a tensor"
NAME = file_stem(0, 1, "cpp_fused_relu_0", "buf1", None, "after") + ".pt"


@contextmanager
def trace(folder: Path, file: str, log_name: str = "x.log", sha256: str | None = None) -> Iterator[Trace]:
    digest = sha256 or hashlib.sha256(CONTENT).hexdigest()
    saved = SavedTensor(0, 1, 0, None, "after", file, "float32", [4, 8], 128, digest)
    log = synthetic.recorded(steps=1, end=False).record(saved).write(folder / log_name)
    with open_trace(log) as opened:
        yield opened


def put(folder: Path, name: str = NAME, content: bytes = CONTENT) -> Path:
    path = tensors_folder(folder / "x.log") / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("file", [NAME, f"x_tensors/{NAME}", f"name_before_the_log_was_renamed_tensors/{NAME}"])
def test_a_saved_tensor_is_listed_described_and_copied(tmp_path: Path, file: str) -> None:
    put(tmp_path)
    with trace(tmp_path, file) as opened:
        head, row = saved_files.tensor_list(opened).splitlines()
        assert head.split()[:4] == ["id", "step", "launch", "kernel"]
        cells = row.split()
        assert cells[:2] == ["0", "0"]
        assert cells[3:] == ["cpp_fused_relu_0", "buf1", "after", "float32", "[4,", "8]", "128", "present"]
        text = saved_files.tensor_text(opened, 0)
        assert "tensor 0: buf1 after cpp_fused_relu_0" in text
        assert f"{NAME}: present" in text
        out = tmp_path / "new" / "x.pt"
        assert saved_files.copy_tensor(opened, 0, out) == len(CONTENT)
        assert out.read_bytes() == CONTENT


def test_a_file_that_is_there_stays_without_force(tmp_path: Path) -> None:
    put(tmp_path)
    out = tmp_path / "x.pt"
    out.write_bytes(b"mine")
    with trace(tmp_path, NAME) as opened:
        with pytest.raises(StepscopeError, match="already exists"):
            saved_files.copy_tensor(opened, 0, out)
        assert out.read_bytes() == b"mine"
        saved_files.copy_tensor(opened, 0, out, force=True)
        assert out.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "file",
    ["secret.pt", "x_tensors/secret.pt", f"elsewhere/{NAME}", f"x_tensors/deeper/{NAME}", f"{NAME}\n", f"{NAME}\0",
     "step0_launch0_\\secret.pt", f"./{NAME}", "x_tensors", "step1_launch" + "a" * 300 + ".pt"],
)  # fmt: skip
def test_no_other_name_is_opened(tmp_path: Path, file: str) -> None:
    for path in (tmp_path / "secret.pt", tmp_path / "x_tensors" / "secret.pt", tmp_path / "elsewhere" / NAME):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(CONTENT)
    out = tmp_path / "out.pt"
    with trace(tmp_path, file) as opened:
        assert "present" not in saved_files.tensor_list(opened)
        with pytest.raises(StepscopeError, match="no file that can be opened"):
            saved_files.copy_tensor(opened, 0, out)
    assert not out.exists()


@pytest.mark.parametrize(
    "file", ["/etc/passwd", "../x_tensors/" + NAME, "step0_launch0/../../secret.pt", "C:\\" + NAME]
)
def test_names_that_lead_out_of_the_folder_do_not_get_in(tmp_path: Path, file: str) -> None:
    put(tmp_path)
    with trace(tmp_path, file) as opened:
        assert "present" not in saved_files.tensor_list(opened)
        with pytest.raises(StepscopeError):
            saved_files.copy_tensor(opened, 0, tmp_path / "out.pt")


@pytest.mark.parametrize("case", ["link", "folder is a link", "pipe", "folder", "missing"])
def test_only_a_plain_file_in_a_plain_folder_is_read(tmp_path: Path, case: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    path = put(tmp_path)
    path.unlink()
    if case == "link":
        path.symlink_to(secret)
    elif case == "folder is a link":
        path.parent.rmdir()
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / NAME).write_bytes(CONTENT)
        path.parent.symlink_to(tmp_path / "real")
    elif case == "pipe":
        os.mkfifo(path)
    elif case == "folder":
        path.mkdir()
    with trace(tmp_path, NAME) as opened:
        assert "present" not in saved_files.tensor_list(opened)
        assert "present" not in saved_files.tensor_text(opened, 0)
        with pytest.raises(StepscopeError, match=NAME) as error:
            saved_files.copy_tensor(opened, 0, tmp_path / "out.pt")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out.pt").exists()


def test_another_content_is_not_copied(tmp_path: Path) -> None:
    put(tmp_path, content=b"another")
    out = tmp_path / "out"
    with trace(tmp_path, NAME) as opened:
        assert "changed since it was saved" in saved_files.tensor_text(opened, 0)
        with pytest.raises(StepscopeError, match="sha256"):
            saved_files.copy_tensor(opened, 0, out / "x.pt")
    assert list(out.iterdir()) == []


def test_ids_that_are_not_there(tmp_path: Path) -> None:
    with trace(tmp_path, NAME) as opened:
        for number in (1, -1, 2**70):
            with pytest.raises(StepscopeError, match=f"no saved tensor {number} "):
                saved_files.tensor_text(opened, number)


def test_a_trace_without_saved_tensors(tmp_path: Path) -> None:
    with open_trace(synthetic.recorded(steps=1).write(tmp_path / "x.log")) as opened:
        assert saved_files.tensor_list(opened) == "No tensor was saved; record with --level save."
