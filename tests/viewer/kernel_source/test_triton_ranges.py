"""How far a user's own Triton kernel reaches, against what it does when its programs are run one by one."""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.tracer.schema.graphs import Argument
from stepscope.viewer.findings.crash.suspects import reach_sentence, suspect
from stepscope.viewer.kernel_source.access_bounds import reaches, user_reaches
from stepscope.viewer.store.open import open_trace
from tests.viewer.kernel_source.test_access_bounds import row
from tests.viewer.repro.test_repro_script import tensor, wrapper, write_log

PLANTED = """
def add_one(source, target, shifts, which, elements, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    shift = tl.load(shifts + which)
    value = tl.load(source + place, mask=place < elements)
    tl.store(target + place + shift, value + 1.0, mask=place < elements)
"""
PLAIN = """
def plain(source, target, elements, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0) * BLOCK
    places = start + tl.arange(0, BLOCK)
    mask = (places < elements) & (places >= 3)
    tl.store(target + places + OFFSET, tl.load(source + places, mask=mask), mask)
"""
ROWS = """
def rows(source, target, n_rows, n_columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    for first in range(0, n_columns, BLOCK):
        here = first + column
        value = tl.load(source + row * stride + here, mask=here < n_columns, other=0.0)
        tl.store(target + row * n_columns + here, value, mask=here < n_columns)
"""
TILES = """
def tiles(source, target, m, n, BLOCK: tl.constexpr):
    down = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    across = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (down[:, None] < m) & (across[None, :] < n)
    value = tl.load(source + down[:, None] * n + across[None, :], mask=mask)
    tl.store(target + (across[None, :] * m + down[:, None]).to(tl.int64), value, mask=mask)
"""
REVERSED = """
def backwards(source, target, elements, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + elements - place, tl.load(source + place % 7, mask=place < elements), mask=place < elements)
    if elements > 4:
        tl.atomic_add(target + place // 2, 1.0, mask=place < elements)
"""

TILED = """
def tiled(in_ptr0, out_ptr0, ynumel, xnumel, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    ynumel = 12
    xnumel = 10
    yoffset = tl.program_id(1) * YBLOCK
    yindex = yoffset + tl.arange(0, YBLOCK)[:, None]
    ymask = yindex < ynumel
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[None, :]
    xmask = xindex < xnumel
    x2 = xindex
    y0 = (yindex % 3)
    y1 = yindex // 3
    tmp0 = tl.load(in_ptr0 + (x2 + 11*yindex), xmask & ymask)
    tl.store(out_ptr0 + (y0 + 4*x2 + 40*y1), tmp0, xmask & ymask)
"""
REDUCTION = """
def reduction(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    xnumel = 6
    r0_numel = 20
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    x0 = xindex
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        r0_1 = (r0_index % 5)
        r0_2 = r0_index // 5
        tmp0 = tl.load(in_ptr0 + (r0_2 + 4*x0 + 25*r0_1), r0_mask & xmask)
    tl.store(out_ptr0 + (5 + ((-1)*x0)), 1.0, xmask)
"""
PADDED = """
def padded(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xnumel = 64
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x1 = xindex // 8
    x0 = (xindex % 8)
    x2 = xindex
    tmp0 = (-1) + x1
    tmp8 = (tmp0 >= 0) & (tmp0 < 6)
    tmp5 = (-1) + x0
    tmp9 = tmp8 & (tmp5 >= 0)
    tmp10 = tmp9 & (tmp5 < 6)
    tmp11 = tl.load(in_ptr0 + (x0 + 6*x1), tmp10 & xmask)
    tl.store(out_ptr0 + (x2), tmp11, xmask)
"""


