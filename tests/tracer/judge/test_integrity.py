"""Buffers that are not what their producers wrote."""

from __future__ import annotations

import torch

from stepscope.tracer.judge.integrity import Change, Integrity


def test_two_buffers_in_one_memory_are_one_change() -> None:
    found, memory = Integrity(), torch.ones(4)

    def launched(launch: int, buffer: str) -> None:
        memory.fill_(launch + 2)
        found.wrote_to(memory, launch)
        found.written(launch, [(buffer, memory)])

    launched(0, "buf0")
    launched(1, "buf1")
    found.look(2, [("buf0", "buf0", memory)])
    launched(2, "buf2")
    found.look(None, [("buf1", "buf1", memory)])
    assert list(found.changes()) == [(2, Change("buf0", "buf0", 0, 1))]
