-- The index of one trace. Ids are unique within the index; `log` names the file a row came from.
-- Times: start_ns and end_ns of run-time rows stand on the log's own monotonic clock (logs.monotonic_ns and
-- logs.unix_ns are one moment on both clocks); *_unix_ns are unix nanoseconds.
-- Sizes in bytes. Unknown is NULL, never 0. Payloads and headers stay in the log: rows hold their place.

CREATE TABLE meta (key VARCHAR, value VARCHAR);

CREATE TABLE logs (
    log BIGINT, path VARCHAR, size_bytes BIGINT, rank BIGINT, world_size BIGINT, pid BIGINT,
    format_version BIGINT,           -- NULL: PyTorch alone wrote this log, or it is damaged; a newer one is not read
    complete BOOLEAN,                -- an end record was seen; NULL for a log that PyTorch alone wrote
    device_error VARCHAR,            -- the error that a CUDA device was in at the end
    monotonic_ns BIGINT, unix_ns BIGINT,
    utc_offset_s BIGINT,             -- NULL: unknown, and times of records are local times taken as UTC
    start_unix_ns BIGINT,            -- of the run, else of the first record
    torch_version VARCHAR,
    run VARCHAR,                     -- JSON of the run record, NULL when there is none
    record_rank BIGINT,              -- what its records say; `rank`: the run record, else the log's name, else these
    writer VARCHAR                   -- stepscope, torch; NULL: it holds no record
);

-- Every record of the log in order; a header line starts at `byte`, the tabbed lines at `payload_byte`.
CREATE TABLE records (
    record BIGINT, log BIGINT, line BIGINT, byte BIGINT, header_bytes BIGINT,
    payload_byte BIGINT, payload_bytes BIGINT,            -- NULL: no payload
    time_unix_ns BIGINT, pid BIGINT, source VARCHAR,      -- "torch/_inductor/graph.py:2745"
    event VARCHAR,                   -- artifact, chromium_event, dynamo_start, ...
    name VARCHAR,                    -- artifact name; file name for inductor_output_code
    encoding VARCHAR,
    compile_id VARCHAR,              -- "0/0", "!1/0/0"; NULL outside a compile
    attempt BIGINT,
    crlf BOOLEAN                     -- payload lines end in CRLF
);

-- The logs' string tables: file names of stacks by number.
CREATE TABLE strings (log BIGINT, id BIGINT, text VARCHAR);

CREATE TABLE problems (log BIGINT, line BIGINT, byte BIGINT, reason VARCHAR, text VARCHAR);
CREATE TABLE problem_counts (log BIGINT, reason VARCHAR, count BIGINT);   -- all of them; `problems` is bounded
CREATE TABLE not_recorded (log BIGINT, what VARCHAR, why VARCHAR, graph BIGINT, count BIGINT);

CREATE TABLE compiles (
    compile BIGINT, log BIGINT, compile_id VARCHAR, frame VARCHAR,       -- "forward (model.py:12)"
    file VARCHAR, line BIGINT, function VARCHAR,
    status VARCHAR,                  -- ok, failed, skipped, fallback, unfinished
    attempts BIGINT, start_unix_ns BIGINT, duration_ns BIGINT,
    cache VARCHAR,                   -- hit, miss, bypass, NULL
    recompile_reason VARCHAR, graph_break_reason VARCHAR, failure VARCHAR,
    stack VARCHAR,                   -- JSON list of {file, line, function, code}, outermost first
    metrics VARCHAR                  -- JSON list of the records that hold compilation metrics
);
-- What happened to a compile: recompile, recompile_limit, graph_break, compile_failure, cache_bypass.
CREATE TABLE compile_events (
    log BIGINT, compile_id VARCHAR, kind VARCHAR, record BIGINT, cause VARCHAR, text VARCHAR,
    file VARCHAR, line BIGINT, function VARCHAR, code VARCHAR
);
-- Fields of the records of compilation metrics that have a value; lists by their length and as text. Settings are
-- left out, but `triton.cudagraphs`; `cudagraph_skip_reason` has a row wherever PyTorch writes the field.
CREATE TABLE metrics (record BIGINT, name VARCHAR, number DOUBLE, text VARCHAR);
CREATE TABLE cache_lookups (
    record BIGINT, log BIGINT, compile_id VARCHAR,
    cache VARCHAR,                   -- fx_graph, aotautograd, bundled, dynamo, precompile, profile
    state VARCHAR,                   -- hit, miss, bypass, saved, ...
    detail VARCHAR, key VARCHAR, reason VARCHAR, time_saved_ns BIGINT, components BIGINT
);
CREATE TABLE symbols (               -- of symbolic shapes that a compile made for inputs
    record BIGINT, log BIGINT, compile_id VARCHAR, symbol VARCHAR, source VARCHAR, value VARCHAR, value_range VARCHAR
);
-- What draft export writes; `node` is the expression that the record is about, or that it made.
CREATE TABLE export_events (
    record BIGINT, log BIGINT, event VARCHAR, subject VARCHAR, result VARCHAR, reason VARCHAR, node BIGINT,
    stack VARCHAR                    -- of the user's program: JSON list of {file, line, function, code}, outermost first
);

