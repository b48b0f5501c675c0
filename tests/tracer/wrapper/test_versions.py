"""Which version of a buffer each argument holds, and where each version is read."""

from __future__ import annotations

import ast
import textwrap

import pytest

from stepscope.tracer.inductor.operators import operator_schema
from stepscope.tracer.wrapper.parsed import WrapperSource
from stepscope.tracer.wrapper.read_points import MOST_AT_ONCE
from stepscope.tracer.wrapper.source import analyse
from stepscope.tracer.wrapper.versions import Followed, follow

KERNELS = "\n".join(
    f"cpp_{name} = async_compile.cpp_pybinding({types!r}, r''' extern \"C\" void kernel({parameters}) {{}} ''')"
    for name, types, parameters in (
        ("map", ["const float*", "float*"], "const float* in_ptr0, float* out_ptr0"),
        ("add", [*["const float*"] * 2, "float*"], "const float* in_ptr0, const float* in_ptr1, float* out_ptr0"),
        ("inplace", ["float*", "const float*"], "float* in_out_ptr0, const float* in_ptr0"),
    )
)  # fmt: skip


def wrapper(body: str) -> WrapperSource:
    source = f"# AOT ID: ['0_inference']\n{KERNELS}\ndef call(args):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    return analyse(source, operator_schema)


def held(followed: Followed, site: int, argument: int) -> tuple[object, ...]:
    found = followed.sites[site].arguments[argument]
    version = found.version
    return found.storage, found.held, (version.site, version.argument, version.moment) if version else None


def reads(followed: Followed) -> list[tuple[int, int, str]]:
    return [(read.site, read.argument, read.moment) for point in followed.points for read in point.reads]


CHAIN = """
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (4, 8), (8, 1))
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    cpp_map(arg0_1, buf0)
    buf1 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    cpp_add(arg0_1, buf0, buf1)
    del arg0_1
    del buf0
    return (buf1, )
"""


def test_each_version_is_read_once() -> None:
    found = follow(wrapper(CHAIN))
    assert reads(found) == [(0, 0, "before"), (0, 1, "after"), (1, 2, "after")]
    assert held(found, 0, 0) == ("arg0_1", "input", (0, 0, "before"))
    assert held(found, 1, 0) == ("arg0_1", "input", (0, 0, "before"))
    assert held(found, 1, 1) == ("buf0", "written", (0, 1, "after"))


@pytest.mark.parametrize(
    "checks",
    [
        "assert_size_stride(arg0_1, (4, 8), (8, 1), 'input')\nassert_size_stride(arg1_1, (), (), 'input')",
        "assert_size_stride_grouped((arg0_1, arg1_1), ((4, 8), ()), ((8, 1), ()), 'input')",
    ],
)
def test_inputs_whose_layouts_are_checked_do_not_vary(checks: str) -> None:
    body = f"arg0_1, arg1_1 = args\nargs.clear()\n{checks}\nbuf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)"
    found = follow(wrapper(f"{body}\ncpp_add(arg0_1, arg1_1, buf0)"))
    assert [(read.argument, read.is_checked) for read in found.points[0].reads] == [(0, True), (1, True)]


def test_memory_that_nobody_has_written_has_no_version() -> None:
    found = follow(wrapper(CHAIN))
    assert held(found, 0, 1) == ("buf0", "uninitialised", None)
    found = follow(wrapper("buf0 = empty_strided_cpu((4,), (1,), torch.float32)\ncpp_map(buf0, buf0)"))
    assert held(found, 0, 0) == ("buf0", "uninitialised", None)
    assert reads(found) == [(0, 1, "after")]


def test_a_reuse_leads_to_the_same_storage() -> None:
    body = """
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    cpp_map(arg0_1, buf0)
    buf1 = reinterpret_tensor(buf0, (8, 4), (4, 1), 0); del buf0  # reuse
    cpp_inplace(buf1, arg1_1)
    cpp_map(buf1, arg2_1)
    """
    found = follow(wrapper(body))
    assert held(found, 1, 0) == ("buf0", "written", (0, 1, "after"))
    assert held(found, 2, 0) == ("buf0", "written", (1, 0, "after"))
    assert reads(found) == [(0, 0, "before"), (0, 1, "after"), (1, 1, "before"), (1, 0, "after"), (2, 1, "after")]


