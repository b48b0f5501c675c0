"""Saves tensors as .pt files beside the log, within a quota. Saving a tensor of a device waits for the device."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from stepscope.tracer.inductor.compat import without_modes

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_KERNEL = 96
LONGEST_ARGUMENT = 48
MOST_REASONS = 100
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True)
class Saved:
    """A file that was written."""

    file: str
    """Path relative to the folder of the log, with ``/``."""
    sha256: str
    """Digest of the file."""
    tensor_bytes: int
    """Bytes of the tensor's elements, or of the file if the tensor is not strided."""
    dtype: str
    size: list[int]


class _NotSaved(Exception):
    """Raised with the reason why a tensor is not saved."""


def tensors_folder(log: Path) -> Path:
    """Return the folder for the tensors of a log: ``<name of the log without its suffix>_tensors`` beside it."""
    return log.with_name(f"{log.stem}_tensors")


class TensorSaver:
    """Writes tensors to files that `torch.load(weights_only=True)` reads; thread-safe.

    `save` never raises. The quota limits the bytes of the files; tensors that do not fit are left out, and smaller
    ones are still saved. After an OSError (a full disk, a removed folder) nothing more is saved.
    """

    def __init__(self, folder: Path, quota_bytes: int) -> None:
        self.quota_bytes = quota_bytes
        self._told: set[str] = set()
        self.after_fork(folder)

    def after_fork(self, folder: Path) -> None:
        """Start again in `folder` with the full quota: a forked child has a log of its own."""
        self.folder = folder
        self.used_bytes = 0
        self.not_saved: Counter[str] = Counter()
        """Number of tensors that were not saved, by reason."""
        self._lock = threading.RLock()
        self._made = False
        self._failure: str | None = None
        self._names: Counter[str] = Counter()

    def save(
        self, tensor: Tensor, *, step: int, launch: int, kernel: str, argument: str, item: int | None, moment: str
    ) -> Saved | str:
        """Write `tensor`; return the reason as a string if it was not saved."""
        try:
            with without_modes():
                self._check(tensor)
                host = _on_host(tensor)
                stem = file_stem(step, launch, kernel, argument, item, moment)
                with self._lock:  # not while waiting for the device: another thread may have to launch first
                    return self._write(host, stem)
        except _NotSaved as reason:
            return self._said(str(reason))
        except Exception as error:
            return self._said(f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}")

    def remove(self, saved: Saved) -> None:
        """Delete a file that is no longer wanted, and give its bytes back to the quota. Never raises."""
        path = self.folder / Path(saved.file).name
        with self._lock, suppress(OSError):
            size = path.stat().st_size
            path.unlink()
            self.used_bytes -= size

    def is_new(self, reason: str) -> bool:
        """Return whether this is the first time that the recorder is told this reason for not saving a tensor."""
        is_new = reason not in self._told
        self._told.add(reason)
        return is_new

    def _said(self, reason: str) -> str:
        with self._lock:
            if reason not in self.not_saved and len(self.not_saved) >= MOST_REASONS:
                reason = "other reasons"
            self.not_saved[reason] += 1
        return reason

    def _check(self, tensor: Tensor) -> None:
        """Raise _NotSaved if it is clear before copying that `tensor` cannot be saved."""
        import torch

        if self._failure is not None:
            raise _NotSaved(self._failure)
        if not isinstance(tensor, torch.Tensor):
            raise _NotSaved(f"{type(tensor).__name__} is no tensor")
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            raise _NotSaved("a CUDA graph is being captured: nothing can be copied to the host")
        if _is_plain(tensor):
            _check_memory(tensor)
            self._check_room(tensor.numel() * tensor.element_size())

    def _check_room(self, more_bytes: int) -> None:
        if self.used_bytes + more_bytes > self.quota_bytes:
            raise self._no_room()

    def _no_room(self) -> _NotSaved:
        return _NotSaved(f"the quota of {self.quota_bytes:,} bytes (STEPSCOPE_SAVE_QUOTA) has no space for it")

    def _write(self, host: Tensor, stem: str) -> Saved:
        try:
            name, file = self._new_file(stem)
            sink = _Sink(file, self.quota_bytes - self.used_bytes, self._no_room())
            _fill(host, self.folder / name, sink)
        except OSError as error:
            self._failure = f"cannot write to {self.folder.name}: {error.strerror or error}; no more tensors are saved"
            raise _NotSaved(self._failure) from None
        self.used_bytes += sink.written
        tensor_bytes = host.numel() * host.element_size() if _is_plain(host) else sink.written
        # A length of a ragged tensor can be a symbol.
        size = [length if isinstance(length, int) else -1 for length in host.size()]
        file_name = f"{self.folder.name}/{name}"
        return Saved(file_name, sink.sha256.hexdigest(), tensor_bytes, str(host.dtype).removeprefix("torch."), size)

    def _new_file(self, stem: str) -> tuple[str, BinaryIO]:
        """Create a new file; names can repeat, since a launch in a loop has one number for all iterations."""
        if not self._made:
            self._make_folder()
        while True:
            self._names[stem] += 1
            number = self._names[stem]
            name = f"{stem}.pt" if number == 1 else f"{stem}_{number}.pt"
            try:
                return name, os.fdopen(os.open(self.folder / name, _FLAGS, 0o600), "wb")
            except FileExistsError:
                continue

    def _make_folder(self) -> None:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if self.folder.is_symlink():
            raise NotADirectoryError(0, "the folder for tensors is a link")
        self._made = True