class Pointer:
    """Counts in elements; notes what is read and written behind it."""

    def __init__(self, name: str, seen: dict[tuple[str, str], set[int]], place: Any = 0) -> None:
        self.name, self.seen, self.place = name, seen, np.asarray(place)

    def __add__(self, other: Any) -> Pointer:
        return Pointer(self.name, self.seen, self.place + other)

    def __sub__(self, other: Any) -> Pointer:
        return Pointer(self.name, self.seen, self.place - other)

    def note(self, does: str, mask: Any) -> Any:
        places, chosen = np.broadcast_arrays(self.place, True if mask is None else mask)
        self.seen[self.name, does] |= set(places[chosen].tolist())
        return np.zeros(places.shape, dtype=np.int64)


class Lanes(np.ndarray[Any, Any]):
    def to(self, dtype: object) -> Lanes:
        return self


class Language:
    """As much of `triton.language` as the kernels here use, for one program."""

    constexpr = int64 = None

    def __init__(self, program: Sequence[int]) -> None:
        self.program = program

    def program_id(self, axis: int) -> int:
        return self.program[axis]

    def arange(self, first: int, end: int) -> Any:
        return np.arange(first, end).view(Lanes)

    def range(self, first: int, end: int, step: int) -> range:
        return range(first, end, step)

    def load(self, pointer: Pointer, mask: Any = None, other: object = None) -> Any:
        return pointer.note("reads", mask)

    def store(self, pointer: Pointer, value: object, mask: Any = None) -> None:
        pointer.note("writes", mask)

    def atomic_add(self, pointer: Pointer, value: object, mask: Any = None) -> None:
        pointer.note("reads", mask)
        pointer.note("writes", mask)


def run(code: str, numbers: dict[str, int], grid: Sequence[int]) -> dict[tuple[str, str], tuple[int, int]]:
    """(pointer, does) -> the first and the last element of all programs."""
    seen: dict[tuple[str, str], set[int]] = defaultdict(set)
    for program in itertools.product(*map(range, grid)):
        names: dict[str, Any] = {"tl": Language(program)}
        exec(code, names)
        (function,) = [one for name, one in names.items() if callable(one) and name != "tl"]
        pointers = {name: Pointer(name, seen) for name in ("source", "target", "shifts", "in_ptr0", "out_ptr0")}
        wanted = function.__code__.co_varnames[: function.__code__.co_argcount]
        function(**{name: pointers.get(name, numbers.get(name)) for name in wanted})
    return {key: (min(places), max(places)) for key, places in seen.items()}


def definition(code: str, constants: dict[str, int], configs: Sequence[dict[str, int]] = ({},)) -> str:
    source = f"""
import triton
@triton_heuristics.user_autotune(
    configs={list(configs)!r},
    inductor_meta={{'grid_type': 'FixedGrid', 'extra_launcher_args': ['_grid_0', '_grid_1', '_grid_2']}},
    triton_meta={{'signature': {{}}, 'device': DeviceProperties(type='cuda'), 'constants': {constants!r}}},
)
@triton.jit
{code.strip()}
"""
    return f"k_0 = async_compile.triton('k', {source!r}, device_str='cuda')"


def told(
    code: str,
    numbers: dict[str, int],
    grid: Sequence[int],
    room: int = 10**6,
    configs: Sequence[dict[str, int]] = ({},),
) -> dict[tuple[str, str], Any]:
    (function,) = ast.parse(code).body
    assert isinstance(function, ast.FunctionDef)
    names = [argument.arg for argument in function.args.args if argument.arg != "BLOCK"]
    pointers = [name for name in names if name in ("source", "target", "shifts")]
    arguments = [row(number, name, room) for number, name in enumerate(pointers)]
    passed = [str(numbers.get(name, f"buf{number}")) for number, name in enumerate(names)]
    launch = f"    k_0.run({', '.join([*passed, *map(str, [*grid, 1, 1][:3])])}, stream=stream0)"
    constants = {"BLOCK": numbers["BLOCK"]} if "BLOCK" in numbers else {}

    def size_of(node: ast.expr) -> int | None:
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None

    found = user_reaches(definition(code, constants, configs), launch, arguments, size_of)
    return {(one.parameter, one.does): one for one in found}


