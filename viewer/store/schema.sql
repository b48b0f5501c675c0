-- The index of one trace. Ids are unique within the index; `log` identifies the file that a row came from.
-- Columns that end in _unix_ns are unix nanoseconds. All other times are on the monotonic clock of their log;
-- logs.monotonic_ns and logs.unix_ns are the same moment on both clocks.
-- Sizes are in bytes. An unknown value is NULL, never 0. Headers and payloads stay in the log; rows have their position.

CREATE TABLE meta (key VARCHAR, value VARCHAR);

CREATE TABLE logs (
    log BIGINT, path VARCHAR, size_bytes BIGINT, rank BIGINT, world_size BIGINT, pid BIGINT,
    format_version BIGINT,           -- NULL if PyTorch alone wrote this log, or if it is damaged
    complete BOOLEAN,                -- whether it has an end record; NULL if PyTorch alone wrote it
    device_error VARCHAR,            -- the error of a CUDA device when the recording ended
    monotonic_ns BIGINT, unix_ns BIGINT,
    utc_offset_s BIGINT,             -- NULL if unknown; local times of records are then read as UTC
    start_unix_ns BIGINT,            -- start of the run, else time of the first record
    torch_version VARCHAR,
    run VARCHAR,                     -- JSON of the run record; NULL if there is none
    record_rank BIGINT,              -- rank in its records; `rank` prefers the run record and the log's name
    writer VARCHAR                   -- stepscope, torch; NULL if it has no records
);

-- Every record of the logs in their order. Its header line starts at `byte`, and its payload at `payload_byte`.
CREATE TABLE records (
    record BIGINT, log BIGINT, line BIGINT, byte BIGINT, header_bytes BIGINT,
    payload_byte BIGINT, payload_bytes BIGINT,            -- NULL if it has no payload
    time_unix_ns BIGINT, pid BIGINT, source VARCHAR,      -- "torch/_inductor/graph.py:2745"
    event VARCHAR,                   -- artifact, chromium_event, dynamo_start, ...
    name VARCHAR,                    -- artifact name; file name for inductor_output_code
    encoding VARCHAR,
    compile_id VARCHAR,              -- "0/0", "!1/0/0"; NULL if it belongs to no compile
    attempt BIGINT,
    crlf BOOLEAN                     -- whether the lines of the payload end in CRLF
);

-- The strings of each log, such as the file names in its stacks, by number.
CREATE TABLE strings (log BIGINT, id BIGINT, text VARCHAR);

CREATE TABLE problems (log BIGINT, line BIGINT, byte BIGINT, reason VARCHAR, text VARCHAR);
CREATE TABLE problem_counts (log BIGINT, reason VARCHAR, count BIGINT);   -- counts every problem; `problems` has the first ones
CREATE TABLE not_recorded (log BIGINT, what VARCHAR, why VARCHAR, graph BIGINT, count BIGINT);

CREATE TABLE compiles (
    compile BIGINT, log BIGINT, compile_id VARCHAR, frame VARCHAR,       -- "forward (model.py:12)"
    file VARCHAR, line BIGINT, function VARCHAR,
    status VARCHAR,                  -- ok, failed, skipped, fallback, unfinished
    attempts BIGINT, start_unix_ns BIGINT, duration_ns BIGINT,
    cache VARCHAR,                   -- hit, miss, bypass; NULL if unknown
    recompile_reason VARCHAR, graph_break_reason VARCHAR, failure VARCHAR,
    stack VARCHAR,                   -- JSON list of {file, line, function, code}, outermost first
    metrics VARCHAR,                 -- JSON list of its records of compilation metrics
    is_static BOOLEAN                -- whether no size is made dynamic that has changed, as with dynamic=False
);
-- Events of compiles. `kind` is recompile, recompile_limit, graph_break, compile_failure or cache_bypass. A graph break
-- in a function that the compiled function calls has in `resumed_line` the line of the compiled function that calls it.
CREATE TABLE compile_events (
    log BIGINT, compile_id VARCHAR, kind VARCHAR, record BIGINT, cause VARCHAR, text VARCHAR,
    file VARCHAR, line BIGINT, function VARCHAR, code VARCHAR, resumed_line BIGINT
);
-- The fields of compilation metrics that have a value. `number` of a list is its length. The only setting among them
-- is `triton.cudagraphs`. `cudagraph_skip_reason` has a row wherever PyTorch writes the field.
CREATE TABLE metrics (record BIGINT, name VARCHAR, number DOUBLE, text VARCHAR);
CREATE TABLE cache_lookups (
    record BIGINT, log BIGINT, compile_id VARCHAR,
    cache VARCHAR,                   -- fx_graph, aotautograd, bundled, dynamo, precompile, profile
    state VARCHAR,                   -- hit, miss, bypass, saved, ...
    detail VARCHAR, key VARCHAR, reason VARCHAR, time_saved_ns BIGINT, components BIGINT
);
CREATE TABLE symbols (               -- the symbols that a compile created for the sizes of inputs
    record BIGINT, log BIGINT, compile_id VARCHAR, symbol VARCHAR, source VARCHAR, value VARCHAR, value_range VARCHAR
);
-- The events of draft export. `node` is the expression that the record describes or creates.
CREATE TABLE export_events (
    record BIGINT, log BIGINT, event VARCHAR, subject VARCHAR, result VARCHAR, reason VARCHAR, node BIGINT,
    stack VARCHAR                    -- of the user's program: JSON list of {file, line, function, code}, outermost first
);

