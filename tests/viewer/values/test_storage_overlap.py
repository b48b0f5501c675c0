"""Launches that overwrite what they read, and the many that share memory and do no harm."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from stepscope.tracer.schema.graphs import Argument, Graph, LaunchKind, LaunchSite
from stepscope.tracer.schema.launches import Calls, Launches, TensorMeta, Tensors
from stepscope.tracer.schema.process_ends import End
from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.values.operations import places
from stepscope.viewer.findings.values.overlap import do_overlap
from stepscope.viewer.graphs.queries.argument_facts import View
from stepscope.viewer.graphs.rows import SiteRow, SourceLine
from stepscope.viewer.kernel_source.access_bounds import item_bytes
from stepscope.viewer.kernel_source.element_access import Axis, ElementAccess, normal
from stepscope.viewer.kernel_source.index_overlaps import Meeting, meeting
from stepscope.viewer.kernel_source.kernel_access import accesses
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder, compile_records, run

Open = Callable[[LogBuilder | bytes], Trace]
HEAD = """extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
"""
LOOP = """    #pragma omp parallel
    {
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(4L); x0+=static_cast<int64_t>(1L))
            {
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(8L); x1+=static_cast<int64_t>(16L))
                {
                    BODY
                }
            }
        }
    }
"""
SAME = "static_cast<int64_t>(x1 + 8L*x0)"
FLIPPED = "static_cast<int64_t>(24L + x1 + ((-8L)*x0))"


def vector(read: str, write: str, pointer: str = "out_ptr0") -> str:
    return LOOP.replace(
        "BODY",
        f"auto tmp0 = at::vec::Vectorized<float>::loadu({pointer} + {read}, static_cast<int64_t>(8L));\n"
        f"                    tmp0.store(out_ptr0 + {write}, static_cast<int64_t>(8L));",
    )


def scalar(read: str, write: str) -> str:
    return LOOP.replace("BODY", f"auto tmp0 = in_ptr0[{read}]; out_ptr0[{write}] = tmp0;")


def cpp(*nests: str) -> str:
    return "k = async_compile.cpp_pybinding(['const float*', 'float*'], r'''\n" + HEAD + "".join(nests) + "}\n''')\n"


def triton(body: str) -> str:
    sizes = [line for line in body.split("\n") if "numel = " in line]
    index = "xoffset = tl.program_id(0) * XBLOCK\nxindex = xoffset + tl.arange(0, XBLOCK)[:]\nxmask = xindex < xnumel"
    rest = [line for line in body.split("\n") if line not in sizes]
    lines = "\n".join("    " + line for line in [*sizes, *index.split("\n"), *rest])
    head = "@triton.jit\ndef k(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):\n"
    return f"k = async_compile.triton('k', '''\n{head}{lines}\n''', device_str='cuda')\n"


def texts(code: str, *, is_write: bool, is_sure: bool | None = None) -> set[tuple[str, str]]:
    """Pointer and index of what the only nest of a kernel reads or writes."""
    (nest,) = accesses(code).nests
    return {(one.pointer, one.text) for one in nest if one.is_write is is_write and is_sure in (None, one.is_sure)}


def index_text(text: str) -> str:
    ((_, found),) = texts(f"void kernel(float* out_ptr0) {{ out_ptr0[{text}] = 1; }}", is_write=True)
    return found


def log_of(
    code: str,
    arguments: Sequence[Argument],
    kind: LaunchKind = "cpp",
    tensors: Sequence[TensorMeta] = (),
) -> LogBuilder:
    log = LogBuilder().record(run())
    compile_records(log)
    log.data = log.data.replace(b"cwrapper", b"cother")
    log.torch("inductor_output_code", {"filename": "/tmp/x/cmine.py"}, code.encode(), frame_id=0, frame_compile_id=0)
    site = LaunchSite(0, "call", 3, "k", kind, list(arguments), [])
    log.record(Graph(0, "cmine", "0/0", "0_inference", "inference", False, False, ["call"], [site], []))
    columns = Calls([0], [0], [0], [0], [1], [None], [6_000_000_000], [900], [1], ["ok"])
    log.record(Launches(columns, [0], [6_000_000_100], [6_000_000_200]))
    if tensors:
        log.record(Tensors(0, 0, 0, list(tensors)))
    return log.record(End("exit", 7_000_000_000))


def pair(read: str = "x", write: str = "x", out: str = "out_ptr0") -> list[Argument]:
    return [Argument(read, "in", "x", "in_ptr0"), Argument(write, "out", "x", out)]


def found(opened: Open, *rest: Any, **named: Any) -> list[Finding]:
    return [finding for finding in all_findings(opened(log_of(*rest, **named))) if finding.kind == "storage_overlap"]


@pytest.mark.parametrize(
    "code",
    [
        cpp(vector(FLIPPED, SAME)),
        cpp(vector(FLIPPED, SAME, "in_ptr0")),
        cpp(scalar(FLIPPED, SAME)),
        cpp(vector(SAME, SAME), vector(FLIPPED, SAME)),
        triton(
            "xnumel = 128\nynumel = 4\nx0 = (xindex % 16)\nx1 = xindex // 16\n"
            "tmp0 = tl.load(in_ptr0 + (112 + x0 + ((-16)*x1)), xmask)\ntl.store(out_ptr0 + (x0 + 16*x1), tmp0, xmask)"
        ),
        triton(
            "xnumel = 64\nx0 = xindex\ntmp0 = tl.load(in_ptr0 + (63 + ((-1)*x0)), xmask)\n"
            "tl.store(out_ptr0 + (x0), tmp0, xmask)"
        ),
    ],
)
def test_a_kernel_that_overwrites_what_it_reads(opened: Open, code: str) -> None:
    kind: LaunchKind = "triton" if "triton" in code else "cpp"
    (finding,) = found(opened, code, pair(), kind)
    assert (finding.severity, finding.kernel, finding.argument, finding.step) == ("critical", "k", "x", 0)
    assert finding.title == "x is overwritten while it is still read, by a fused kernel"
    assert len(finding.evidence["read_at"]) == 1
    assert any(number in finding.evidence["read_at"][0] for number in ("63", "24", "112"))
    assert finding.evidence["why"] == "one loop nest reads what it overwrites"


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        cpp(vector(SAME, SAME)),
        cpp(vector(SAME, SAME, "in_ptr0")),
        cpp(scalar(SAME, SAME)),
        cpp(scalar("static_cast<int64_t>(8L*x0 + x1)", SAME)),
        cpp(scalar(SAME, "static_cast<int64_t>(x1 + x1_inner + 8L*x0)")),
        cpp(scalar("static_cast<int64_t>(x1_tail + 8L*x0)", SAME)),
        cpp(vector(FLIPPED, "static_cast<int64_t>(x9)").replace("out_ptr0 + static_cast<int64_t>(x9)", "out_ptr7")),
        cpp(LOOP.replace("BODY", f"auto tmp0 = in_ptr0[{FLIPPED}]; tmp_acc0 += tmp0;"), vector(SAME, SAME)),
        triton("tmp0 = tl.load(in_ptr0 + (x0), xmask)\ntl.store(out_ptr0 + (x0), tmp0, xmask)"),
    ],
)
def test_a_kernel_that_works_in_place(opened: Open, code: str) -> None:
    assert found(opened, code, pair(), "triton" if "triton" in code else "cpp") == []


@pytest.mark.slow
def test_one_argument_that_is_read_and_written(opened: Open) -> None:
    code = cpp(vector(FLIPPED, SAME)).replace("out_ptr0", "in_out_ptr0")
    argument = Argument("x", "inout", "x", "in_out_ptr0")
    (finding,) = found(opened, code, [argument])
    assert finding.title == "x is overwritten while it is still read, by a fused kernel"
    assert found(opened, code.replace(FLIPPED, SAME), [argument]) == []
    assert found(opened, "nothing", [argument]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "nothing",
        cpp(LOOP.replace("BODY", "copy(in_ptr0, out_ptr0, 8);")),
        cpp(scalar(FLIPPED, SAME) + "copy(in_ptr0, 8);"),
        cpp(scalar(FLIPPED, SAME) + "while (true) { }"),
        cpp(scalar(FLIPPED, SAME)).replace("<static_cast<int64_t>(4L)", "<static_cast<int64_t>(size_of(out_ptr0))"),
        cpp(scalar(FLIPPED, "static_cast<int64_t>(x1 + 8L*tmp3)")),
        cpp(LOOP.replace("BODY", f"auto tmp1 = [&] {{ return in_ptr0[{FLIPPED}]; }}; out_ptr0[{SAME}] = tmp1();")),
        cpp(LOOP.replace("BODY", f"if (x0 > 2) {{ out_ptr0[{SAME}] = in_ptr0[{FLIPPED}]; }}")),
        cpp(LOOP.replace("BODY", f"atomic_add_vec<float, 2, 1>(out_ptr0, tmp4, in_ptr0[{FLIPPED}]);")),
        triton("x0 = xindex\ntmp0 = tl.load(in_ptr0 + (tmp5), xmask)\ntl.store(out_ptr0 + (x0), tmp0, xmask)"),
    ],
)
def test_nothing_is_said_of_a_kernel_that_is_not_understood(opened: Open, code: str) -> None:
    """A function that nobody knows, a mask, an index that depends on data."""
    assert found(opened, code, pair(), "triton" if "triton" in code else "cpp") == []


TRANSPOSED = """
alignas(std::max(std::size_t(16), alignof(float))) float tmp0[16*16];
transpose_mxn<float,static_cast<int64_t>(8L),static_cast<int64_t>(4L),false>(in_ptr0 + static_cast<int64_t>(READ),
    static_cast<int64_t>(8L), tmp0, static_cast<int64_t>(4L));
