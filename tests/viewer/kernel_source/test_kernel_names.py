"""Operators are read from the names of kernels, where the reading is beyond doubt."""

from __future__ import annotations

import pytest

from stepscope.viewer.kernel_source.kernel_names import operators_named

ATTENTION = "_scaled_dot_product_flash_attention_for_cpu_backward"


@pytest.mark.parametrize(
    ("kernel", "operators"),
    [
        ("cpp_fused_exp_1", ("exp",)),
        ("triton_poi_fused_add_relu_3", ("add", "relu")),
        ("triton_red_fused_native_layer_norm_0", ("native_layer_norm",)),
        ("triton_per_fused__log_softmax_nll_loss_forward_7", ("_log_softmax", "nll_loss_forward")),
        ("triton_split_scan_fused_cumsum_1", ("cumsum",)),
        (f"cpp_fused_{ATTENTION}_clone_sum_view_3", (ATTENTION, "clone", "sum", "view")),
        (
            "cpp_fused_add_native_layer_norm_native_layer_norm_backward_view_4",
            ("add", "native_layer_norm", "native_layer_norm_backward", "view"),
        ),
        ("cpp_fused_0", ()),
        ("triton_poi_fused_12", ()),
        ("cpp_fused_adam_0", ()),  # no operator has this name
        ("cpp_fused_relu_add_1", ()),  # Inductor sorts the names
        ("my_fused_add_0", ()),
        ("cpp_fused_" + "add_" * 200 + "1", ()),
    ],
)
def test_operators(kernel: str, operators: tuple[str, ...]) -> None:
    assert operators_named(kernel) == operators
