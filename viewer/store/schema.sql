-- The index of one trace. Ids are unique within the index; `log` names the file a row came from.
-- Times: *_ns on the log's own monotonic clock for run-time rows, unix nanoseconds (as written, see logs.utc_offset_s) for records.
-- Unknown is NULL, never 0.

CREATE TABLE meta (key VARCHAR, value VARCHAR);

CREATE TABLE logs (
    log INTEGER, path VARCHAR, size_bytes BIGINT, rank INTEGER, world_size INTEGER, pid INTEGER,
    format_version INTEGER,          -- NULL: PyTorch alone wrote this log
    complete BOOLEAN,                -- an end record was seen; NULL for a log that PyTorch alone wrote
    run VARCHAR                      -- JSON of the run record, NULL when there is none
);

-- Every record of the log in order. The payload stays in the log file: offset and length of its tabbed lines.
CREATE TABLE records (
    record BIGINT, log INTEGER, line BIGINT, byte BIGINT, payload_byte BIGINT, payload_bytes BIGINT,
    time_unix_ns BIGINT, pid BIGINT, source VARCHAR,      -- "torch/_inductor/graph.py:2745"
    event VARCHAR,                   -- artifact, chromium_event, dynamo_start, ...
    name VARCHAR,                    -- artifact name; file name for inductor_output_code
    encoding VARCHAR,
    compile_id VARCHAR,              -- "0/0", "!1/0/0"; NULL outside a compile
    attempt INTEGER,
    metadata VARCHAR,                -- the whole JSON header
    crlf BOOLEAN                     -- payload lines end in CRLF
);

CREATE TABLE problems (log INTEGER, line BIGINT, byte BIGINT, reason VARCHAR, text VARCHAR);
CREATE TABLE not_recorded (log INTEGER, what VARCHAR, why VARCHAR, graph INTEGER, count BIGINT);

CREATE TABLE compiles (
    compile BIGINT, log INTEGER, compile_id VARCHAR, frame VARCHAR,      -- "forward (model.py:12)"
    file VARCHAR, line INTEGER, function VARCHAR,
    status VARCHAR,                  -- ok, failed, skipped, fallback
    attempts INTEGER, start_unix_ns BIGINT, duration_ns BIGINT,
    cache VARCHAR,                   -- hit, miss, bypass, NULL
    recompile_reason VARCHAR, graph_break_reason VARCHAR, failure VARCHAR,
    stack VARCHAR,                   -- JSON list of {file, line, function, code}, outermost first
    metrics VARCHAR                  -- JSON of compilation_metrics, NULL when there is none
);

CREATE TABLE graphs (
    graph BIGINT,                    -- id in the index
    log INTEGER, local_graph INTEGER,-- number in the log
    wrapper_key VARCHAR, compile_id VARCHAR, aot_id VARCHAR, phase VARCHAR, cached BOOLEAN, dynamic BOOLEAN,
    launch_sites INTEGER,            -- NULL when launches of this graph cannot be seen
    not_recorded VARCHAR,
    output_code BIGINT,              -- record that holds the wrapper's source
    functions VARCHAR                -- JSON list
);
CREATE TABLE sites (
    site BIGINT, graph BIGINT, log INTEGER, local_site INTEGER, function VARCHAR, line INTEGER,
    kernel VARCHAR, kind VARCHAR, operator VARCHAR, handle VARCHAR,
    snodes VARCHAR,                  -- JSON list; NULL: not recorded
    outputs VARCHAR, source_nodes VARCHAR, aten VARCHAR, fx_nodes VARCHAR, -- JSON lists
    stacks VARCHAR                   -- JSON list of stacks, each a list of {file, line, function, code}, outermost first
);
CREATE TABLE arguments (
    site BIGINT, argument INTEGER, name VARCHAR, role VARCHAR, buffer VARCHAR, parameter VARCHAR
);
CREATE TABLE tensors (               -- what the arguments were at run time
    site BIGINT, log INTEGER, local_call BIGINT, argument INTEGER, item INTEGER, dtype VARCHAR, size VARCHAR, stride VARCHAR,
    device VARCHAR, "offset" BIGINT, storage_bytes BIGINT
);
CREATE TABLE memory_statements (
    graph BIGINT, event VARCHAR, buffer VARCHAR, function VARCHAR, line INTEGER, of_buffer VARCHAR
);
CREATE TABLE steps (
    log INTEGER, step INTEGER, kind VARCHAR, by_what VARCHAR, start_ns BIGINT, end_ns BIGINT,
    launches BIGINT
);
CREATE TABLE calls (
    call BIGINT, log INTEGER, local_call BIGINT, graph BIGINT, function VARCHAR, step INTEGER, thread BIGINT,
    parent BIGINT, start_ns BIGINT, duration_ns BIGINT, launches INTEGER, state VARCHAR
);
CREATE TABLE launches (
    launch BIGINT, log INTEGER, call BIGINT, site BIGINT, step INTEGER, thread BIGINT,
    start_ns BIGINT, duration_ns BIGINT,      -- host time; duration NULL: the launch did not return
    device_duration_ns BIGINT
);
CREATE TABLE spans (                 -- compile-time spans from chromium events
    log INTEGER, name VARCHAR, compile_id VARCHAR, thread BIGINT, depth INTEGER, start_unix_ns BIGINT, duration_ns BIGINT
);
CREATE TABLE overhead (log INTEGER, hook_ns BIGINT, wall_ns BIGINT, log_bytes BIGINT, launches BIGINT, failures BIGINT);