for (long x1_inner = 0; x1_inner < static_cast<int64_t>(8L); x1_inner++)
{
    auto tmp1 = at::vec::Vectorized<float>::loadu(tmp0 + static_cast<int64_t>(4L*x1_inner), static_cast<int64_t>(4L));
    tmp1.store(out_ptr0 + static_cast<int64_t>(x0 + 4L*x1 + 4L*x1_inner), static_cast<int64_t>(4L));
}
"""
MASKED = """
auto tmp5 = at::vec::VecMask<float,1>(tmp2 < tmp4);
auto tmp6 = [&]
{
    auto tmp7 = tmp5.template cast<float,1>().template loadu<float,1>(in_ptr0 + READ);
    return tmp7;
}
;
auto tmp8 = tmp5.all_zero() ? at::vec::Vectorized<float>(0) : tmp6();
tmp8.store(out_ptr0 + WRITE);
"""


@pytest.mark.slow
def test_what_the_text_search_did_not_understand(opened: Open) -> None:
    for read in (SAME, FLIPPED):
        code = cpp(LOOP.replace("BODY", MASKED.replace("READ", read).replace("WRITE", SAME)))
        assert found(opened, code, pair()) == []
        assert accesses(code).unread == set()
    assert texts(code, is_write=False) == {("in_ptr0", index_text(FLIPPED))}
    assert texts(code, is_write=False, is_sure=True) == set()
    assert texts(code, is_write=True, is_sure=True) == {("out_ptr0", index_text(SAME))}


@pytest.mark.slow
def test_a_transposition_in_place(opened: Open) -> None:
    """The tile that is read is the tile that is written; in the second kernel it is the tile of another iteration."""
    outer = LOOP.replace("<static_cast<int64_t>(4L)", "<static_cast<int64_t>(16L)").replace(
        "x0+=static_cast<int64_t>(1L)", "x0+=static_cast<int64_t>(4L)"
    )
    body = TRANSPOSED.replace("READ", "x1 + 8L*x0")
    assert accesses(cpp(outer.replace("BODY", body))).unread == set()
    (finding,) = found(opened, cpp(outer.replace("BODY", body)), pair())
    assert (finding.severity, finding.evidence["read_at"]) == ("critical", ["8*x0+x1"])
    alone = LOOP.replace("x0+=static_cast<int64_t>(1L)", "x0+=static_cast<int64_t>(4L)")
    assert found(opened, cpp(alone.replace("BODY", body)), pair()) == []


SOFTMAX = """    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(4L); x0+=static_cast<int64_t>(1L))
    {
        for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(8L); x1+=static_cast<int64_t>(1L))
        { tmp_acc0 = max_propagate_nan(tmp_acc0, in_ptr0[static_cast<int64_t>(x1 + 8L*x0)]); }
        for(int64_t x2=static_cast<int64_t>(0L); x2<static_cast<int64_t>(2L); x2+=static_cast<int64_t>(1L))
        { for(int64_t x3=static_cast<int64_t>(0L); x3<static_cast<int64_t>(4L); x3+=static_cast<int64_t>(1L))
          { out_ptr0[static_cast<int64_t>(x3 + 4L*x2 + ROW*x0)] = tmp_acc0; } }
    }
