"""Lines of generated code, nodes and definitions that provenance joins, without an index."""

from __future__ import annotations

import time

from stepscope.viewer.compiles import provenance_lines


def test_old_node_histories_lead_back_to_the_first_graph() -> None:
    addmm = {"name": "addmm", "from_node": [{"name": "x", "from_node": []}]}
    value = {"mm": [{"name": "", "from_node": []}, {"name": "mm", "from_node": [addmm]}], "odd": 3, "none": []}
    assert provenance_lines.post_to_pre(value) == {"mm": ["x"], "odd": [], "none": []}


def test_cpp_wrapper_launches_and_definitions() -> None:
    text = "\n".join(
        [
            'extern "C" void cpp_fused_relu_0(const float* in_ptr0)',
            "{",
            "    use(in_ptr0);",
            "}",
            "",
            "void inductor_entry_impl() {",
            "    // [Provenance debug handles] cpp_fused_relu_0:3",
            "    cpp_fused_relu_0((const float*)(arg.data_ptr()),",
            "        buf);",
            "    // [Provenance debug handles] aten.sort.default:4",
            "    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_sort(arg));",
            "}",
        ]
    )
    code = provenance_lines.code_lines(text)
    assert code.launches == [("cpp_fused_relu_0:3", 7, 9), ("aten.sort.default:4", 10, 11)]
    assert code.definitions["cpp_fused_relu_0"] == (1, 4)


def test_nodes_of_subgraphs_do_not_hide_those_of_the_graph() -> None:
    text = """class GraphModule(torch.nn.Module):
    def forward(self, x):
        add = x + 1
        return add
    class inner(torch.nn.Module):
        def forward(self, y):
            add = y + 2
            mul = y * 2
"""
    assert provenance_lines.graph_lines(text).line_of == {"add": 3, "mul": 8}


def test_long_texts_cost_their_length_only() -> None:
    start = time.process_time()
    text = "    x = f(\n" * 20_000 + "# [Provenance debug handles] k:1\n" * 5_000
    provenance_lines.code_lines(text, ["x", "f"])
    provenance_lines.graph_lines(text)
    provenance_lines.graph_lines(" " * 200_000 + "x")
    assert time.process_time() - start < 10