@pytest.mark.parametrize(
    ("code", "numbers", "grid"),
    [
        (PLAIN.replace("OFFSET", "0"), {"elements": 100, "BLOCK": 16}, [7]),
        (PLAIN.replace("OFFSET", "0"), {"elements": 112, "BLOCK": 16}, [7]),
        (PLAIN.replace("OFFSET", "(-5)"), {"elements": 50, "BLOCK": 32}, [2]),
        (ROWS, {"n_rows": 4, "n_columns": 20, "stride": 24, "BLOCK": 8}, [4]),
        (TILES, {"m": 10, "n": 6, "BLOCK": 4}, [3, 2]),
        (REVERSED, {"elements": 30, "BLOCK": 8}, [4]),
    ],
)
def test_ends_are_those_of_all_programs(code: str, numbers: dict[str, int], grid: list[int]) -> None:
    expected, found = run(code, numbers, grid), told(code, numbers, grid)
    assert found.keys() == expected.keys()
    for key, (first, last) in expected.items():
        assert (found[key].first, found[key].last) == (first, last), key
    leaving = told(code, numbers, grid, room=5)
    for key, (first, last) in expected.items():
        assert leaving[key].leaves is (True if leaving[key].is_exact else None), key
        assert last > 4 or first < 0
    assert any(one.is_exact for one in found.values())


@pytest.mark.parametrize(
    ("code", "axes", "blocks", "is_exact"),
    [
        (TILED, (10, 12), {"XBLOCK": 4, "YBLOCK": 8}, True),
        (TILED, (10, 12), {"XBLOCK": 16, "YBLOCK": 1}, True),
        (REDUCTION, (6,), {"XBLOCK": 4, "R0_BLOCK": 8}, True),
        (REDUCTION, (6,), {"XBLOCK": 1, "R0_BLOCK": 32}, True),
        (PADDED, (64,), {"XBLOCK": 16}, True),
        (PADDED.replace("tmp0 < 6", "x1 * x1 < 40"), (64,), {"XBLOCK": 16}, False),
    ],
)
def test_ends_of_generated_kernels_are_those_with_any_block(
    code: str, axes: tuple[int, ...], blocks: dict[str, int], is_exact: bool
) -> None:
    grid = [-(-size // blocks[name]) for size, name in zip(axes, ("XBLOCK", "YBLOCK"), strict=False)]
    expected = run(code, blocks, grid)
    found: dict[tuple[str, str], Any] = {
        (one.parameter, one.does): one
        for one in reaches(definition(code, {}), [row(0, "in_ptr0", 10**6), row(1, "out_ptr0", 10**6)])
    }
    assert found.keys() == expected.keys() == {("in_ptr0", "reads"), ("out_ptr0", "writes")}
    for key, ends in expected.items():
        known = found[key]
        assert known.first is not None
        assert known.last is not None
        if known.is_exact:
            assert (known.first, known.last) == ends, key
        assert known.first <= ends[0] <= ends[1] <= known.last, key
    assert found["in_ptr0", "reads"].is_exact is is_exact
    assert found["out_ptr0", "writes"].is_exact


def test_an_index_that_is_read_from_memory_is_not_known() -> None:
    numbers = {"which": 137, "elements": 60, "BLOCK": 16}
    found, expected = told(PLANTED, numbers, [4], room=60), run(PLANTED, numbers, [4])
    written = found["target", "writes"]
    assert (written.first, written.leaves) == (None, None)
    assert written.why_unknown == "its index is read from memory: target + place + shift"
    for key in (("source", "reads"), ("shifts", "reads")):
        assert (found[key].first, found[key].last) == expected[key]
    assert (found["source", "reads"].leaves, found["shifts", "reads"].leaves) == (False, True)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("tl.load(source + helper(elements))", "computed by helper"),
        ("helper(source)", "could not be read"),
        ("tl.load(tl.make_block_ptr(source, (8,), (1,)))", "could not be read"),
        ("tl.load(source + tl.program_id(2) * UNKNOWN)", "UNKNOWN is not known"),
        ("\n    for i in range(elements):\n        source += 4\n        tl.load(source)", "changes from turn to turn"),
        (
            "\n    if tl.load(source):\n        n = 1\n    else:\n        n = 2\n    tl.load(source + n)",
            "both branches",
        ),
        (
            "\n    while elements:\n        tl.load(source + elements)\n        elements = elements // 2",
            "changes from turn",
        ),
    ],
)
def test_what_is_not_followed_is_said(body: str, why: str) -> None:
    found = told(f"def k(source, elements):\n    {body}\n", {"elements": 8}, [2])
    reasons = [one.why_unknown for one in found.values() if one.why_unknown]
    assert any(why in reason for reason in reasons), found
    assert not any(one.leaves for one in found.values())