def test_a_part_that_nobody_wrote_as_such_is_read_before_its_first_use() -> None:
    body = """
    buf2 = empty_strided_cpu((8, 8), (8, 1), torch.float32)
    buf0 = reinterpret_tensor(buf2, (4, 8), (8, 1), 0)  # alias
    cpp_map(arg0_1, buf0)
    buf1 = reinterpret_tensor(buf2, (4, 8), (8, 1), 32)  # alias
    cpp_map(arg0_1, buf1)
    cpp_map(buf2, arg1_1)
    cpp_map(buf2, arg1_1)
    """
    found = follow(wrapper(body))
    assert held(found, 2, 0) == ("buf2", "written", (2, 0, "before"))
    assert held(found, 3, 0) == ("buf2", "written", (2, 0, "before"))


def test_members_of_a_pool_are_storages_of_their_own() -> None:
    body = """
    pool0 = empty_strided_cpu((64, ), (1, ), torch.uint8)
    buf0 = alloc_from_pool(pool0, 0, torch.float32, (4, ), (1, ))
    cpp_map(arg0_1, buf0)
    buf1 = alloc_from_pool(pool0, 16, torch.float32, (4, ), (1, ))
    cpp_map(buf0, buf1)
    cpp_map(buf0, arg1_1)
    """
    found = follow(wrapper(body))
    assert held(found, 1, 1) == ("buf1", "uninitialised", None)
    assert held(found, 2, 0) == ("buf0", "written", (0, 1, "after"))


def test_members_of_what_a_launch_returned() -> None:
    body = """
    buf0 = torch.ops.aten.sort.default(arg0_1)
    buf1 = buf0[0]
    buf2 = buf0[1]
    del buf0
    cpp_map(buf1, arg1_1)
    cpp_map(buf2, arg1_1)
    """
    found = follow(wrapper(body))
    version = found.sites[1].arguments[0].version
    assert version is not None
    assert (version.site, version.moment, version.item) == (0, "after", 0)
    version = found.sites[2].arguments[0].version
    assert version is not None
    assert version.item == 1


def test_a_view_that_an_operator_returns_shares_the_storage() -> None:
    body = """
    buf0 = torch.ops.aten.view_as_real.default(arg0_1)
    cpp_inplace(buf0, arg1_1)
    cpp_map(arg0_1, arg2_1)
    """
    found = follow(wrapper(body))
    assert found.sites[0].arguments[-1].storage == "arg0_1"
    assert held(found, 1, 0) == ("arg0_1", "input", (1, 0, "before"))
    assert held(found, 2, 0) == ("arg0_1", "written", (2, 0, "before"))


def test_a_mutated_argument_of_an_operator_is_read_after_it() -> None:
    found = follow(wrapper("aten.index_put_(arg0_1, [arg1_1], arg2_1, False)\ncpp_map(arg0_1, arg3_1)"))
    assert (0, 0, "after") in reads(found)
    assert held(found, 1, 0) == ("arg0_1", "written", (0, 0, "after"))


def test_what_a_collective_writes_is_read_when_it_was_waited_for() -> None:
    body = """
    buf0 = torch.ops._c10d_functional.all_reduce_.default(arg0_1, 'sum', '0')
    cpp_map(arg1_1, arg2_1)
    torch.ops._c10d_functional.wait_tensor.default(arg0_1)
    cpp_map(arg0_1, arg2_1)
    """
    found = follow(wrapper(body))
    assert (0, 0, "after") not in reads(found)
    assert held(found, 3, 0) == ("arg0_1", "written", (2, 0, "after"))