-- The facts by which ranks are compared.
CREATE TABLE rank_facts (
    log BIGINT, record BIGINT, compile_id VARCHAR,
    kind VARCHAR,                    -- graph, collectives, tensors, execution
    stage VARCHAR,                   -- for a graph its event; for collectives schedule or wrapper
    digest VARCHAR,                  -- digest of what the ranks of a program have in common
    items VARCHAR,                   -- for collectives: JSON list of [operator, group, size, dtype, constants] or [operator]
    estimated_ns DOUBLE              -- for tensors: Inductor's estimate for all operations
);

CREATE TABLE graphs (
    graph BIGINT,                    -- id in the index
    log BIGINT, local_graph BIGINT,  -- number in the log
    wrapper_key VARCHAR, compile_id VARCHAR, aot_id VARCHAR, phase VARCHAR, cached BOOLEAN, dynamic BOOLEAN,
    launch_sites BIGINT,             -- NULL if the launches of this graph cannot be observed
    not_recorded VARCHAR,
    output_code BIGINT,              -- record with the source of the wrapper
    functions VARCHAR,               -- JSON list
    operands_left_out VARCHAR,       -- tensors that its launches may read and that `arguments` does not list
    matmul_precision VARCHAR         -- highest, high, medium; NULL if unknown
);
CREATE TABLE sites (
    site BIGINT, graph BIGINT, log BIGINT, local_site BIGINT, function VARCHAR, line BIGINT,
    kernel VARCHAR, kind VARCHAR, operator VARCHAR, handle VARCHAR,
    snodes VARCHAR,                  -- JSON list; NULL if not recorded
    outputs VARCHAR, source_nodes VARCHAR, aten VARCHAR, fx_nodes VARCHAR, -- JSON lists
    stacks VARCHAR,                  -- JSON list of stacks, each a list of {file, line, function, code}
    modules VARCHAR,                 -- JSON list of paths of the model's modules: "Sequential.2 (GELU)"
    recomputed VARCHAR               -- JSON object: checkpointed region by buffer that it computes again
);
CREATE TABLE arguments (
    site BIGINT, argument BIGINT, name VARCHAR, role VARCHAR, buffer VARCHAR, parameter VARCHAR,
    storage VARCHAR, held VARCHAR,   -- input, written, uninitialised; NULL if unknown
    version_site BIGINT,             -- the site whose value row has its content; NULL if there is none
    version_argument BIGINT, version_moment VARCHAR,
    version_item BIGINT              -- NULL if it is the whole argument
);
CREATE TABLE scalars (               -- the arguments of sites that are not tensors
    site BIGINT, scalar BIGINT,
    position BIGINT,                 -- among the positional arguments, from 0; NULL if passed by name or compiled in
    name VARCHAR,                    -- of the kernel's parameter; NULL if unknown
    expression VARCHAR,              -- an expression over symbols, or a constant
    type VARCHAR,                    -- NULL if unknown
    value VARCHAR                    -- of a constant; NULL if it follows from the symbols of the call
);
-- The numbers that the generated code computes in each call. A call has one assignment with a row for each symbol.
CREATE TABLE call_symbols (call BIGINT, assignment BIGINT);
CREATE TABLE symbol_values (
    assignment BIGINT, log BIGINT, symbol VARCHAR,
    launches BIGINT,                 -- launches of the call that had begun when the symbol got the value
    value VARCHAR                    -- in Python's notation; NULL if it is not a number
);
CREATE TABLE tensors (               -- the arguments at run time
    site BIGINT, log BIGINT, local_call BIGINT, argument BIGINT, item BIGINT, dtype VARCHAR,
    size VARCHAR, stride VARCHAR,    -- JSON lists
    device VARCHAR, storage_offset BIGINT, storage_bytes BIGINT, storage_address BIGINT,
    place BIGINT                     -- order in the log, shared with same_tensors
);
CREATE TABLE same_tensors (          -- from local_call on, the arguments are again those of the call of_call
    log BIGINT, local_call BIGINT, site BIGINT, argument BIGINT, -- beginning with this argument of this site
    of_call BIGINT, place BIGINT
);
CREATE TABLE memory_statements (
    graph BIGINT, event VARCHAR, buffer VARCHAR, function VARCHAR, line BIGINT, of_buffer VARCHAR
);