"""


@pytest.mark.slow
def test_a_row_that_is_read_before_it_is_written(opened: Open) -> None:
    """By two loops beside one another, of other forms. The second kernel writes into rows that come later."""
    assert found(opened, cpp(SOFTMAX.replace("ROW", "8L")), pair()) == []
    (finding,) = found(opened, cpp(SOFTMAX.replace("ROW", "12L")), pair())
    assert finding.evidence["why"] == "one loop nest reads what it overwrites"


def meta(argument: int, offset: int, size: list[int], stride: list[int], storage: int | None = 4096) -> TensorMeta:
    return TensorMeta(argument, "float32", size, stride, "cpu", offset, 4096, None, storage)


@pytest.mark.slow
def test_parts_of_one_buffer_that_do_not_touch(opened: Open) -> None:
    apart = [meta(0, 0, [8, 8], [16, 1]), meta(1, 8, [8, 8], [16, 1])]
    assert found(opened, cpp(scalar(FLIPPED, SAME)), pair(), tensors=apart) == []
    ahead = [meta(0, 0, [4, 8], [8, 1]), meta(1, 8, [4, 8], [8, 1])]
    (finding,) = found(opened, cpp(scalar(SAME, SAME)), pair(), tensors=ahead)
    assert finding.evidence["read"]["offset"] == 0


@pytest.mark.slow
def test_what_is_read_before_it_is_overwritten(opened: Open) -> None:
    """Rows are moved to the front, one after the other; where they may be moved in any order it is an overlap."""
    behind = [meta(0, 8, [4, 8], [8, 1]), meta(1, 0, [4, 8], [8, 1])]
    in_order = cpp(scalar(SAME, SAME).replace("#pragma omp for", ""))
    assert found(opened, in_order, pair(), tensors=behind) == []
    assert len(found(opened, cpp(scalar(SAME, SAME)), pair(), tensors=behind)) == 1
    other = [replace(behind[0], dtype="float64"), behind[1]]
    assert found(opened, cpp(scalar(SAME, SAME)), pair(), tensors=other) == []


def test_two_names_at_one_address(opened: Open) -> None:
    arguments = [Argument("x", "in", "x", "in_ptr0"), Argument("y", "out", "y", "out_ptr0")]
    same = [meta(0, 0, [4, 8], [8, 1]), meta(1, 0, [4, 8], [8, 1])]
    assert len(found(opened, cpp(scalar(FLIPPED, SAME)), arguments, tensors=same)) == 1
    other = [meta(0, 0, [4, 8], [8, 1]), meta(1, 0, [4, 8], [8, 1], 8192)]
    assert found(opened, cpp(scalar(FLIPPED, SAME)), arguments, tensors=other) == []


class TestOperators:
    def test_an_out_that_overlaps_an_input(self, opened: Open) -> None:
        (finding,) = found(opened, "", pair(out="out"), "extern")
        assert (finding.severity, finding.evidence["why"]) == (
            "critical",
            "the output of an operator overlaps its input",
        )

    def test_in_place_by_schema(self, opened: Open) -> None:
        both = [Argument("x", "inout", "x", "self"), Argument("x", "in", "x", "other")]
        same = [meta(0, 0, [4, 8], [8, 1]), meta(1, 0, [4, 8], [8, 1])]
        assert found(opened, "", [Argument("x", "inout", "x", "self")], "fallback") == []
        assert found(opened, "", both, "fallback", tensors=same) == []
        flipped = [meta(0, 0, [8], [1]), meta(1, 4, [8], [1])]
        assert [finding.severity for finding in found(opened, "", both, "fallback", tensors=flipped)] == ["warning"]

    def test_a_view_is_told_by_the_name_of_its_buffer(self, opened: Open) -> None:
        written = Argument("reinterpret_tensor(x, (8,), (1,), 4)", "inout", "x", "out")
        shifted = [meta(0, 4, [8], [1]), meta(1, 0, [8], [1])]
        (finding,) = found(opened, "", [written, Argument("x", "in", "x", "x")], "fallback", tensors=shifted)
        assert finding.title.startswith("x may be overwritten while it is still read, by ")

    @pytest.mark.parametrize("kind", ["user_triton", "collective", "copy", "subgraph"])
    def test_what_is_not_judged(self, opened: Open, kind: LaunchKind) -> None:
        assert found(opened, "", pair(out="out"), kind) == []


def view(size: list[int], stride: list[int], offset: int, dtype: str = "float32") -> View:
    return View(0, "x", "in", None, dtype, size, stride, offset)


@pytest.mark.parametrize(
    ("a", "b", "overlap"),
    [
        (view([4], [1], 0), view([4], [1], 4), False),
        (view([4], [1], 0), view([4], [1], 3), True),
        (view([4], [2], 0), view([4], [2], 1), False),
        (view([4], [2], 0), view([4], [1], 0, "float16"), True),
        (view([0], [1], 0), view([4], [1], 0), False),
        (view([2, 2], [1], 0), view([4], [1], 9), True),
        (view([4], [0], 8), view([4], [1], 0), False),
        (view([1 << 21], [2], 0), view([1 << 21], [2], 1), True),
        (View(0, "x", "in", None, None, None, None, None), view([4], [1], 0), True),
    ],
)
def test_views(a: View, b: View, overlap: bool) -> None:
    assert do_overlap(a, b) is overlap
    assert do_overlap(b, a) is overlap


def test_item_sizes() -> None:
    assert [item_bytes(name) for name in ("float32", "bool", "complex64", "float8_e4m3fn", "int", "x" * 9)] == [
        4, 1, 8, 1, 1, 1,
    ]  # fmt: skip


def test_expressions() -> None:
    assert index_text("static_cast<int64_t>(x1 + 8L*x0)") == index_text("((8*x0) + (x1))") == "8*x0+x1"
    assert index_text("x1 + x1_inner + 64L*x0") == index_text("64*x0 + x1_tail") == "64*x0+x1"
    assert index_text("0L") == "0"


@pytest.mark.parametrize(
    "code",
    ["", "(", "for(", "for(x){in_ptr0[", "in_ptr0 + (", "{in_ptr0[((((", "def k(in_ptr0):\n tl.load(in_ptr0 + ("],
)
def test_code_that_is_cut_off(code: str) -> None:
    assert accesses(code).nests is not None


def test_atomics_and_aliases() -> None:
    body = LOOP.replace("BODY", "auto t = out_ptr0[x1]; atomic_add(&in_out_ptr0[x0], t); in_out_ptr0[x2] += t;")
    code = HEAD.replace("out_ptr0", "in_out_ptr0") + "auto out_ptr0 = in_out_ptr0;\n" + body + "}"
    assert texts(code, is_write=False) == {("in_out_ptr0", "x1"), ("in_out_ptr0", "x2")}
    assert texts(code, is_write=True) == {("in_out_ptr0", "x0"), ("in_out_ptr0", "x2")}
    assert accesses(code).unread == set()


@pytest.mark.parametrize(
    ("read", "write", "ends", "how"),
    [
        ("x0", "64 + x0", {"x0": 4032}, "meet"),
        ("64 + x0", "x0", {"x0": 4032}, "apart"),  # it is read before
        ("256 + x0", "128 + x0", {"x0": 128}, "apart"),
        ("5 + x1 + 64*x0", "x1 + 64*x0", {"x0": 8, "x1": 5}, "apart"),
        ("1 + 2*x0", "2*x0", {"x0": 10**9}, "unknown"),
        ("10**9", "x0", {"x0": 10**9}, "unknown"),
        ("999999999 - x0", "x0", {"x0": 10**9}, "meet"),
        ("2*x0", "x0 + x0", {"x0": 9}, "apart"),
        ("x1 + 8*x0", "x0 + 8*x1", {"x0": 8, "x1": 8}, "meet"),
        ("24 + x1 + ((-8)*x0)", "x1 + 8*x0", {"x0": 4, "x1": 8}, "meet"),
        ("x0", "64*tmp5 + x0", {"x0": 64}, "unknown"),
        ("x0", "ks0 + x0", {"x0": "ks1"}, "unknown"),
        ("x1 + ks0*ks1 - ks1 + ((-1)*ks1*x0)", "x1 + ks1*x0", {"x0": "ks0", "x1": "ks1"}, "meet"),
        ("x1 + ks1*x0", "ks1*x0 + x1", {"x0": "ks0", "x1": "ks1"}, "same"),
        ("x0", "x0 + 1", {"x0": 0}, "apart"),
        ("x0", "x0 + 1", {"x0": 1}, "apart"),
        ("x0 % 4", "x0", {"x0": 8}, "meet"),
        ("x0", "x0 // 0", {"x0": 8}, "unknown"),
        ("x0", "x0 // x0", {"x0": 8}, "unknown"),
        ("x0", "(x0 - 4) % 3", {"x0": 8}, "unknown"),
        ("9" * 18 + "*x0", "9" * 18 + "*x0*x0", {"x0": 1 << 40}, "unknown"),
        ("x0", "x0 + 1", {"x0": 1 << 62}, "unknown"),
    ],
)
def test_places_that_meet(read: str, write: str, ends: dict[str, int | str], how: Meeting) -> None:
    axes = tuple(Axis(name, index("0"), index(str(end)), index("1"), is_parallel=False) for name, end in ends.items())
    a, b = (place(text, axes, is_write) for text, is_write in ((read, False), (write, True)))
    assert meeting(a, b) == how


def place(text: str, axes: tuple[Axis, ...], is_write: bool) -> ElementAccess:
    known = None if "**" in text else index(text)
    return ElementAccess("in_ptr0", is_write, known, normal(index(text)), axes, is_sure=True, ends=None)


def index(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("name", "last"),
    [("x2", 127), ("x0", 15), ("x1", 7), ("x3", 7), ("r0_1", 8), ("x0 + 16*x1", 127), ("x0 + 8*x3", 71)],
)
def test_bounds_of_a_triton_kernel(name: str, last: int) -> None:
    body = (
        "xnumel = 128\nr0_numel = 9\nx2 = xindex\nx0 = (xindex % 16)\nx1 = xindex // 16\nx3 = ((xindex // 4) % 8)\n"
        "for r0_offset in range(0, r0_numel, R0_BLOCK):\n    r0_index = r0_offset + tl.arange(0, R0_BLOCK)[None, :]\n"
        f"    r0_mask = r0_index < r0_numel\n    r0_1 = r0_index\n    tl.load(in_ptr0 + ({name}), r0_mask & xmask)"
    )
    code = triton(body).replace("XBLOCK :", "R0_BLOCK : tl.constexpr, XBLOCK :")
    ((access,),) = accesses(code).nests
    is_exact = name != "x0 + 8*x3"  # not all pairs of the two come up
    assert access.ends == ((0, last), is_exact, frozenset())


def test_a_title_names_a_file_once_for_all_of_its_lines() -> None:
    lines = [("/a/model.py", 3), ("/a/model.py", 4), ("/b/loss.py", 7), ("/a/model.py", 3)]
    stacks = [[SourceLine("/a/train.py", 1, "main", ""), SourceLine(*line, "forward", "")] for line in lines]
    site = SiteRow(0, 0, 0, "call", 3, "k", "cpp", None, None, None, [], [], [], [], stacks, [], None, None)
    assert places(site) == " (model.py:3, 4 and loss.py:7)"
