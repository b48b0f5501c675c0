"""Files beside Inductor's compile cache, under the key of a wrapper, with what only its compile knows."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def sidecar_path(key: str, suffix: str = ".json") -> Path:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir()) / "stepscope" / key[1:3] / f"{key}{suffix}"


def write_file(path: Path, content: bytes) -> None:
    """Write a file so that no other process sees a part of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    temporary.write_bytes(content)
    temporary.replace(path)
