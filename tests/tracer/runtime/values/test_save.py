"""Saved tensors: they load back bit for bit, never overwrite, keep to the quota, and leave the program alone."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from stepscope.tracer.runtime.values import save as module
from stepscope.tracer.runtime.values.save import Saved, TensorSaver, file_stem, tensors_folder

WHERE: dict[str, Any] = {
    "step": 3, "launch": 41, "kernel": "cpp_fused__softmax_3", "argument": "buf17", "item": None, "moment": "after",
}  # fmt: skip


@pytest.fixture
def saver(tmp_path: Path) -> TensorSaver:
    return TensorSaver(tmp_path / "log_tensors", 10_000_000)


def save(saver: TensorSaver, tensor: torch.Tensor, **changes: Any) -> Saved:
    saved = saver.save(tensor, **{**WHERE, **changes})
    assert isinstance(saved, Saved), saved
    return saved


def load(saver: TensorSaver, saved: Saved) -> Any:
    return torch.load(saver.folder.parent / saved.file, weights_only=True)


TENSORS = {
    "plain": torch.randn(5, 3),
    "scalar": torch.tensor(3.5),
    "empty": torch.empty(0, 3),
    "slice": torch.randn(100, 1000)[3:5, ::2],
    "transposed": torch.randn(4, 6).t(),
    "expanded": torch.randn(3).expand(4, 3),
    "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "bfloat16": torch.randn(7).bfloat16(),
    "float8": torch.randn(7).to(torch.float8_e4m3fn),
    "bool": torch.tensor([True, False]),
    "int64": torch.tensor([2**62, -1]),
    "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    "nonfinite": torch.tensor([float("nan"), float("inf"), -0.0]),
    "parameter": torch.nn.Parameter(torch.randn(3)),
}


@pytest.mark.parametrize("name", TENSORS)
def test_it_loads_back_bit_for_bit(saver: TensorSaver, name: str) -> None:
    tensor = TENSORS[name].detach()
    saved = save(saver, TENSORS[name])
    back = load(saver, saved)
    assert (back.dtype, back.size(), back.device.type) == (tensor.dtype, tensor.size(), "cpu")
    assert type(back) is torch.Tensor
    assert not back.requires_grad
    physical = tensor.resolve_conj()
    assert back.contiguous().view(-1).view(torch.uint8).equal(physical.contiguous().view(-1).view(torch.uint8))
    assert back.untyped_storage().nbytes() == saved.tensor_bytes == tensor.numel() * tensor.element_size()
    assert saved.size == list(tensor.size())
    assert f"torch.{saved.dtype}" == str(tensor.dtype)
    if name in ("transposed", "channels_last"):
        assert back.stride() == tensor.stride()
    content = (saver.folder.parent / saved.file).read_bytes()
    assert hashlib.sha256(content).hexdigest() == saved.sha256
    assert saver.used_bytes == len(content)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_sparse_and_ragged_tensors(saver: TensorSaver) -> None:
    sparse = torch.eye(4).to_sparse()
    assert load(saver, save(saver, sparse)).to_dense().equal(torch.eye(4))
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)], layout=torch.jagged)
    saved = saver.save(ragged, **WHERE)
    if isinstance(saved, Saved):
        assert load(saver, saved).values().equal(ragged.values())
        assert saved.size == [2, -1]
    else:  # torch 2.15 loads none with weights_only=True
        assert "torch.load(weights_only=True) would not load" in saved


def test_what_holds_no_values_is_refused(saver: TensorSaver) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    freed = torch.randn(1000)
    freed.untyped_storage().resize_(0)
    cases = [(torch.ones(3, device="meta"), "meta"), (fake, "fake"), (freed, "freed"), (7, "int is no tensor")]
    for tensor, why in cases:
        answer = saver.save(tensor, **WHERE)  # type: ignore[arg-type]
        assert isinstance(answer, str)
        assert why in answer
    assert not saver.folder.exists()
    assert sum(saver.not_saved.values()) == 4


def test_names_say_where_and_never_come_twice(saver: TensorSaver) -> None:
    name = "step0003_launch0041_cpp_fused__softmax_3_buf17_after"
    files = [save(saver, torch.ones(n)).file for n in (1, 2, 3)]
    assert files == [f"log_tensors/{name}.pt", f"log_tensors/{name}_2.pt", f"log_tensors/{name}_3.pt"]
    assert saver.folder == tensors_folder(saver.folder.parent / "log.log")
    assert [len(torch.load(saver.folder.parent / file)) for file in files] == [1, 2, 3]


def test_a_file_that_is_there_is_not_touched(saver: TensorSaver) -> None:
    saver.folder.mkdir()
    there = saver.folder / f"{file_stem(**WHERE)}.pt"
    there.write_bytes(b"mine")
    link = saver.folder / f"{file_stem(**WHERE)}_2.pt"
    link.symlink_to(saver.folder / "elsewhere")
    assert save(saver, torch.ones(1)).file.endswith("_after_3.pt")
    assert there.read_bytes() == b"mine"
    assert not (saver.folder / "elsewhere").exists()


def test_names_are_safe_and_short() -> None:
    stem = file_stem(1, 2, "../../etc/x y\n", "reinterpret_tensor(buf3, (4, 8), (8, 1), 0)", 5, "before")
    assert stem == "step0001_launch0002_.._.._etc_x_y__reinterpret_tensor_buf3_4_8_8_1_0__item5_before"
    long = [file_stem(2**62, 2**62, "k" * 300 + end, "a" * 300, 10, "before") for end in "xy"]
    assert long[0] != long[1]
    assert all(len(stem) < 240 for stem in long)


def test_the_quota_is_of_files_and_kept(saver: TensorSaver) -> None:
    saver.quota_bytes = 10_000
    save(saver, torch.ones(1000))
    refused = saver.save(torch.ones(2000), **WHERE)
    assert isinstance(refused, str)
    assert "10,000 bytes" in refused
    save(saver, torch.ones(100))  # what fits still goes in
    assert "quota" in str(saver.save(torch.ones(800), **WHERE))  # its elements fit, its file does not
    sizes = [path.stat().st_size for path in saver.folder.iterdir()]
    assert len(sizes) == 2
    assert saver.used_bytes == sum(sizes) <= 10_000
    saver.quota_bytes = 100_000
    save(saver, torch.ones(2000))


def test_a_full_disk_ends_saving_and_leaves_no_part(saver: TensorSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    save(saver, torch.ones(1))

    def full(self: Any, data: Any, count: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module._Sink, "_take", full)
        answer = saver.save(torch.ones(1), **WHERE)
    assert "No space left on device" in str(answer)
    assert len(list(saver.folder.iterdir())) == 1
    assert saver.save(torch.ones(1), **WHERE) == answer


def test_a_folder_that_cannot_be_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write" in str(TensorSaver(tmp_path / "file" / "x_tensors", 10**6).save(torch.ones(1), **WHERE))
    (tmp_path / "target").mkdir()
    (tmp_path / "link_tensors").symlink_to(tmp_path / "target")
    assert "link" in str(TensorSaver(tmp_path / "link_tensors", 10**6).save(torch.ones(1), **WHERE))
    assert not list((tmp_path / "target").iterdir())


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return function(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


def test_the_program_is_left_alone(saver: TensorSaver) -> None:
    leaf = torch.randn(4, requires_grad=True)
    tensor = leaf * 2
    version, random = tensor._version, torch.get_rng_state()
    with _Counting() as dispatch, _Functions() as functions, FlopCounterMode(display=False):
        save(saver, tensor)
        assert (dispatch.seen, functions.seen) == (0, [])
        assert isinstance(saver.save(torch.ones(1, device="meta"), **WHERE), str)
        seen = dispatch.seen
        torch.ones(1)
        assert dispatch.seen > seen
    assert torch.is_grad_enabled()
    assert torch.get_rng_state().equal(random)
    assert tensor._version == version
    tensor.sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    with torch.inference_mode():
        save(saver, torch.ones(2))
        assert torch.is_inference_mode_enabled()


def test_it_never_raises(saver: TensorSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(torch, "save", broken)
    assert saver.save(torch.ones(1), **WHERE) == "RuntimeError: first line"
    assert list(saver.folder.iterdir()) == []


def test_no_copy_while_a_cuda_graph_is_captured(saver: TensorSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    class OnDevice(torch.Tensor):
        is_cuda = True

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert "captured" in str(saver.save(torch.ones(2).as_subclass(OnDevice), **WHERE))
    save(saver, torch.ones(2))  # of the host: nothing is in the way


def test_many_threads_write_whole_files_within_the_quota(saver: TensorSaver) -> None:
    saver.quota_bytes = 100_000
    results: list[Saved | str] = []

    def work(value: int) -> None:
        for _ in range(10):
            results.append(saver.save(torch.full((500,), value), **WHERE))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    saved = [result for result in results if isinstance(result, Saved)]
    assert len({one.file for one in saved}) == len(saved) < len(results) == 40
    assert sum(path.stat().st_size for path in saver.folder.iterdir()) == saver.used_bytes <= 100_000
    assert all(load(saver, one).unique().numel() == 1 for one in saved)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_a_folder_and_a_quota_of_its_own(saver: TensorSaver) -> None:
    save(saver, torch.ones(10))
    saver._lock.acquire()  # held by a thread that the child does not have
    pid = os.fork()
    if pid == 0:
        saver.after_fork(saver.folder.with_name("child_tensors"))
        done = saver.used_bytes == 0 and isinstance(saver.save(torch.ones(1), **WHERE), Saved)
        os._exit(0 if done else 1)
    saver._lock.release()
    assert os.waitpid(pid, 0)[1] == 0
    assert len(list(saver.folder.iterdir())) == 1
    assert len(list(saver.folder.with_name("child_tensors").iterdir())) == 1
