"""Sums over the bits of tensors, by which the judge sees that a buffer has changed.

A sum is the total of the contents' words, each multiplied by an odd number that depends on its position, modulo 2^64:
each word that changes, and two that change places, change the sum. Sums stay on the device of the tensor, so that
nothing waits for them, and can be compared with those of tensors of the same dtype, sizes and strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

CHUNK, CPU_CHUNK = 1 << 22, 1 << 14
"""Numbers of words that are summed at once: by a device, which bounds the memory for their products, and by the CPU,
whose caches hold them and which starts no other thread for so few."""
NEXT = 0x85EBCA77C2B2AE3D - (1 << 64)
"""Odd factor of the sum of the chunks before."""


class Sums:
    """Computes sums; what it allocates for them is kept for the next ones."""

    def __init__(self) -> None:
        self._weights: dict[Any, Any] = {}
        self._on_devices: dict[int, Any] = {}
        """`CudaSums` of each device; None where Triton cannot compile its kernel."""

    def of(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the sum of each tensor, a tensor of one element."""
        found: list[Any] = [None] * len(tensors)
        together: dict[int, list[tuple[int, Any]]] = {}
        for place, tensor in enumerate(tensors):
            is_whole = tensor.is_cuda and _is_whole(tensor)
            words = tensor if is_whole else words_of(tensor)
            is_whole = is_whole or (words.is_cuda and _is_whole(words))
            if is_whole and self._on_device(words.device.index) is not None:
                together.setdefault(words.device.index, []).append((place, words))
            else:
                found[place] = self._one(words_of(words))
        for device, members in together.items():
            sums = self._on_device(device).of([words for _, words in members])
            for (place, _), one in zip(members, sums, strict=True):
                found[place] = one
        return found

    def _on_device(self, device: int) -> Any:
        if device not in self._on_devices:
            try:
                from stepscope.tracer.judge.cuda_sums import CudaSums

                self._on_devices[device] = CudaSums(device)
            except Exception:
                self._on_devices[device] = None
        return self._on_devices[device]

    def _one(self, words: Any) -> Any:
        import torch

        total = torch.zeros((), dtype=torch.int64, device=words.device)
        for chunk in words.split(CHUNK if words.is_cuda else CPU_CHUNK):
            found = (self._first_weights(chunk.numel(), chunk.device) * chunk).sum()
            total = torch.add(found, total, alpha=NEXT)
        return total

    def _first_weights(self, count: int, device: Any) -> Any:
        """Return the first odd numbers."""
        import torch

        known = self._weights.get(device)
        if known is None or known.numel() < count:
            known = self._weights[device] = torch.arange(1, 2 << max(count - 1, 0).bit_length(), 2, device=device)
        return known[:count]


def _is_whole(tensor: Any) -> bool:
    """Return whether the contents of a tensor, as they are in memory, consist of whole words of 4 bytes."""
    size = tensor.element_size()
    return (
        _is_dense(tensor)
        and tensor.numel() * size % 4 == 0
        and tensor.storage_offset() * size % 4 == 0
        and not tensor.is_conj()
    )


def _is_dense(tensor: Any) -> bool:
    """Return whether the elements fill their memory, in whatever order of the dimensions."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def words_of(tensor: Any) -> Any:
    """Return the contents of a tensor as integers in one dimension, of 4 bytes if they are whole words of these.

    They have the order in memory if the elements fill it."""
    import torch

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    flat = tensor.as_strided((tensor.numel(),), (1,)) if _is_dense(tensor) else tensor.reshape(-1)
    if not flat.is_contiguous():  # one dimension with a stride is a view, whose words cannot be seen
        flat = flat.contiguous()
    size = flat.element_size()
    if flat.dtype == torch.bool:
        return flat.view(torch.uint8)
    is_whole = flat.numel() * size % 4 == 0 and flat.storage_offset() * size % 4 == 0
    return flat.view(torch.int32 if is_whole else {1: torch.int8, 2: torch.int16}[size])
