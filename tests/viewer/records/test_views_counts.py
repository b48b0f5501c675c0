"""Every record of every log is in the index and has a view: checked against a count of the log's lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.viewer.compiles.queries.stages import TITLES
from stepscope.viewer.ingest.torch_trace.event_kinds import EVENTS
from stepscope.viewer.ingest.torch_trace.kinds import KINDS, KNOWN_EVENTS, UNREADABLE, kind_of
from stepscope.viewer.records.queries.artifacts import list_records
from stepscope.viewer.records.queries.record_view import record_view
from stepscope.viewer.records.rows import RecordView
from stepscope.viewer.records.views.view import reader_of, view_of
from stepscope.viewer.search.ask import ask
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.plain_reader import kinds as counted
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client
from tests.viewer.conftest import sample_logs

pytestmark = pytest.mark.slow


Opened = Callable[[LogBuilder | bytes], Trace]
FOLDER = sample_logs()
LOGS = sorted(path for path in FOLDER.rglob("*") if path.suffix in (".log", ".txt")) if FOLDER else []


def words(text: str) -> list[str]:
    return text.split()


# As found in the sources of PyTorch 2.6 to 2.13, and of 2.15; written down apart from the product.
NAMES_OF_EVENTS = words("""
aot_autograd_backward_compilation_metrics aot_backward_graph aot_forward_graph aot_inference_graph aot_joint_graph
bwd_compilation_metrics bwd_compilation_metrics_runtime chromium_event compilation_metrics compilation_metrics_runtime
compiled_autograd_graph create_symbol create_unbacked_symbol describe_source describe_storage describe_tensor
dump_file dynamo_cpp_guards_str dynamo_guards dynamo_output_graph dynamo_start export exported_program
expression_created graph_dump guard_added guard_added_fast guard_on_data_dependent_error inductor_input_graph
inductor_output_code
inductor_post_grad_graph inductor_pre_grad_graph link mismatched_fake_kernel missing_fake_kernel
optimize_ddp_split_child optimize_ddp_split_graph propagate_real_tensors propagate_real_tensors_provenance str
symbolic_shape_specialization
""")
NAMES_OF_ARTIFACTS = words("""
after_joint_graph before_joint_graph after_post_grad_graph before_post_grad_graph after_pre_grad_graph
before_pre_grad_graph inductor_post_grad_graph fx_graph_runnable fx_graph_cache_hit fx_graph_cache_miss
fx_graph_cache_bypass fx_graph_bundled_cache_hit fx_graph_cache_hash aotautograd_cache_hit aotautograd_cache_miss
aotautograd_cache_bypass aotautograd_cache_saved aotautograd_cache_hash aotautograd_cache_pickle_failure
aot_forward_graph_fw_metadata aot_forward_graph_fw_subclass_metadata aot_inference_graph_after_hop_passes
aot_joint_graph_sync_decision_cross_ranks aot_saved_tensors_hooks_graphs before_activation_quantization_fwd_aten_pass
after_activation_quantization_fwd_aten_pass before_activation_quantization_bwd_aten_pass
after_activation_quantization_bwd_aten_pass compiled_autograd_compile_reasons compiled_autograd_graph_pre_reordering
compiler_collective dynamo_cache_bypass dynamo_cache_entries dynamo_cache_exception dynamo_error
dynamo_graph_break_reason dynamo_side_effects eager_compile_backwards_failure fx_bucketing_passes_all_gather_buckets
fx_bucketing_passes_reduce_scatter_buckets fx_compute_nodes_runtime_estimation fx_collectives_analytical_estimation
fx_interpreter_error fx_net_acc_splitter_finder_events get_extra_remote_code_state get_local_code_state
get_remote_code_state put_local_code_state graph_execution inductor_autotune_at_compile_time_code
inductor_collective_schedule inductor_runtime_and_tensor_meta inductor_fx_passes_overlap_bucketing
inductor_overlap_cyclic_extra_deps inductor_provenance_tracking_node_mappings
inductor_provenance_tracking_kernel_stack_traces inductor_post_to_pre_grad_nodes
inductor_triton_kernel_to_post_grad_nodes inductor_spmd_graph_mismatch invoke_subgraph_backward_duplicate
make_fx_fail_partial min_cut_failed_edge_list min_cut_failed_fx_graph min_cut_failed_svg min_cut_information
overlap_scheduling_graph_before overlap_scheduling_graph_after pge_profile_vs_analytical pre_decomp_comms
post_decomp_comms pre_bucketing_collective_sizes pre_bucketing_collective_sizes_after pre_bucketing_fsdp_collectives
precompile_cache_bypass recompile_reasons reorder_communication_preserving_peak_memory sink_waits_iterative_info
scheduler_nodes_before_comm_overlap swap_ITERATIVE_RECOMPUTE_ERROR model__0_fused torch._functorch.config torch_version
triton_kernel_info f_ORIGINAL_BYTECODE f_MODIFIED_BYTECODE quant_post_grad quant_pre_grad optimus_BatchLinear
compiled_fn_wrapper runtime_wrapper_orchestration compiled_function_forward compiled_function_backward
backward_prologue backward_epilogue subclass_wrapper memoizer_artifacts vllm_compilation_config
vllm_piecewise_compile_start vllm_piecewise_split_graph vllm_subgraph_0 vllm_submod_0
compile_worker_status compile_worker_sidecar_death aot_autograd_runtime_wrappers native_dsl_compile
flex_gemm_lowering_plan
""")


def kinds_in(trace: Trace) -> Counter[str]:
    """What the page of the records says; the rows of the index are as many."""
    page = Client(trace).get("/records.json").json()["page"]
    found = Counter(dict(page["kinds"]))
    (events,) = ask(trace, "SELECT count(*) FROM records").rows
    assert (page["total"], events[0]) == (found.total(), found.total())
    return found


def views_in(trace: Trace) -> dict[int, RecordView]:
    """The view of every record. Chromium events, which are most, are read in one go."""
    rows = list_records(trace, limit=10**6).rows
    events = [row.record for row in rows if row.event == "chromium_event"]
    payloads = trace.payloads(events)
    views = {
        record: view_of("chromium_event", None, None, {}, payloads[record].decode("utf-8", "replace"))
        for record in events
        if record in payloads
    }
    for row in rows:
        if row.record not in views:
            view = record_view(trace, row.record)
            assert view is not None
            views[row.record] = view
    return views


def warnings(views: dict[int, RecordView]) -> list[str]:
    notes = (block for view in views.values() for block in view.blocks if block.type == "note")
    return [note.text for note in notes if note.text.startswith("This record does not have the form")]


@pytest.mark.skipif(not LOGS, reason="no sample logs: set STEPSCOPE_SAMPLES to a folder of TORCH_TRACE logs")
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_counts_and_views_of_a_sample(path: Path, tmp_path: Path) -> None:
    with open_trace(path, index_dir=tmp_path) as trace:
        expected = counted(path.read_bytes())
        assert kinds_in(trace) == expected
        views = views_in(trace)
        assert len(views) == expected.total()
        assert all(view.known and view.says for view in views.values())
        # The one log with a broken payload says so in the view of that record.
        assert len(warnings(views)) == (path.name == "simple_corrupted_json.log")


def every_name() -> LogBuilder:
    log = LogBuilder()
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    for name in [*NAMES_OF_EVENTS, "nobody_knows"]:
        log.torch(name, {"name": name}, b"text of " + name.encode(), **ids)
        log.torch(name, {}, None)
    for name in [*NAMES_OF_ARTIFACTS, "nobody_knows_this"]:
        for payload in (b"some text", b'{"a": 1, "b": NaN}', b"[]"):
            log.artifact(name, payload, "string", **ids)
    return log


def test_counts_and_views_of_every_name(opened: Opened) -> None:
    log = every_name()
    trace = opened(log)
    expected = counted(log.data)
    assert (
        len(expected) == len(NAMES_OF_EVENTS) + len(NAMES_OF_ARTIFACTS) + 2 - 1
    )  # one name is an event and an artifact
    assert kinds_in(trace) == expected
    views = views_in(trace)
    assert len(views) == expected.total()
    unknown = {row.name or row.event for row in list_records(trace, limit=10**6).rows if not views[row.record].known}
    assert unknown == {"nobody_knows", "nobody_knows_this"}


def test_every_event_of_pytorch_is_known_to_the_reader_and_has_a_view() -> None:
    assert set(NAMES_OF_EVENTS) == set(EVENTS) == KNOWN_EVENTS - {"artifact", UNREADABLE}


def test_unknown_events_are_kept_counted_and_shown_raw(opened: Opened) -> None:
    log = LogBuilder().torch("from_the_future", {"answer": 42}, b"line one\nline two", frame_id=0, frame_compile_id=0)
    view = record_view(opened(log), 0)
    assert view is not None
    assert not view.known
    assert [block.text for block in view.blocks if block.type == "code"] == ["line one\nline two"]


def test_crlf_changes_no_count_and_no_view(opened: Opened) -> None:
    log = every_name()
    plain, crlf = opened(log), opened(log.data.replace(b"\n", b"\r\n"))
    assert kinds_in(plain) == kinds_in(crlf)
    assert views_in(plain) == views_in(crlf)


def test_the_view_of_every_kind_exists() -> None:
    """The table of kinds names views in text, because reading a log needs no view."""
    kinds = [*KINDS.values(), *(kind_of("artifact", name) for name in NAMES_OF_ARTIFACTS)]
    assert all(callable(reader_of(kind.view)) for kind in kinds)


def test_every_stage_of_the_table_is_one_of_a_compile() -> None:
    assert {kind.stage for kind in KINDS.values()} == {"", *TITLES}