-- What ranks are compared by.
CREATE TABLE rank_facts (
    log BIGINT, record BIGINT, compile_id VARCHAR,
    kind VARCHAR,                    -- graph, collectives, tensors, execution
    stage VARCHAR,                   -- of a graph the event; of collectives schedule, wrapper
    digest VARCHAR,                  -- of what ranks of one program share
    items VARCHAR,                   -- of collectives: JSON list of [operator, group, size, dtype, constants] or [operator]
    estimated_ns DOUBLE              -- of tensors: Inductor's estimate of all operations
);

CREATE TABLE graphs (
    graph BIGINT,                    -- id in the index
    log BIGINT, local_graph BIGINT,  -- number in the log
    wrapper_key VARCHAR, compile_id VARCHAR, aot_id VARCHAR, phase VARCHAR, cached BOOLEAN, dynamic BOOLEAN,
    launch_sites BIGINT,             -- NULL when launches of this graph cannot be seen
    not_recorded VARCHAR,
    output_code BIGINT,              -- record that holds the wrapper's source
    functions VARCHAR,               -- JSON list
    operands_left_out VARCHAR        -- tensors that its launches may read and that `arguments` does not name
);
CREATE TABLE sites (
    site BIGINT, graph BIGINT, log BIGINT, local_site BIGINT, function VARCHAR, line BIGINT,
    kernel VARCHAR, kind VARCHAR, operator VARCHAR, handle VARCHAR,
    snodes VARCHAR,                  -- JSON list; NULL: not recorded
    outputs VARCHAR, source_nodes VARCHAR, aten VARCHAR, fx_nodes VARCHAR, -- JSON lists
    stacks VARCHAR                   -- JSON list of stacks, each a list of {file, line, function, code}
);
CREATE TABLE arguments (
    site BIGINT, argument BIGINT, name VARCHAR, role VARCHAR, buffer VARCHAR, parameter VARCHAR,
    storage VARCHAR, held VARCHAR,   -- input, written, uninitialised; NULL: not known
    version_site BIGINT,             -- id in the index; NULL: its value stands nowhere
    version_argument BIGINT, version_moment VARCHAR,
    version_item BIGINT              -- NULL: all of it
);
CREATE TABLE scalars (               -- arguments of sites that are no tensors
    site BIGINT, scalar BIGINT,
    position BIGINT,                 -- among the positional arguments, from 0; NULL: given by name, or compiled in
    name VARCHAR,                    -- of the kernel's parameter; NULL: not known
    expression VARCHAR,              -- over symbols, or a constant
    type VARCHAR,                    -- NULL: not known
    value VARCHAR                    -- of a constant; NULL: it follows from the symbols of the call
);
-- Numbers that the generated code computes in each call: a call has one assignment, of as many rows as it has symbols.
CREATE TABLE call_symbols (call BIGINT, assignment BIGINT);
CREATE TABLE symbol_values (
    assignment BIGINT, log BIGINT, symbol VARCHAR,
    launches BIGINT,                 -- of the call that had begun when the symbol got the value
    value VARCHAR                    -- as Python writes it; NULL: it is no number
);
CREATE TABLE tensors (               -- what the arguments were at run time
    site BIGINT, log BIGINT, local_call BIGINT, argument BIGINT, item BIGINT, dtype VARCHAR,
    size VARCHAR, stride VARCHAR,    -- JSON lists
    device VARCHAR, storage_offset BIGINT, storage_bytes BIGINT, storage_address BIGINT,
    place BIGINT                     -- order in the log, shared with same_tensors
);
CREATE TABLE same_tensors (          -- from local_call on, arguments are again what they were in of_call
    log BIGINT, local_call BIGINT, site BIGINT, argument BIGINT, -- from this argument of this site on, and of later sites
    of_call BIGINT, place BIGINT
);
CREATE TABLE memory_statements (
    graph BIGINT, event VARCHAR, buffer VARCHAR, function VARCHAR, line BIGINT, of_buffer VARCHAR
);

