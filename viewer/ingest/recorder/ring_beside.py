"""Reads the bytes of the launch ring beside a log."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from stepscope.tracer.schema.ring_format import BLOCKS_AT, ring_path, used_bytes


def ring_beside(log: Path) -> bytes | None:
    """Return the used bytes of the ring of `log`, or None if there is none or it cannot be read."""
    path = ring_path(log)
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        with open(path, "rb") as file:
            head = file.read(BLOCKS_AT)
            return head + file.read(used_bytes(head) - BLOCKS_AT)
    except ValueError:
        return head
    except OSError:
        return None
