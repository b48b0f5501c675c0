"""Random numbers of Inductor's kernels, compared with the algorithm's published test vectors and with Triton's form."""

from __future__ import annotations

import numpy as np
import torch

from stepscope.tracer.judge.philox import drawn as tensor_drawn
from stepscope.tracer.judge.philox import integers, normal, philox, uniform


def test_the_words_are_those_of_the_published_vectors() -> None:
    """Random123's file kat_vectors has the results for a counter and a key of zeros."""
    words = philox(0, np.zeros(1, dtype=np.uint64))
    assert [int(word[0]) for word in words] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_numbers_have_their_ranges_and_moments() -> None:
    for on_cpu in (True, False):
        drawn = uniform(7, [64, 256], 0, on_cpu)
        assert drawn.shape == (64, 256)
        assert 0 <= drawn.min() < drawn.max() < 1
        assert abs(drawn.mean() - 0.5) < 0.01
        normals, exact = (normal(7, [1 << 14], 0, on_cpu, double) for double in (False, True))
        assert (normals.dtype.name, exact.dtype.name) == ("float32", "float64")
        assert np.abs(normals - exact).max() < 2e-6
        assert abs(normals.mean()) < 0.03
        assert abs(normals.std() - 1) < 0.03
        numbers = integers(7, [1 << 12], -3, 5, 0, on_cpu)
        assert set(np.unique(numbers)) == set(range(-3, 5))


def test_an_offset_continues_the_sequence() -> None:
    assert np.array_equal(uniform(3, [10], 0, True)[4:], uniform(3, [6], 4, True))


def test_one_number_has_no_dimensions() -> None:
    for target, args in (("random", ([], torch.tensor(7), "rand")), ("randint", (2, 9, [], torch.tensor(7)))):
        assert tensor_drawn(f"op:prims.inductor_{target}.default", args, {}, False).shape == ()