def test_a_guard_makes_ends_that_it_may_not_come_to() -> None:
    code = "def k(source, elements):\n    if tl.load(source) > 0:\n        return\n    tl.store(source + 50, 1)\n"
    written = told(code, {"elements": 8}, [2], room=20)["source", "writes"]
    assert (written.first, written.last, written.is_exact, written.leaves) == (50, 50, False, None)


def test_of_several_configurations_none_is_known_to_be_the_one() -> None:
    configs = [{"BLOCK": 16, "num_warps": 4}, {"BLOCK": 64, "num_warps": 8}]
    found = told(PLAIN.replace("OFFSET", "0"), {"elements": 100}, [2], room=100, configs=configs)
    read = found["source", "reads"]
    assert (read.last, read.is_exact, read.leaves) == (99, False, False)


def test_no_source_costs_much() -> None:
    doubled = "\n".join(f"    x{n + 1} = x{n} + x{n}" for n in range(200))
    deep = "-" * 400 + "1"  # how deep the interpreter goes depends on who calls: it is known to be 1, or not at all
    for body, known in (
        (f"    x0 = tl.program_id(0)\n{doubled}\n    tl.load(source + x200)", {None}),
        (f"    tl.load(source + {deep})", {None, False}),
    ):
        found = told(f"def k(source, elements):\n{body}\n", {"elements": 8}, [4], room=9)
        assert {one.leaves for one in found.values()} <= known
    assert user_reaches("k = (", "k.run(", [row(0, "source", 8)], lambda node: None) == []


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            PLANTED,
            "it is unknown how far it writes arg1_1 (target) (its index is read from memory: target + place + shift",
        ),
        (
            PLAIN.replace("OFFSET", "8"),
            "according to its source, the kernel writes elements 11 to 39 of arg1_1 (target), whose storage ",
        ),
        (PLAIN.replace("OFFSET", "0"), "according to its source, every index stays within its storage"),
    ],
)
def test_a_launch_of_a_log(tmp_path: Path, code: str, says: str) -> None:
    """Its sizes are symbolic: s0 is known by the form of an argument."""
    first = 7 if code is PLANTED else None
    arguments = [
        Argument(f"arg{n}_1", "inout" if name == "target" else "in", f"arg{n}_1", name)
        for n, name in enumerate(("source", "target", *(["shifts"] if first else [])))
    ]
    passed = [one.name for one in arguments] + ([str(first)] if first else [])
    lines = (
        "s0 = arg9_1", "assert_size_stride(arg0_1, (s0, 8), (8, 1), 'input')",
        f"k_0.run({', '.join(passed)}, 8*s0, 2*s0, 1, 1, stream=stream0)",
    )  # fmt: skip
    text = wrapper(definition(code, {"BLOCK": 4}), *lines)
    metas = [tensor(n, "cuda:0") for n in range(len(arguments))]
    with open_trace(write_log(tmp_path, text, "k_0", "user_triton", arguments, metas)) as trace:
        found = suspect(trace, 0)
    assert found is not None
    assert (reach_sentence(found) or "").startswith(says)
