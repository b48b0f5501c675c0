"""Implements `stepscope run --fresh-cache`: an empty compile cache, which is kept only if the program failed."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MOST_KINDS = 8


@dataclass(frozen=True)
class CacheUse:
    """The files that a program created in its fresh cache."""

    entries: dict[str, int]
    """Bytes of each file below the cache, without locks."""
    kept: Path | None
    """Folder of the files; None if they were removed."""

    @property
    def text(self) -> str:
        """``the fresh cache received 14 files, 20,480 bytes (4 .so, 2 fxgraph); the cache was removed``."""
        kinds = Counter(_kind(Path(name)) for name in self.entries).most_common()
        named = [f"{count:,} {kind}" for kind, count in kinds[:_MOST_KINDS]]
        rest = sum(count for _, count in kinds[_MOST_KINDS:])
        made = ", ".join([*named, *([f"{rest:,} more"] if rest else [])])
        of_what = f", {sum(self.entries.values()):,} bytes ({made})" if made else ""
        files = f"{len(self.entries):,} file{'' if len(self.entries) == 1 else 's'}"
        end = f"the program failed, so the cache is kept: {self.kept}" if self.kept else "the cache was removed"
        return f"the fresh cache received {files}{of_what}; {end}"


class FreshCache:
    """An empty folder for one run."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="stepscope-cache-"))
        self.environment = {
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder),
            "TRITON_CACHE_DIR": str(self.folder / "triton"),
        }

    def end(self, failed: bool) -> CacheUse:
        """Remove the folder after the program has ended, unless the program `failed` and has created files."""
        entries = dict(self._entries())
        kept = self.folder if failed and entries else None
        if kept is None:
            self.remove()
        return CacheUse(entries, kept)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _entries(self) -> Iterator[tuple[str, int]]:
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if "locks" in name.parts or ".lock" in name.name:
                continue
            with suppress(OSError):  # a child that is still running removes one
                if path.is_file():
                    yield name.as_posix(), path.lstat().st_size


def _kind(name: Path) -> str:
    """Return the kind of a file: its cache's folder, or its suffix if the folder's name is two letters of a hash."""
    first = name.parts[0]
    return first if len(name.parts) > 1 and len(first) > 2 else name.suffix or name.name
