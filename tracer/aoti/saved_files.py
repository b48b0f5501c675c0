"""Copies tensors that the debug printer saved to the log's folder, before the kernel's next launch overwrites them."""

from __future__ import annotations

import hashlib
import math
import os
import pickletools
import re
import shutil
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

_STORAGE = re.compile(r"torch (\w+)Storage")
_ITEM_BYTES = {
    "Float": ("float32", 4), "Double": ("float64", 8), "Half": ("float16", 2), "BFloat16": ("bfloat16", 2),
    "Long": ("int64", 8), "Int": ("int32", 4), "Short": ("int16", 2), "Char": ("int8", 1), "Byte": ("uint8", 1),
    "Bool": ("bool", 1), "ComplexFloat": ("complex64", 8), "ComplexDouble": ("complex128", 16),
}  # fmt: skip
_OVERWRITTEN = "a later launch overwrote the file before it was copied"
_LARGEST_PICKLE = 1 << 20


@dataclass
class Kept:
    """A copy of a saved tensor; `problem` is the reason if there is no reliable one."""

    problem: str | None
    file: str = ""
    """Path relative to the folder of the log."""
    dtype: str = ""
    size: list[int] = field(default_factory=list)
    tensor_bytes: int = 0
    sha256: str = ""


class SavedFiles:
    """Copies files as their lines are read, if they were written after this object was created."""

    def __init__(self, folder: Path, quota_bytes: int) -> None:
        """Set the folder for the copies, which is beside the log and created with the first one."""
        self._folder, self._left_bytes = folder, quota_bytes
        self._began_s = time.time() - 1  # clocks of file systems are coarse
        self._last: dict[str, tuple[Kept, int]] = {}
        """Last copy of each path, and the modification time (ns) of the original."""
        self._count = 0

    def keep(self, path: str) -> Kept:
        """Copy the file; a later call may find that it had been overwritten by another launch. Never raises."""
        try:
            before = os.stat(path, follow_symlinks=False)
            earlier = self._last.get(path)
            if earlier is not None and earlier[1] == before.st_mtime_ns:
                earlier[0].problem = _OVERWRITTEN
            kept = self._copy(Path(path), before)
        except Exception as error:  # the standard library raises many types for torn archives
            return Kept(f"the file cannot be read: {getattr(error, 'strerror', None) or error}")
        self._last[path] = kept, before.st_mtime_ns
        return kept

    def _copy(self, path: Path, before: os.stat_result) -> Kept:
        if not path.is_file() or path.is_symlink() or before.st_mtime < self._began_s:
            return Kept("the file was not written by this run")
        if before.st_size > self._left_bytes:
            return Kept("it exceeds --save-quota")
        self._folder.mkdir(parents=True, exist_ok=True)
        copy = self._folder / f"{self._count:06}_{re.sub(r'[^A-Za-z0-9_.-]+', '_', path.name)[-160:]}"
        shutil.copyfile(path, copy, follow_symlinks=False)
        after = path.stat()
        if (after.st_mtime_ns, after.st_size) != (before.st_mtime_ns, before.st_size):
            copy.unlink()
            return Kept(_OVERWRITTEN)
        self._count += 1
        self._left_bytes -= before.st_size
        dtype, size, item_bytes = describe(copy)
        digest = hashlib.sha256(copy.read_bytes()).hexdigest()
        return Kept(None, f"{self._folder.name}/{copy.name}", dtype, size, math.prod(size) * item_bytes, digest)


def describe(path: Path) -> tuple[str, list[int], int]:
    """Return dtype, size and bytes per element of a saved tensor; its pickle is parsed, not run.

    Raises ValueError, KeyError or BadZipFile if the file is not a saved tensor.
    """
    with zipfile.ZipFile(path) as archive:
        name = next((one for one in archive.namelist() if one.endswith("/data.pkl")), None)
        if name is None or archive.getinfo(name).file_size > _LARGEST_PICKLE:
            raise ValueError("it contains no tensor")
        operations = list(pickletools.genops(archive.read(name)))
    storage, numbers, is_tensor = "", [], False
    for operation, argument, _ in operations:
        if operation.name == "GLOBAL" and (found := _STORAGE.fullmatch(str(argument))):
            storage = found[1]
        elif operation.name == "BINPERSID":
            is_tensor = True
        elif is_tensor and isinstance(argument, int) and operation.name.startswith(("BININT", "LONG", "INT")):
            numbers.append(argument)
        elif is_tensor and "TUPLE" in operation.name:
            break
    if not is_tensor:
        raise ValueError("it contains no tensor")
    dtype, item_bytes = _ITEM_BYTES[storage]
    return dtype, numbers[1:], item_bytes