def file_stem(step: int, launch: int, kernel: str, argument: str, item: int | None, moment: str) -> str:
    """Return the name of a file without number and suffix, in characters that every file system allows."""
    part = "" if item is None else f"_item{item}"
    kernel, argument = _safe(kernel, LONGEST_KERNEL), _safe(argument, LONGEST_ARGUMENT)
    return f"step{step:04d}_launch{launch:04d}_{kernel}_{argument}{part}_{_safe(moment, 16)}"


def _safe(text: str, longest: int) -> str:
    safe = _UNSAFE.sub("_", text)
    if len(safe) <= longest:
        return safe
    return f"{safe[: longest - 9]}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


class _Sink:
    """File object for torch.save. It raises nothing while torch's C++ code writes, which could end the process."""

    def __init__(self, file: BinaryIO, most_bytes: int, no_room: _NotSaved) -> None:
        self.file = file
        self.sha256 = hashlib.sha256()
        self.written = 0
        self._most_bytes, self._no_room = most_bytes, no_room
        self._error: Exception | None = None

    def write(self, data: bytes | memoryview) -> int:
        count = memoryview(data).nbytes
        try:
            if self._error is None:
                self._take(data, count)
        except Exception as error:
            self._error = error
        return count

    def flush(self) -> None:
        """Do nothing; torch.save calls it."""

    def finish(self) -> None:
        if self._error is not None:
            raise self._error

    def _take(self, data: bytes | memoryview, count: int) -> None:
        if self.written + count > self._most_bytes:
            raise self._no_room
        self.file.write(data)
        self.sha256.update(data)
        self.written += count


def _fill(host: Tensor, path: Path, sink: _Sink) -> None:
    """Write the file, or delete it if that fails."""
    import torch

    done = False
    try:
        with sink.file:
            torch.save(host, sink)  # type: ignore[arg-type]  # write and flush are all that it uses
            sink.finish()
        if not _is_plain(host):
            _check_loads(path)
        done = True
    finally:
        if not done:
            with suppress(OSError):
                os.unlink(path)


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is strided and has no dispatch of its own, as a subclass with only a torch function."""
    import torch

    return tensor.layout is torch.strided and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def _check_memory(tensor: Tensor) -> None:
    storage = tensor.untyped_storage()
    if tensor.device.type == "meta" or storage.device.type == "meta":
        raise _NotSaved("a meta or fake tensor holds no values")
    if tensor.numel():
        last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
        if (tensor.storage_offset() + last + 1) * tensor.element_size() > storage.nbytes():
            raise _NotSaved("its memory is freed")


def _on_host(tensor: Tensor) -> Tensor:
    """Return a copy on the host with only the tensor's elements; waits for the device."""
    if tensor.device.type == "meta" or _is_fake(tensor):
        raise _NotSaved("a meta or fake tensor holds no values")
    copy = tensor.detach().to("cpu", copy=True)
    if _is_plain(copy):
        copy = copy.resolve_conj().resolve_neg()
        _check_memory(copy)
    return copy


def _is_fake(tensor: Tensor) -> bool:
    try:
        return bool(tensor.untyped_storage().device.type == "meta") and not hasattr(tensor, "__tensor_flatten__")
    except Exception:  # a sparse tensor has no storage
        return False


def _check_loads(path: Path) -> None:
    import torch

    try:
        torch.load(path, weights_only=True)
    except OSError:
        raise
    except Exception:
        raise _NotSaved("torch.load(weights_only=True) would not load a tensor of its kind") from None
