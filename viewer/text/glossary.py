"""The glossary: what the terms on the pages mean. The table in docs/architecture.md is the same, as a test checks."""

from __future__ import annotations

TERMS = {
    "achieved bandwidth": "The bytes that a kernel reads and writes, divided by its time.",
    "allocator": "PyTorch's cache of device memory. What it holds includes storages that no compiled graph allocated.",
    "AOT id": "The number that AOTAutograd gives a graph, with its phase, such as `0_forward`.",
    "artifact": "A record of a TORCH_TRACE log that has a name and a payload. Records of stepscope are artifacts named"
    " `stepscope_<kind>`.",
    "attempt": "One try to compile a frame. Dynamo starts again when it learns something, such as that a value is not"
    " constant.",
    "autotuner": "The part of Inductor that measures several ways to compute an operation, such as a matrix product,"
    " and takes the fastest.",
    "base": "Memory of a graph's inputs and parameters, which exists before the call and which the graph may not free.",
    "buffer": "A name in generated code that stands for a tensor, such as `buf3`.",
    "cache bypass": "A compile that may not use a cache, because the cache cannot store its graph or was switched off.",
    "cache hit": "A lookup that found the result of an earlier compile, so that this step of the compile did not run.",
    "call": "One run of a compiled graph's wrapper.",
    "collective": "An operation in which several ranks take part, such as an all-reduce. If a rank is missing, the"
    " others wait.",
    "compile id": "The number that Dynamo gives a compile, such as `0/1`: frame 0, compiled for the second time.",
    "CUDA graph": "A recording of all launches of a call, which the GPU replays at once without Python between them.",
    "epilogue": "What follows the main part: in a kernel, operations that are fused behind a matrix product; around a"
    " graph, the code that prepares its outputs.",
    "estimate": "What Inductor's scheduler computed at compile time, from the sizes of buffers and their first and"
    " last users.",
    "fallback": "An operator that Inductor does not compile but calls as it is; for a frame, that it runs uncompiled.",
    "finding": "One line of the verdict, with its rule and its evidence.",
    "frame": "A Python function that Dynamo compiles. It may be compiled several times, each with a compile id.",
    "FX node": "One operation of an FX graph, the form in which PyTorch keeps a traced program, such as `mm_1`.",
    "graph": "A compiled FX graph, forward or backward, with its wrapper.",
    "graph break": "A place where Dynamo ends a graph, because it cannot trace what follows, and lets Python run it.",
    "guard": "A condition under which compiled code is valid, such as the size of an input. If one fails, Dynamo"
    " compiles again.",
    "host time": "The time that a launch takes on the CPU. On a GPU, the kernel may still run afterwards.",
    "index": "The DuckDB file that the viewer makes of a trace.",
    "judge": "The recomputation of what a launch wrote from what it read, in eager code and in float64.",
    "launch": "One execution of a kernel or of an external operator by a call.",
    "launch site": "The statement of a wrapper that launches.",
    "lifetime": "The span from the allocation of a storage to its release.",
    "lifetime mismatch": "A storage that lives longer or shorter than the generated code says.",
    "log": "The file that one process writes.",
    "measurement": "What was seen while the program ran: allocations and frees of storages around each launch.",
    "provenance": "The connection from a kernel to the lines of model source that it computes.",
    "rank": "The number of a process in a distributed program.",
    "recompile": "Another compile of a frame that was compiled before, because a guard of the existing code failed.",
    "recompute": "A check of Inductor's reordering: its memory figures, updated at each swap of nodes, are compared"
    " with figures computed anew.",
    "report": "The self-contained HTML file for a ticket.",
    "ring": "The small memory-mapped file that names the launch in flight.",
    "scheduler node": "A node of Inductor's schedule (`op5`): it allocates, computes and frees buffers.",
    "self time": "The time of a span without that of the spans inside it.",
    "step": "One iteration of the program.",
    "storage": "One allocation of memory. Views and reuses share it.",
    "STORE": "A folder of Parquet files that `stepscope ingest` makes of many logs.",
    "time lost": "Time of a kernel beyond the least that its bytes and products need on the machine.",
    "trace": "All logs of one run.",
    "value row": "The statistics of one version of a buffer.",
    "version": "The content of a buffer between two writes.",
    "wrapper": "The Python code that Inductor generates around its kernels.",
}
