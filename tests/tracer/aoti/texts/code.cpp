extern "C"  void  cpp_fused_log_0(const float* in_ptr0,
                       float* out_ptr0,
                       const int64_t ks0);
void AOTInductorModel::run_impl(
) {
    aoti_torch_print_tensor_handle(arg1_1, "aoti_model_inputs - arg1_1");
    auto arg1_1_size = arg1_1.sizes();
    int64_t s77 = arg1_1_size[0];
    const int64_t int_array_0[] = {s77, 16L};
    // Topologically Sorted Source Nodes: [linear], Original ATen: [aten.t, aten.addmm]
    // [Provenance debug handles] aoti_torch_cpu_addmm_out:1
    static constexpr int64_t int_array_2[] = {16L, 16L};
    aoti_torch_print_tensor_handle(buf0, "before_launch - aoti_torch_cpu_addmm_out - buf0");
    aoti_torch_print_tensor_handle(arg1_1, "before_launch - aoti_torch_cpu_addmm_out - arg1_1");
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf0, bias, arg1_1, wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(weight, 2, int_array_2, int_array_2, 0L)), 0.5, 1L));
    aoti_torch_print_tensor_handle(buf0, "after_launch - aoti_torch_cpu_addmm_out - buf0");
    aoti_torch_print_tensor_handle(arg1_1, "after_launch - aoti_torch_cpu_addmm_out - arg1_1");
    // Topologically Sorted Source Nodes: [attention], Original ATen: [aten.attention]
    // [Provenance debug handles] aoti_torch_cpu_attention:2
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_attention(wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf0, 2, int_array_2, int_array_2, 0L)), 0.0));
    // [Provenance debug handles] cpp_fused_log_0:3
    aoti_torch_print_tensor_handle(buf0, "before_launch - cpp_fused_log_0 - buf0");
    aoti_torch_print_tensor_handle(buf1, "before_launch - cpp_fused_log_0 - buf1");
    cpp_fused_log_0((const float*)(buf0.data_ptr()), (float*)(buf1.data_ptr()), c10::div_floor_integer(static_cast<int64_t>(16L*s77), static_cast<int64_t>(2L)));
    aoti_torch_print_tensor_handle(buf0, "after_launch - cpp_fused_log_0 - buf0");
    aoti_torch_print_tensor_handle(buf1, "after_launch - cpp_fused_log_0 - buf1");
    // Topologically Sorted Source Nodes: [pool], Original ATen: [aten._adaptive_avg_pool2d]
    // [Provenance debug handles] aoti_torch_cpu__adaptive_avg_pool2d:4
    const int64_t int_array_3[] = {s77, 4L};
    AtenTensorHandle buf2_handle;
    aoti_torch_print_tensor_handle(buf1, "before_launch - at::_ops::_adaptive_avg_pool2d::call - buf1");
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu__adaptive_avg_pool2d(buf1, int_array_3, 2, &buf2_handle));
    aoti_torch_print_tensor_handle(buf1, "after_launch - at::_ops::_adaptive_avg_pool2d::call - buf1");
    // [Provenance debug handles] aoti_torch_cpu_cumsum:5
    int32_t var_0 = cached_torch_dtype_float64;
    aoti_torch_print_tensor_handle(buf1, "before_launch - at::_ops::cumsum::call - buf1");
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_cumsum(buf1, -1L, &var_0, &buf3_handle));
    aoti_torch_print_tensor_handle(buf1, "after_launch - at::_ops::cumsum::call - buf1");
} // AOTInductorModel::run_impl