CREATE TABLE steps (
    log BIGINT, step BIGINT,
    kind VARCHAR,                    -- train, inference, data (calls of a DataLoader's worker)
    by_what VARCHAR,                 -- user, optimizer, backward, call, generate
    optimizers VARCHAR,              -- classes of the optimizers that ended it
    start_ns BIGINT, end_ns BIGINT,  -- including the compiles that it triggered
    duration_ns BIGINT,              -- without the compiles
    compile_ns BIGINT,               -- duration of these compiles; NULL if the log has no spans
    launches BIGINT, calls BIGINT
);
-- Inputs of captured graphs that DistributedDataParallel keeps alike on several ranks.
CREATE TABLE replicated_parameters (
    log BIGINT, time_unix_ns BIGINT, compile_id VARCHAR,
    expressions VARCHAR,             -- JSON list of Dynamo's expressions of the inputs
    parameters VARCHAR,              -- JSON list of their names in the wrapped module
    ranks VARCHAR,                   -- JSON list of the ranks of the process group
    wrapper BIGINT,                  -- number of the DistributedDataParallel in its process; NULL in older logs
    buffer_expressions VARCHAR, buffers VARCHAR -- the same for buffers that are not broadcast
);
-- Modules in a DistributedDataParallel that an optimizer trains although its forward was never called.
CREATE TABLE unaveraged_gradients (
    log BIGINT, time_unix_ns BIGINT, name VARCHAR, steps BIGINT, module VARCHAR,
    ranks VARCHAR,                   -- JSON list of the ranks of the process group
    digest VARCHAR,                  -- of elements of the parameters
    collectives BIGINT,              -- called since the first step; NULL if not known
    file VARCHAR, line BIGINT        -- the place that calls step
);
CREATE TABLE changed_frozen_weights ( -- weights of which freezing made constants, and which changed later
    log BIGINT, time_unix_ns BIGINT, compile_id VARCHAR, name VARCHAR,
    ns BIGINT                        -- begin of the first call after the change; NULL if it was not seen
);
CREATE TABLE red_zone_writes (       -- launches that wrote next to a buffer; position of the launch in its call
    log BIGINT, time_unix_ns BIGINT, graph BIGINT, call BIGINT, step BIGINT, site BIGINT, launch BIGINT,
    buffer_graph BIGINT, buffer VARCHAR, side VARCHAR, distance BIGINT, changed_bytes BIGINT
);
CREATE TABLE kept_results (          -- inputs that calls write again and that are kept as results of several calls
    log BIGINT, time_unix_ns BIGINT, graph BIGINT, call BIGINT, step BIGINT, buffer VARCHAR, kept BIGINT, holder VARCHAR
);
CREATE TABLE kept_tensors (          -- tensors outside of what graphs allocate whose number grows with each step
    log BIGINT, time_unix_ns BIGINT,
    step VARCHAR, ns VARCHAR,        -- JSON lists of the steps and the times at which they were counted
    tensors VARCHAR, with_graph VARCHAR, storage_bytes VARCHAR, -- JSON lists with a number for each time
    dtype VARCHAR, sizes VARCHAR, device VARCHAR,
    holder VARCHAR,
    hits BIGINT, lost_keys BIGINT,   -- NULL if the holder is no cache
    most_elements BIGINT,            -- NULL if the holder has no limit
    file VARCHAR, line BIGINT,       -- the cached function, or the statement that adds to the holder
    cycle_is_collected BOOLEAN       -- NULL if the holder is no cycle of each tensor with its autograd function
);
CREATE TABLE data_waits (            -- waits for a batch of a DataLoader
    log BIGINT, time_unix_ns BIGINT, thread BIGINT, start_ns BIGINT, duration_ns BIGINT,
    workers BIGINT,                  -- num_workers of the loader; NULL if unknown
    file VARCHAR, line BIGINT,
    begins VARCHAR                   -- 'workers' if they were started again, 'batch' if it was their first batch
);
CREATE TABLE optimizer_steps (       -- steps of optimizers of at least a millisecond
    log BIGINT, time_unix_ns BIGINT, thread BIGINT, start_ns BIGINT, duration_ns BIGINT,
    name VARCHAR,
    is_fused BOOLEAN,                -- NULL if it has no fused form
    file VARCHAR, line BIGINT        -- the place that calls step
);
CREATE TABLE kept_gradients (        -- optimizers after whose steps gradients were kept until the next backward pass
    log BIGINT, time_unix_ns BIGINT, name VARCHAR, kept BIGINT, cleared BIGINT,
    file VARCHAR, line BIGINT        -- the place that calls step
);
CREATE TABLE cleared_gradients (     -- optimizers whose zero_grad cleared gradients that no step had used
    log BIGINT, time_unix_ns BIGINT, name VARCHAR, steps BIGINT, cleared BIGINT, steps_without BIGINT,
    zero_grad_file VARCHAR, zero_grad_line BIGINT,
    file VARCHAR, line BIGINT        -- the place that calls step
);
CREATE TABLE lost_updates (          -- optimizers whose steps left most elements of their parameters as they were
    log BIGINT, time_unix_ns BIGINT, name VARCHAR, dtype VARCHAR, parameters BIGINT, elements BIGINT, unchanged BIGINT,
    learning_rate DOUBLE,
    magnitude DOUBLE,                -- median of the elements that stayed
    file VARCHAR, line BIGINT        -- the place that calls step
);
CREATE TABLE learning_rates (        -- of optimizers in their first steps, and where they had changed much
    log BIGINT, time_unix_ns BIGINT, name VARCHAR, rate DOUBLE,
    before DOUBLE,                   -- the rate in the step before, NULL in the first step
    file VARCHAR, line BIGINT,       -- the place that calls step
    rounded_eps DOUBLE,              -- an eps that rounds to zero in float16, else NULL
    scheduler VARCHAR, scheduler_file VARCHAR, scheduler_line BIGINT  -- that has stepped last
);
CREATE TABLE nonfinite_parameters (  -- optimizers whose parameters became NaN or infinite
    log BIGINT, time_unix_ns BIGINT, name VARCHAR, steps BIGINT, finite_steps BIGINT, is_last BOOLEAN,
    parameters BIGINT, nonfinite BIGINT, is_nan BOOLEAN,
    names VARCHAR, nan_before VARCHAR,     -- JSON lists
    first_step BIGINT, last_step BIGINT,
    file VARCHAR, line BIGINT,       -- the place that calls step
    nonfinite_float16 BIGINT, infinite_before BIGINT, -- NULL in older logs
    groups BIGINT, largest_rate DOUBLE, median_rate DOUBLE, largest_rate_names VARCHAR
);
CREATE TABLE zero_gradients (        -- optimizers that got gradients which are zero, or too small for float16
    log BIGINT, time_unix_ns BIGINT, name VARCHAR, looked VARCHAR, parameters BIGINT, zero BIGINT,
    names VARCHAR,                   -- JSON list
    elements BIGINT, zero_elements BIGINT, tiny_elements BIGINT,
    file VARCHAR, line BIGINT        -- the place that calls step
);
CREATE TABLE missing_gradients (     -- optimizers with parameters that had no gradient in the first steps
    log BIGINT, time_unix_ns BIGINT, name VARCHAR, steps BIGINT, parameters BIGINT, missing BIGINT,
    unowned BIGINT,                  -- number of those that belong to no module
    names VARCHAR, sizes VARCHAR,    -- JSON lists
    file VARCHAR, line BIGINT,       -- the place that calls step
    cleared BIGINT,                  -- number of the steps before which zero_grad had cleared their gradients
    zero_grad_file VARCHAR, zero_grad_line BIGINT,
    checkpointed BIGINT,             -- number of those that run only in reentrant checkpoints without an input that requires a gradient
    checkpoint_file VARCHAR, checkpoint_line BIGINT
);
CREATE TABLE untrained_parameters (  -- parameters of a module, some of them in a list, that no optimizer has
    log BIGINT, time_unix_ns BIGINT, name VARCHAR, trained BIGINT, container VARCHAR, parameters BIGINT,
    names VARCHAR,                   -- JSON list
    file VARCHAR, line BIGINT,       -- the place that calls step
    is_registered BOOLEAN
);
CREATE TABLE shared_parameters (     -- parameters of an optimizer with the memory of others that no optimizer trains
    log BIGINT, time_unix_ns BIGINT, name VARCHAR, parameters BIGINT,
    names VARCHAR, others VARCHAR,   -- JSON lists
    is_in_graph BOOLEAN, is_written BOOLEAN,
    file VARCHAR, line BIGINT,       -- the place that calls step
    are_tensors BOOLEAN
);
CREATE TABLE changed_hooks (         -- hooks of modules that changed after the compile
    log BIGINT, time_unix_ns BIGINT, frame VARCHAR, call BIGINT, module VARCHAR, attribute VARCHAR, name VARCHAR,
    file VARCHAR, line BIGINT,       -- the place at which the function begins
    is_added BOOLEAN
);
CREATE TABLE piled_hooks (           -- functions that are registered as hooks in each step
    log BIGINT, time_unix_ns BIGINT, attribute VARCHAR, name VARCHAR,
    file VARCHAR, line BIGINT,       -- the place at which the function begins
    owner VARCHAR, is_parameter BOOLEAN, owners BIGINT, hooks BIGINT, step BIGINT,
    step_file VARCHAR, step_line BIGINT
);
CREATE TABLE uncopied_states (       -- calls of load_state_dict that got the module's own parameters, no copies of them
    log BIGINT, time_unix_ns BIGINT, module VARCHAR, optimizer VARCHAR, parameters BIGINT, steps BIGINT,
    saved_file VARCHAR, saved_line BIGINT,   -- the place that calls state_dict
    file VARCHAR, line BIGINT        -- the place that calls load_state_dict
);
CREATE TABLE unmatched_keys (        -- calls of load_state_dict that miss tensors because keys differ by a prefix
    log BIGINT, time_unix_ns BIGINT, module VARCHAR, tensors BIGINT, missing BIGINT, explained BIGINT,
    given_prefix VARCHAR, own_prefix VARCHAR, given_key VARCHAR,
    file VARCHAR, line BIGINT        -- the place that calls load_state_dict
);
CREATE TABLE repeated_seeds (        -- seeds that are set again in each step
    log BIGINT, time_unix_ns BIGINT, function VARCHAR, seed VARCHAR,
    device VARCHAR,                  -- cpu, cuda
    called_ns VARCHAR,               -- JSON list, the last call before each step
    file VARCHAR, line BIGINT        -- the place that sets the seed
);
CREATE TABLE repeated_batches (      -- loaders of which each step takes the first batch anew
    log BIGINT, time_unix_ns BIGINT, batch_size BIGINT, batches BIGINT, samples BIGINT, steps BIGINT,
    file VARCHAR, line BIGINT        -- the place that makes a new iterator
);
CREATE TABLE misplaced_clipping (    -- clipping of gradients after a step, or before they are unscaled
    log BIGINT, time_unix_ns BIGINT, name VARCHAR, steps BIGINT, max_norm DOUBLE, scale DOUBLE,
    clip_file VARCHAR, clip_line BIGINT,   -- the place that calls clip_grad_norm_
    file VARCHAR, line BIGINT        -- the place that calls step
);
CREATE TABLE eval_calls (            -- the first calls of Module.eval for modules in train mode
    log BIGINT, time_unix_ns BIGINT, start_ns BIGINT, file VARCHAR, line BIGINT
);
CREATE TABLE loss_paths (            -- how losses were computed from results of compiled code, outside of it
    log BIGINT, time_unix_ns BIGINT, thread BIGINT, start_ns BIGINT,
    size VARCHAR,                    -- JSON list, of the result
    uses BIGINT,                     -- nodes of autograd that use the result
    nodes VARCHAR, sizes VARCHAR, operands VARCHAR,   -- JSON lists
    file VARCHAR, line BIGINT, lines VARCHAR          -- the place of the backward pass; JSON list, the text up to there
);
CREATE TABLE summed_losses (         -- backward passes of sums of losses that depend on nothing together but leaves
    log BIGINT, time_unix_ns BIGINT, thread BIGINT, start_ns BIGINT, losses BIGINT, file VARCHAR, line BIGINT
);
CREATE TABLE call_sites (            -- lines of the program that call graphs
    log BIGINT, time_unix_ns BIGINT, graph BIGINT, file VARCHAR, line BIGINT, function VARCHAR, code VARCHAR,
    after_line BIGINT, lines_between VARCHAR   -- JSON list
);
CREATE TABLE sampled_lines (         -- stacks of the program's lines between calls, JSON lists, the outermost one first
    log BIGINT, time_unix_ns BIGINT, place BIGINT, files VARCHAR, lines VARCHAR, functions VARCHAR, code VARCHAR
);
CREATE TABLE line_samples (
    log BIGINT, time_unix_ns BIGINT, thread VARCHAR, ns VARCHAR, place VARCHAR, held_ns VARCHAR,
    delayed VARCHAR,                 -- JSON lists
    looks_in_calls BIGINT, delayed_in_calls BIGINT
);
CREATE TABLE profiled_operators (    -- what PyTorch's profiler saw in the steps of --profile
    log BIGINT, time_unix_ns BIGINT, thread BIGINT, start_ns BIGINT, duration_ns BIGINT,
    name VARCHAR,
    depth BIGINT                     -- number of operators that called it
);
-- Kernels, copies and fills that PyTorch's profiler saw on devices in the steps of --profile.
CREATE TABLE device_work (
    log BIGINT, device BIGINT, stream BIGINT,
    start_ns BIGINT, duration_ns BIGINT,      -- on the device
    kind VARCHAR,                    -- kernel, copy, fill or collective
    name VARCHAR,
    thread BIGINT, enqueued_ns BIGINT,        -- on the host; NULL if it was enqueued before the profiler ran
    step BIGINT,                     -- in which it was enqueued
    call BIGINT, launch BIGINT       -- NULL outside of calls and launches
);
-- The steps all of whose calls PyTorch's profiler saw.
CREATE TABLE profiled_steps (log BIGINT, step BIGINT);
CREATE TABLE calls (
    call BIGINT, log BIGINT, local_call BIGINT, graph BIGINT, function VARCHAR, step BIGINT, thread BIGINT,
    parent BIGINT, depth BIGINT, start_ns BIGINT, duration_ns BIGINT, launches BIGINT, state VARCHAR
);
-- Calls of forward graphs that began while a backward pass ran, as activation checkpointing recomputes them.
CREATE TABLE calls_in_backward (
    log BIGINT, time_unix_ns BIGINT,
    call VARCHAR                     -- JSON list of numbers of the log
);
-- The time between two outermost calls that follow one another in a thread.
CREATE TABLE call_gaps (
    log BIGINT, time_unix_ns BIGINT,
    call VARCHAR, before VARCHAR,    -- JSON lists of numbers of the log
    own_ns VARCHAR, cpu_ns VARCHAR, before_cpu_ns VARCHAR -- JSON lists
);
-- Ids are ordered by (log, step, start), so that the launches of a step are a range of ids.
CREATE TABLE launches (
    launch BIGINT, log BIGINT, call BIGINT, site BIGINT, step BIGINT, thread BIGINT,
    start_ns BIGINT, duration_ns BIGINT,      -- on the host; the duration is NULL if unknown
    returned BOOLEAN,
    device_duration_ns BIGINT        -- NULL if not measured
);
-- The position of each thread and stream when the process died or its launch ring was read. Launches that are only in
-- the ring are rows of `launches`, too; the `state` of a call that had not ended is `unfinished`.
CREATE TABLE ring_launches (
    log BIGINT, thread BIGINT,
    role VARCHAR,                    -- last_started by the host in each thread, last_finished by each stream, or in_flight:
                                     -- not returned to the host, or not known to be finished by its stream
    launch BIGINT, graph BIGINT, call BIGINT, site BIGINT, step BIGINT,  -- ids in the index
    returned BOOLEAN,                -- whether it returned to the host
    device BIGINT, stream BIGINT,    -- index of a CUDA device, handle of a stream; NULL if only the host is known
    position BIGINT                  -- number of the launch in its call, from 0
);
-- How a process ended. `stepscope run` writes it for a command that failed and for every run of --crash. For other
-- processes, it is the signal in their launch ring that asked them to exit; the duration is then NULL.
CREATE TABLE process_ends (
    log BIGINT, pid BIGINT, exit_code BIGINT,                 -- NULL if a signal ended it
    signal BIGINT, timed_out BOOLEAN, duration_ns BIGINT, error_tail VARCHAR,
    run BIGINT,                      -- of --crash, from 1; without --crash this and all that follows is NULL
    purpose VARCHAR, environment VARCHAR,                     -- JSON object
    level VARCHAR, kernels VARCHAR, tool VARCHAR,             -- JSON lists
    tool_errors VARCHAR              -- JSON list of {text, kernel, file, line, where, details, times}
);
CREATE TABLE uncaught_exceptions (
    log BIGINT, time_unix_ns BIGINT, type VARCHAR, text VARCHAR,
    frames VARCHAR                   -- JSON list of {file, line, function, code}, outermost first
);
-- Exceptions that left calls of generated code, also those that the program caught. `graph`, `call` and `site` are
-- numbers of the log.
CREATE TABLE raised_calls (
    log BIGINT, time_unix_ns BIGINT, graph BIGINT, call BIGINT, step BIGINT,
    site BIGINT,                     -- the last launch that had begun; NULL if none had
    returned BOOLEAN,                -- whether that launch had returned
    line BIGINT, statement VARCHAR,  -- of the wrapper
    type VARCHAR, text VARCHAR,
    frames VARCHAR                   -- JSON list of {file, line, function, code}, outermost first
);
CREATE TABLE failed_nodes (          -- the FX node at which a compile failed
    log BIGINT, time_unix_ns BIGINT, compile_id VARCHAR, type VARCHAR, text VARCHAR, node VARCHAR, target VARCHAR,
    frame VARCHAR                    -- JSON {file, line, function, code}
);
-- What the judge found in calls whose launches it recomputed. `call`, `graph` and `site` are numbers of the log, and
-- `launch` is a position in the call. Lists are JSON.
CREATE TABLE judged_calls (
    log BIGINT, time_unix_ns BIGINT, graph BIGINT, call BIGINT, step BIGINT, launches BIGINT, judged BIGINT,
    not_judged VARCHAR,              -- JSON object: number of launches by the reason
    launch VARCHAR, site VARCHAR, buffer VARCHAR, node VARCHAR, verdict VARCHAR, how VARCHAR, of_limit VARCHAR,
    reason VARCHAR, reasons VARCHAR, -- of buffers that were not judged: index into the reasons, or null
    duration_ns BIGINT
);
CREATE TABLE judged_buffers (        -- buffers that are wrong, and those at which eager code is off
    log BIGINT, time_unix_ns BIGINT, graph BIGINT, call BIGINT, step BIGINT, launch BIGINT, site BIGINT,
    buffer VARCHAR, node VARCHAR,
    verdict VARCHAR,                 -- wrong, suspect, eager_off
    rules VARCHAR, how VARCHAR, dtype VARCHAR, size VARCHAR, "index" VARCHAR,
    compiled DOUBLE, eager DOUBLE, float64 DOUBLE, allowed DOUBLE, of_limit DOUBLE, bad BIGINT,
    fragment VARCHAR, inputs VARCHAR, source VARCHAR, files VARCHAR,
    suspects VARCHAR                 -- JSON list of positions in the call
);
CREATE TABLE clobbered_inputs (
    log BIGINT, time_unix_ns BIGINT, graph BIGINT, call BIGINT, step BIGINT, launch BIGINT, site BIGINT,
    buffer VARCHAR, is_written BOOLEAN,
    producer BIGINT, writer BIGINT,  -- positions of launches in the call
    is_result BOOLEAN
);
-- Calls of compiled graphs that were compared with an earlier layer of their compile.
CREATE TABLE layer_checks (
    log BIGINT, time_unix_ns BIGINT, compile_id VARCHAR, call BIGINT, phase VARCHAR,
    "before" VARCHAR, "after" VARCHAR, -- the layers
    verdict VARCHAR,                 -- agrees, eager_is_off, differs, not_compared
    why VARCHAR, tensors BIGINT, differing BIGINT,
    frame VARCHAR,                   -- JSON {file, line, function, code}
    differences VARCHAR,             -- JSON list of {name, what, text, wrong, elements, index, before, after, float64, ...}
    layers VARCHAR,                  -- JSON list of {before, after, verdict, text}
    nodes VARCHAR,                   -- JSON list of lines: what the layer that differs changed in the graph
    settings VARCHAR,                -- JSON list of {name, value, verdict, text}
    lines VARCHAR,                   -- JSON list of {file, line, function, code}: where the changed nodes come from
    change VARCHAR                   -- JSON list of lines: the most telling of `nodes`
);
CREATE TABLE device_errors (log BIGINT, text VARCHAR);   -- the error of a device when the recording ended
-- The statistics of a tensor before or after a launch. Each version of a buffer is read once; `arguments.version_*`
-- identifies the row of what a launch read. min, max, mean, std, l2 and largest are those of the finite elements.
-- PyTorch's debug printer does not print zero, near_overflow, subnormal, std and l2, which are then NULL.
CREATE TABLE value_rows (
    value BIGINT,                    -- ids are ordered by (log, step, launch)
    log BIGINT, launch BIGINT, call BIGINT, step BIGINT, site BIGINT, argument BIGINT,
    item BIGINT, part VARCHAR, moment VARCHAR,                -- before, after
    dtype VARCHAR, numel BIGINT, looked_at BIGINT,            -- looked_at < numel for a strided sample
    skipped VARCHAR,                 -- why there are no statistics; everything below is then NULL
    nan BIGINT, positive_infinity BIGINT, negative_infinity BIGINT, zero BIGINT,
    near_overflow BIGINT, subnormal BIGINT,
    min DOUBLE, max DOUBLE, exact_min VARCHAR, exact_max VARCHAR, -- exact_* if a DOUBLE cannot represent it
    mean DOUBLE, std DOUBLE, l2 DOUBLE, largest DOUBLE,       -- l2 of a sample is that of the sample
    first_bad BIGINT,                -- flat index of the first NaN or infinity
    at_least BOOLEAN,                -- whether the counts of NaN and infinities are minima
    digest BIGINT,                   -- of the bits that were read
    elements VARCHAR                 -- JSON list in row-major order; NULL if they were not kept
);
-- The statistics of inputs of a call that no launch has as an argument. `launch` and `site` are those of the call's
-- first launch, and `argument` counts down from -1. An id is never in both tables.
CREATE TABLE input_rows AS SELECT *, ''::VARCHAR AS name FROM value_rows WITH NO DATA;
CREATE TABLE tuned_kernels (         -- the configuration with which a Triton kernel runs
    log BIGINT, graph BIGINT, kernel VARCHAR,
    config VARCHAR                   -- JSON object: block sizes, num_warps, num_stages
);
CREATE TABLE autotuned (             -- what Inductor's autotuner measured for a scheduler node
    log BIGINT, time_unix_ns BIGINT,
    graph BIGINT,                    -- number in the log
    snode VARCHAR,
    operation VARCHAR,               -- the autotuner's name of it, such as mm
    inputs VARCHAR,                  -- JSON list of {name, dtype, size, stride}
    dynamic BOOLEAN,                 -- whether a size is symbolic
    measured BOOLEAN,                -- whether this process measured; NULL if unknown
    choices VARCHAR,                 -- JSON list of {name, description, duration_ns}, the fastest first
    chosen BIGINT                    -- index into choices
);
CREATE TABLE saved_tensors (
    tensor BIGINT, log BIGINT, launch BIGINT, site BIGINT, argument BIGINT, item BIGINT, moment VARCHAR,
    file VARCHAR, dtype VARCHAR, size VARCHAR, tensor_bytes BIGINT, sha256 VARCHAR
);
CREATE TABLE spans (                 -- compile-time spans from chromium events
    log BIGINT, name VARCHAR, compile_id VARCHAR, thread BIGINT, depth BIGINT,
    start_unix_ns BIGINT, duration_ns BIGINT,
    self_ns BIGINT                   -- without the spans inside it
);
CREATE TABLE span_marks (            -- instant events, and spans without an end
    log BIGINT, name VARCHAR, compile_id VARCHAR, thread BIGINT, depth BIGINT, unix_ns BIGINT,
    kind VARCHAR,                    -- instant, unfinished
    arguments VARCHAR                -- JSON object of the short arguments
);
CREATE TABLE overhead (log BIGINT, hook_ns BIGINT, wall_ns BIGINT, log_bytes BIGINT, launches BIGINT, failures BIGINT, stats_ns BIGINT);

-- At position p of a call, p of its launches have begun. A schedule is the scheduler's memory estimate for a graph.
CREATE TABLE schedules (
    schedule BIGINT, log BIGINT, graph BIGINT, subgraph VARCHAR,     -- NULL for the graph itself
    peak_bytes BIGINT, peak_snodes VARCHAR, base_bytes BIGINT        -- JSON list of indices
);
CREATE TABLE schedule_nodes (
    schedule BIGINT, snode_index BIGINT, snode VARCHAR, members VARCHAR, kind VARCHAR, alloc_bytes BIGINT,
    free_bytes BIGINT, after_alloc_bytes BIGINT, after_free_bytes BIGINT
);
CREATE TABLE scheduled_buffers (
    schedule BIGINT, name VARCHAR, alloc_bytes BIGINT, free_bytes BIGINT, first_snode BIGINT, last_snode BIGINT,
    role VARCHAR                     -- input (one that may be freed), temporary, output, removed, base
);
-- The storages of calls. Calls with the same storages share a layout: join measured_calls with layout_storages.
CREATE TABLE layouts (
    layout BIGINT, log BIGINT, graph BIGINT, function VARCHAR, storages BIGINT, events BIGINT, calls BIGINT,
    positions BIGINT,                -- launches of a call
    peak_bytes BIGINT, peak_position BIGINT, -- of owned storages
    peak_site BIGINT, base_bytes BIGINT,
    first_call BIGINT                -- NULL if no call has this layout
);
CREATE TABLE layout_storages (
    layout BIGINT, storage BIGINT, name VARCHAR, kind VARCHAR, storage_bytes BIGINT, device VARCHAR,
    born BIGINT,                     -- position at which it is allocated; 0 for an input
    site BIGINT,                     -- the site that returned it; NULL for other kinds
    calls_back BIGINT,               -- calls since the one that first used it, if that was in a recent step
    met_in BIGINT,                   -- the call that first used it, if that was longer ago
    met_as BIGINT,                   -- its number in that call; NULL if this call is the first that uses it
    dead BIGINT,                     -- position; NULL if it outlives the call
    is_owned BOOLEAN                 -- whether the call allocated it or may free it
);
-- Memory that nested calls allocated during a launch of the outer call, which layout_storages does not contain.
CREATE TABLE inner_bytes (
    log BIGINT, call BIGINT, position BIGINT,
    storage_bytes BIGINT,            -- the largest sum at one moment
    ns BIGINT                        -- the moment
);
CREATE TABLE measured_calls (call BIGINT, log BIGINT, local_call BIGINT, step BIGINT, layout BIGINT);
-- Storages that outlived the first call that used them; all others are described by their layout.
CREATE TABLE survivors (
    log BIGINT, call BIGINT, storage BIGINT, layout BIGINT, storage_bytes BIGINT, device VARCHAR,
    made BOOLEAN,                    -- whether that call allocated it
    last_step BIGINT,                -- last step of the calls that used it
    met_by_backward BOOLEAN,         -- whether a backward call used it
    born_ns BIGINT, died_ns BIGINT,  -- NULL if it was not freed during the recording
    died_call BIGINT, died_position BIGINT -- NULL if it was freed outside of calls
);
CREATE TABLE collections (           -- garbage collections in which storages died; columns as JSON lists
    log BIGINT, time_unix_ns BIGINT, start_ns VARCHAR, end_ns VARCHAR, generation VARCHAR,
    held_call VARCHAR, held_index VARCHAR, -- storages that earlier steps left, as (call of the log, number in it)
    holders VARCHAR
);
CREATE TABLE lifetime_logs (log BIGINT, calls BIGINT, storages BIGINT, events BIGINT, looked_for_growth BOOLEAN);
-- The live bytes over time of all storages that calls of a log have used. live_bytes has a row for each change; a row
-- of level n in live_levels summarises 64 rows of level n - 1, and all but low_bytes are those at its highest moment.
-- made_bytes are those that compiled calls allocated; saved_bytes are those of them that a backward call used later, and
-- kept_bytes the others that outlived the call that allocated them.
CREATE TABLE live_bytes (
    log BIGINT, device VARCHAR, ns BIGINT, live_bytes BIGINT, made_bytes BIGINT, saved_bytes BIGINT, kept_bytes BIGINT
);
CREATE TABLE live_levels (
    log BIGINT, device VARCHAR, level BIGINT, ns BIGINT, low_bytes BIGINT, high_bytes BIGINT, made_bytes BIGINT,
    saved_bytes BIGINT, kept_bytes BIGINT
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
CREATE TABLE memory_step_mismatches ( -- mismatches that checks in generated code found
    mismatch BIGINT, log BIGINT, graph BIGINT, call BIGINT, -- NULL if it is in no recorded wrapper
    file VARCHAR, line BIGINT, is_final_step BOOLEAN, kind VARCHAR, buffer VARCHAR,
    storage_bytes BIGINT,            -- NULL if it was not allocated
    holders VARCHAR,                 -- JSON list
    site BIGINT,                     -- the last site before the check; NULL if unknown
    storage VARCHAR,                 -- the first buffer in its memory
    times BIGINT                     -- a mismatch that was found again has further rows; add their times
);
CREATE TABLE left_behind (
    log BIGINT, call BIGINT, storage BIGINT, layout BIGINT, holders VARCHAR, freed_by_collection BOOLEAN,
    tensor_bytes BIGINT,             -- of the elements that the tensors left in it show; NULL if unknown
    at_step BIGINT                   -- the step before which it was looked at; NULL if the recording ended
);
CREATE TABLE recompute_mismatches (  -- the record has the figures
    recompute BIGINT, log BIGINT, record BIGINT, time_unix_ns BIGINT, compile_id VARCHAR,
    graph BIGINT,                    -- NULL if the compile produced no recorded graph
    subgraph VARCHAR, pass_name VARCHAR,
    swap BIGINT, candidate VARCHAR, members VARCHAR, reasons VARCHAR, reason_snodes VARCHAR, -- JSON lists
    peak_before_bytes BIGINT, peak_after_bytes BIGINT, allowed_peak_bytes BIGINT, is_explained BOOLEAN,
    peak_snodes VARCHAR,             -- JSON list of the indices of all nodes at the peak
    peak_snode VARCHAR,              -- name of the first node at the peak
    snodes BIGINT, found_by VARCHAR,
    swapped VARCHAR                  -- JSON list of the candidate, then the nodes of the group
);