def test_what_a_branch_leaves_is_read_again() -> None:
    body = """
    cpp_map(arg0_1, arg1_1)
    if arg2_1.item():
        cpp_map(arg0_1, arg1_1)
    cpp_map(arg1_1, arg3_1)
    """
    found = follow(wrapper(body))
    assert held(found, 2, 0) == ("arg1_1", "written", (2, 0, "before"))


def test_only_what_is_wanted_is_read_and_what_its_writer_did_not_show_is_read_before() -> None:
    found = follow(wrapper(CHAIN), lambda site, argument: site.kernel == "cpp_add")
    assert reads(found) == [(1, 0, "before"), (1, 1, "before"), (1, 2, "after")]


def test_again_reads_before_every_launch() -> None:
    found = follow(wrapper(CHAIN), again=True)
    assert [read for read in reads(found) if read[2] == "before"] == [
        (0, 0, "before"),
        (1, 0, "before"),
        (1, 1, "before"),
    ]
    assert held(found, 1, 1) == ("buf0", "written", (0, 1, "after"))


def test_deferred_readings_wait_until_something_would_change() -> None:
    source = wrapper(CHAIN)
    found = follow(source, deferred=True)
    assert sorted(reads(found)) == sorted(reads(follow(wrapper(CHAIN))))
    places = [(point.place, point.statement.lineno, len(point.reads)) for point in found.points]
    assert places == [("before", _line(source, "del buf0"), 2), ("after", _line(source, "arg0_1, = args") + 2, 1)]


def test_an_input_is_not_read_at_entry_through_names_that_come_later() -> None:
    body = """
    arg0_1, arg1_1 = args
    s0 = arg1_1
    cpp_map(reinterpret_tensor(arg0_1, (s0, 4), (4, 1), 0), arg2_1)
    """
    (point, *_) = follow(wrapper(body), deferred=True).points
    assert ast.unparse(point.statement).startswith("cpp_map")


@pytest.mark.parametrize(
    "writer", ["cpp_inplace(buf0, arg1_1)", "aten.index_put_(buf0, [arg1_1], arg2_1, False)", "buf0.copy_(arg1_1)"]
)
def test_deferred_readings_come_before_the_next_writer(writer: str) -> None:
    body = f"buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)\ncpp_map(arg0_1, buf0)\n{writer}\nreturn (buf0, )"
    source = wrapper(body)
    found = follow(source, deferred=True)
    first = next(
        point for point in found.points if (0, 1, "after") in [(r.site, r.argument, r.moment) for r in point.reads]
    )
    assert first.place == "before"
    assert first.statement.lineno == _line(source, writer)
    assert (1, 0, "after") in reads(found)


def test_deferred_readings_of_many_outputs_come_after_their_launch() -> None:
    many = MOST_AT_ONCE + 3
    names = [f"buf{n}" for n in range(many)]
    lines = [f"{name} = empty_strided_cpu((4, ), (1, ), torch.float32)" for name in names]
    launch = f"torch.ops.aten._foreach_add_.List([{', '.join(names)}], [arg0_1])"
    source = wrapper("\n".join([*lines, launch, "return (buf0, )"]))
    found = follow(source, deferred=True)
    line = _line(source, launch)
    for point in found.points:
        assert any(read.moment == "before" for read in point.reads) or (point.place, point.statement.lineno) >= (
            "after",
            line,
        )
    assert len([read for read in reads(found) if read[2] == "after"]) == many


def test_what_a_dead_buffer_left_is_nobodys_value() -> None:
    body = """
    buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
    cpp_map(arg0_1, buf0)
    buf1 = buf0; del buf0  # reuse
    aten.index_put_(buf1, [arg1_1], arg2_1, False)
    """
    found = follow(wrapper(body), again=True)
    assert held(found, 1, 0) == ("buf0", "uninitialised", None)
    assert (1, 0, "before") not in reads(found)