CREATE TABLE steps (
    log BIGINT, step BIGINT,
    kind VARCHAR,                    -- train, inference, data (what a worker of a DataLoader has called)
    by_what VARCHAR,                 -- user, optimizer, call, generate
    optimizers VARCHAR,              -- classes of those that ended it
    start_ns BIGINT, end_ns BIGINT,  -- with the compiles that it has triggered
    duration_ns BIGINT,              -- without any compile
    compile_ns BIGINT,               -- that those compiles took; NULL: the log has no spans
    launches BIGINT, calls BIGINT
);
CREATE TABLE calls (
    call BIGINT, log BIGINT, local_call BIGINT, graph BIGINT, function VARCHAR, step BIGINT, thread BIGINT,
    parent BIGINT, depth BIGINT, start_ns BIGINT, duration_ns BIGINT, launches BIGINT, state VARCHAR
);
-- Ids follow (log, step, start): the launches of a step are a range of ids.
CREATE TABLE launches (
    launch BIGINT, log BIGINT, call BIGINT, site BIGINT, step BIGINT, thread BIGINT,
    start_ns BIGINT, duration_ns BIGINT,      -- host time; duration NULL: not known
    returned BOOLEAN,
    device_duration_ns BIGINT        -- NULL: not measured
);
-- What the launch ring beside a log says: where a process stood when it was read, or when it died. The launches that
-- it holds and the log does not are rows of `launches`; their calls are `unfinished` where they had not ended.
CREATE TABLE ring_launches (
    log BIGINT, thread BIGINT,
    role VARCHAR,                    -- last_started: of each thread, by the host; in_flight: not returned to the host,
                                     -- or not known to be finished by its stream; last_finished: of each stream
    launch BIGINT, graph BIGINT, call BIGINT, site BIGINT, step BIGINT,  -- ids in the index
    returned BOOLEAN,                -- to the host
    device BIGINT, stream BIGINT,    -- index of a CUDA device and handle of a stream; NULL: the host alone knows
    position BIGINT                  -- of the launch in its call, from 0
);
-- How the command of a log ended, as `stepscope run` saw it: of one that failed, and of every run of --crash. Of other
-- processes the signal that asked them to leave, as their launch rings tell; the duration is NULL then.
CREATE TABLE process_ends (
    log BIGINT, pid BIGINT, exit_code BIGINT,                 -- NULL: a signal ended it
    signal BIGINT, timed_out BOOLEAN, duration_ns BIGINT, error_tail VARCHAR,
    run BIGINT,                      -- of --crash, from 1; NULL: without it, and so all that follows
    purpose VARCHAR, environment VARCHAR,                     -- JSON object
    level VARCHAR, kernels VARCHAR, tool VARCHAR,             -- JSON lists
    tool_errors VARCHAR              -- JSON list of {text, kernel, file, line, where, details, times}
);
CREATE TABLE uncaught_exceptions (
    log BIGINT, time_unix_ns BIGINT, type VARCHAR, text VARCHAR,
    frames VARCHAR                   -- JSON list of {file, line, function, code}, outermost first
);
CREATE TABLE device_errors (log BIGINT, text VARCHAR);   -- in which a device was when the recording ended
-- Statistics of a tensor before or after a launch. Each version of a buffer is read once: `arguments.version_*`
-- says where the row of what a launch read stands. Over the finite elements: min, max, mean, std, l2, largest.
-- Of statistics that PyTorch's debug printer printed, zero, near_overflow, subnormal, std and l2 are NULL.
CREATE TABLE value_rows (
    value BIGINT,                    -- ids follow (log, step, launch)
    log BIGINT, launch BIGINT, call BIGINT, step BIGINT, site BIGINT, argument BIGINT,
    item BIGINT, part VARCHAR, moment VARCHAR,                -- before, after
    dtype VARCHAR, numel BIGINT, looked_at BIGINT,            -- looked_at < numel: a strided sample
    skipped VARCHAR,                 -- why there are no statistics; then everything below is NULL
    nan BIGINT, positive_infinity BIGINT, negative_infinity BIGINT, zero BIGINT,
    near_overflow BIGINT, subnormal BIGINT,
    min DOUBLE, max DOUBLE, exact_min VARCHAR, exact_max VARCHAR, -- exact_*: where a DOUBLE cannot hold it
    mean DOUBLE, std DOUBLE, l2 DOUBLE, largest DOUBLE,       -- l2 of a sample is of the sample
    first_bad BIGINT,                -- flat index of the first NaN or infinity
    at_least BOOLEAN,                -- there are so many NaN and infinities at least
    elements VARCHAR                 -- JSON list in row-major order; NULL: they were not kept
);
-- The same of inputs of a call that no launch names: `launch` and `site` are those of the call's first launch, and
-- `argument` is -1 for the first of them, then -2. Their ids are among those of value_rows.
CREATE TABLE input_rows AS SELECT *, ''::VARCHAR AS name FROM value_rows WITH NO DATA;
CREATE TABLE tuned_kernels (         -- with which configuration a Triton kernel runs
    log BIGINT, graph BIGINT, kernel VARCHAR,
    config VARCHAR                   -- JSON object: block sizes, num_warps, num_stages
);
CREATE TABLE saved_tensors (
    tensor BIGINT, log BIGINT, launch BIGINT, site BIGINT, argument BIGINT, item BIGINT, moment VARCHAR,
    file VARCHAR, dtype VARCHAR, size VARCHAR, tensor_bytes BIGINT, sha256 VARCHAR
);
CREATE TABLE spans (                 -- compile-time spans from chromium events
    log BIGINT, name VARCHAR, compile_id VARCHAR, thread BIGINT, depth BIGINT,
    start_unix_ns BIGINT, duration_ns BIGINT,
    self_ns BIGINT                   -- outside of the spans within
);
CREATE TABLE span_marks (            -- instant events, and spans without an end
    log BIGINT, name VARCHAR, compile_id VARCHAR, thread BIGINT, depth BIGINT, unix_ns BIGINT,
    kind VARCHAR,                    -- instant, unfinished
    arguments VARCHAR                -- JSON of the short ones
);
CREATE TABLE overhead (log BIGINT, hook_ns BIGINT, wall_ns BIGINT, log_bytes BIGINT, launches BIGINT, failures BIGINT, stats_ns BIGINT);

