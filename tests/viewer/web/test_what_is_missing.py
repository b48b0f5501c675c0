"""A page that lacks something says which command records it, and says so once."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest

from stepscope.viewer.store.trace import Trace
from tests.logs import compile_summary_logs, synthetic
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client

Open = Callable[[LogBuilder | bytes], Trace]


def main_of(trace: Trace, path: str) -> str:
    answer = Client(trace).get(path)
    assert answer.status_code == 200, path
    page = answer.text.split("<main", 1)[1].split("</main>", 1)[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/", "stepscope run -- python train.py"),
        ("/steps", "stepscope run -- python train.py"),
        ("/kernels", "stepscope run -- python train.py"),
        ("/memory", "stepscope run --lifetimes log -- python train.py"),
        ("/values", "stepscope run --level values -- python train.py"),
        ("/graphs", "stepscope run -- python train.py"),
        ("/caches", "TORCHINDUCTOR_FORCE_DISABLE_CACHES=0 stepscope run -- python train.py"),
        ("/compile-time", "stepscope run -- python train.py"),
        ("/cuda-graphs", 'torch.compile(model, mode="reduce-overhead")'),
        ("/draft-export", "TORCH_DTRACE=trace python export.py"),
        ("/vllm", "TORCH_TRACE=trace vllm serve MODEL"),
        ("/ranks", "STEPSCOPE_TRACE=trace torchrun --nproc-per-node 8 train.py"),
    ],
)
def test_a_log_that_pytorch_wrote(opened: Open, path: str, command: str) -> None:
    log = LogBuilder()
    compile_summary_logs.compiled(log, 0, 0)
    assert command in main_of(opened(log), path)


@pytest.mark.parametrize(
    ("path", "commands"),
    [
        ("/", ["--lifetimes log"]),
        ("/steps", ["--lifetimes log"]),
        ("/steps/0", ["--lifetimes log", "--level values"]),
        ("/memory", ["--lifetimes log"]),
        ("/kernels", ["--level values"]),
        ("/kernels/{kernel}", ["--level values"]),
        ("/graphs/0/buffers", ["--level values"]),
        ("/values", ["--level values"]),
    ],
)
def test_a_recording_of_launches_alone(opened: Open, path: str, commands: list[str]) -> None:
    trace = opened(synthetic.recorded())
    kernel = Client(trace).get("/kernels.json").json()["kernels"][0]["kernel"]
    text = main_of(trace, path.format(kernel=kernel))
    for command in commands:
        assert text.count(f"stepscope run {command} -- python train.py") == 1, command
