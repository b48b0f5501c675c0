import cProfile, pstats, sys, tempfile, torch, tracer, io
from pathlib import Path
from tests.benchmarks.bench_gpu import build
with tempfile.TemporaryDirectory() as d:
    with tracer.trace(Path(d), level="values"):
        step = build(None)
        for _ in range(6): step(); tracer.step()
        torch.cuda.synchronize()
        pr = cProfile.Profile(); pr.enable()
        for _ in range(30): step(); tracer.step()
        torch.cuda.synchronize(); pr.disable()
        s = io.StringIO(); pstats.Stats(pr, stream=s).sort_stats("tottime").print_stats(22); print(s.getvalue()[:5000])