-- Memory. Position p of a call: p of its launches have begun. An estimate of the scheduler's for each (sub)graph:
CREATE TABLE schedules (
    schedule BIGINT, log BIGINT, graph BIGINT, subgraph VARCHAR,     -- NULL: the graph itself
    peak_bytes BIGINT, peak_snodes VARCHAR, base_bytes BIGINT        -- JSON list of indices
);
CREATE TABLE schedule_nodes (
    schedule BIGINT, snode_index BIGINT, snode VARCHAR, members VARCHAR, kind VARCHAR, alloc_bytes BIGINT,
    free_bytes BIGINT, after_alloc_bytes BIGINT, after_free_bytes BIGINT
);
CREATE TABLE scheduled_buffers (
    schedule BIGINT, name VARCHAR, alloc_bytes BIGINT, free_bytes BIGINT, first_snode BIGINT, last_snode BIGINT,
    role VARCHAR                     -- input (may be freed), temporary, output, removed, base
);
-- Storages of calls. Calls that run alike share a layout: what a call met is (measured_calls, layout_storages).
CREATE TABLE layouts (
    layout BIGINT, log BIGINT, graph BIGINT, function VARCHAR, storages BIGINT, events BIGINT, calls BIGINT,
    positions BIGINT,                -- launches of a call
    peak_bytes BIGINT, peak_position BIGINT, -- of what is owned
    peak_site BIGINT, base_bytes BIGINT,
    first_call BIGINT                -- NULL: no call ran so
);
CREATE TABLE layout_storages (
    layout BIGINT, storage BIGINT, name VARCHAR, kind VARCHAR, storage_bytes BIGINT, device VARCHAR, born BIGINT,
    site BIGINT, calls_back BIGINT, met_in BIGINT,
    met_as BIGINT,                   -- NULL: the call is the first to meet it
    dead BIGINT,                     -- position; NULL: not in the call
    is_owned BOOLEAN                 -- made by the call, or an input that it may free
);
-- Beside layout_storages, at launches behind which other calls ran: what these made, of which the call knows nothing.
CREATE TABLE inner_bytes (
    log BIGINT, call BIGINT, position BIGINT,
    storage_bytes BIGINT,            -- the most at once
    ns BIGINT                        -- when
);
CREATE TABLE measured_calls (call BIGINT, log BIGINT, local_call BIGINT, step BIGINT, layout BIGINT);
-- Storages that outlived the call that met them first; all others live and die by their layout.
CREATE TABLE survivors (
    log BIGINT, call BIGINT, storage BIGINT, layout BIGINT, storage_bytes BIGINT, device VARCHAR, made BOOLEAN,
    last_step BIGINT,                -- of the calls that met it
    met_by_backward BOOLEAN,
    born_ns BIGINT, died_ns BIGINT,  -- NULL: not seen to die
    died_call BIGINT, died_position BIGINT -- NULL: outside of calls
);
CREATE TABLE lifetime_logs (log BIGINT, calls BIGINT, storages BIGINT, events BIGINT, looked_for_growth BOOLEAN);
-- Live bytes of all storages that calls of a log have met, over time. Level 0 has a row for each moment, a row of
-- level n stands for 64 of level n - 1.
CREATE TABLE live_bytes (log BIGINT, device VARCHAR, ns BIGINT, live_bytes BIGINT, made_bytes BIGINT);
CREATE TABLE live_levels (
    log BIGINT, device VARCHAR, level BIGINT, ns BIGINT, low_bytes BIGINT, high_bytes BIGINT, made_bytes BIGINT
);
CREATE TABLE live_peaks (
    log BIGINT, device VARCHAR, first_ns BIGINT, last_ns BIGINT, ns BIGINT, live_bytes BIGINT, made_bytes BIGINT
);
CREATE TABLE allocator (
    log BIGINT, call BIGINT, position BIGINT, allocated_bytes BIGINT, reserved_bytes BIGINT
);
CREATE TABLE lifetime_mismatches (
    mismatch BIGINT, log BIGINT, graph BIGINT, layout BIGINT, call BIGINT, kind VARCHAR, buffer VARCHAR,
    storage BIGINT, storage_bytes BIGINT, expected BIGINT, actual BIGINT, expected_by VARCHAR,
    holders VARCHAR                  -- JSON list
);
CREATE TABLE memory_step_mismatches ( -- found by checks in generated code
    mismatch BIGINT, log BIGINT, graph BIGINT, call BIGINT, -- NULL: not in a wrapper that was recorded
    file VARCHAR, line BIGINT, is_final_step BOOLEAN, kind VARCHAR, buffer VARCHAR,
    storage_bytes BIGINT,            -- NULL: it was not allocated
    holders VARCHAR,                 -- JSON list
    site BIGINT,                     -- that ran last before the check; NULL: not known
    storage VARCHAR,                 -- the first name of its memory
    times BIGINT                     -- a mismatch that was found again has further rows: their sum counts
);
CREATE TABLE left_behind (
    log BIGINT, call BIGINT, storage BIGINT, layout BIGINT, holders VARCHAR, freed_by_collection BOOLEAN
);
CREATE TABLE recompute_mismatches (  -- the figures stay in the record
    recompute BIGINT, log BIGINT, record BIGINT, time_unix_ns BIGINT, compile_id VARCHAR,
    graph BIGINT,                    -- NULL: the compile came to no graph that could be recorded
    subgraph VARCHAR, pass_name VARCHAR,
    swap BIGINT, candidate VARCHAR, members VARCHAR, reasons VARCHAR, reason_snodes VARCHAR, -- JSON lists
    peak_before_bytes BIGINT, peak_after_bytes BIGINT, allowed_peak_bytes BIGINT, is_explained BOOLEAN,
    peak_snodes VARCHAR,             -- JSON list: index of every node at the peak
    peak_snode VARCHAR,              -- name of the first of them
    snodes BIGINT, found_by VARCHAR,
    swapped VARCHAR                  -- JSON list: the candidate, then the nodes of the group
);