def test_deferred_readings_do_not_outlive_their_place_in_a_pool() -> None:
    body = """
    pool0 = empty_strided_cpu((64, ), (1, ), torch.uint8)
    buf0 = alloc_from_pool(pool0, 0, torch.float32, (4, ), (1, ))
    cpp_map(arg0_1, buf0)
    buf1 = alloc_from_pool(pool0, 0, torch.float32, (4, ), (1, ))
    cpp_map(arg1_1, buf1)
    """
    source = wrapper(body)
    first = follow(source, deferred=True).points[0]
    assert [read.site for read in first.reads if read.moment == "after"] == [0]
    assert ast.unparse(first.statement).startswith("buf1 = alloc_from_pool")


def test_an_input_that_a_subgraph_may_have_written_is_read_after_it() -> None:
    text = f"""# AOT ID: ['0_inference']
{KERNELS}
def partition_0(args):
    buf0, = args
    args.clear()
    cpp_inplace(buf0, buf0)
    return ()
def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    partition0_args = [arg0_1]
    partition_0(partition0_args)
    cpp_map(arg0_1, arg1_1)
"""
    source = analyse(text, operator_schema)
    points = follow(source, deferred=True).points
    (point,) = [p for p in points if any((r.site, r.moment) == (2, "before") for r in p.reads)]
    assert not ast.unparse(point.statement).startswith("args.clear")
    assert point.statement.lineno > _line(source, "partition_0(partition0_args)")


def test_a_copy_that_comes_later_is_not_read_at_once() -> None:
    found = follow(wrapper("arg0_1.copy_(arg1_1, True)\ncpp_map(arg0_1, arg2_1)"))
    assert (0, 0, "after") not in reads(found)
    assert held(found, 1, 0)[1] is None


def test_a_view_whose_size_varies_is_looked_at_in_each_call() -> None:
    body = """
    s0 = arg1_1
    buf0 = empty_strided_cpu((64, ), (1, ), torch.float32)
    cpp_map(arg0_1, buf0)
    cpp_map(reinterpret_tensor(buf0, (s0, 4), (4, 1), 0), arg2_1)
    """
    read = [r for p in follow(wrapper(body)).points for r in p.reads if (r.site, r.moment) == (1, "before")]
    assert [r.is_fixed for r in read] == [False]


def test_sizes_that_vary_are_looked_at_in_each_call() -> None:
    fixed = follow(wrapper(CHAIN)).points
    assert [read.is_fixed for point in fixed for read in point.reads] == [False, True, True]
    body = "s0 = arg0_1\nbuf0 = empty_strided_cpu((s0, 8), (8, 1), torch.float32)\ncpp_map(arg1_1, buf0)"
    varying = follow(wrapper(body)).points
    assert not any(read.is_fixed for point in varying for read in point.reads)


def _line(source: WrapperSource, text: str) -> int:
    return next(
        node.lineno for node in ast.walk(source.tree) if isinstance(node, ast.stmt) and ast.unparse(node) == text
    )


CONCATENATION = """
    arg0_1, = args
    args.clear()
    buf0 = empty_strided_cpu(({rows}, 16), (16, 1), torch.float32)
    buf1 = reinterpret_tensor(buf0, ({rows}, 8), (16, 1), 8)  # alias
    cpp_map(arg0_1, buf1)
    buf2 = reinterpret_tensor(buf0, ({rows}, 8), (16, 1), 0)  # alias
    cpp_add(buf1, buf0, buf2)
    cpp_map(buf0, arg0_1)
    return (buf0, )
"""


@pytest.mark.parametrize("rows", ["4", "s0"])
def test_memory_of_a_concatenation_that_its_last_writer_reads_too(rows: str) -> None:
    """The kernel fuses the last member with a sum over all: what it reads was partly never written."""
    found = follow(wrapper(CONCATENATION.format(rows=rows)))
    assert held(found, 1, 0)[1:] == ("written", (0, 1, "after"))
    assert held(found, 1, 1) == ("buf0", None, None)
    assert held(found, 2, 0)[1] == "written"
    assert (1, 1, "before") not in reads(found)
    assert (2, 0, "before") in reads(found)
