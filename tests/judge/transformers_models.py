"""Judges the first step of ten models of `transformers`, built from their configurations with random weights.

``python -m tests.judge.transformers_models [--dtype float32 bfloat16] [--device cuda] [MODEL...]`` must accuse
nothing. Each model runs in a process of its own, recorded by ``stepscope run --judge first``: forward and backward.
Prints a table in Markdown. The package `transformers` is not among the requirements of the tests; install it first.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.judge.healthy import shown
from tests.judge.reading import judged_in
from tests.variables import without_ours_and_torchs

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
LANGUAGE = {**SMALL, "vocab_size": 199}
DECODER = {**LANGUAGE, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}
TOKENS = ("input_ids", "labels")
MODELS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 199, "n_embd": 64, "n_layer": 2, "n_head": 4}, TOKENS),
    "bert": ("BertForMaskedLM", LANGUAGE, TOKENS),
    "llama": ("LlamaForCausalLM", DECODER, TOKENS),
    "mistral": ("MistralForCausalLM", {**DECODER, "sliding_window": 16}, TOKENS),
    "qwen2": ("Qwen2ForCausalLM", DECODER, TOKENS),
    "gemma": ("GemmaForCausalLM", {**DECODER, "head_dim": 16}, TOKENS),
    "gpt_neox": ("GPTNeoXForCausalLM", {**LANGUAGE, "max_position_embeddings": 64}, TOKENS),
    "t5": (
        "T5ForConditionalGeneration",
        {"vocab_size": 199, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4},
        TOKENS,
    ),
    "vit": ("ViTForImageClassification", {**SMALL, "image_size": 32, "patch_size": 8}, ("pixel_values",)),
    "mamba": (
        "MambaForCausalLM",
        {"vocab_size": 199, "hidden_size": 64, "state_size": 8, "num_hidden_layers": 2},
        TOKENS,
    ),
}
"""The class of each model, the settings of its configuration, and its inputs."""


def build(name: str, dtype: str) -> Callable[[], None]:
    """Return a training step of a model; its weights are random, and nothing is downloaded."""
    import torch
    import transformers

    torch.manual_seed(0)
    class_name, settings, inputs = MODELS[name]
    kind: Any = getattr(transformers, class_name)
    configuration = kind.config_class(**settings)
    if hasattr(configuration, "use_cache"):
        configuration.use_cache = False
    if name == "t5":
        configuration.decoder_start_token_id = 0
    model: Any = kind(configuration).to(getattr(torch, dtype)).train()
    given: dict[str, Any] = {one: torch.randint(1, 199, (2, 24)) for one in inputs if one != "pixel_values"}
    if "pixel_values" in inputs:
        given["pixel_values"] = torch.randn(2, 3, 32, 32, dtype=getattr(torch, dtype))
    compiled: Any = torch.compile(model)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        result = compiled(**given)
        loss = result.loss if "labels" in given else result.logits.float().square().mean()
        torch.autograd.backward(loss)

    return step


def judge(name: str, dtype: str, device: str, folder: Path) -> tuple[str, list[str]]:
    """Return a row of the table, and what a person has to look at."""
    command = [sys.executable, "-m", "stepscope", "run", "--judge", "first", "-o", str(folder / "trace"), "--", "-m",
               "tests.judge.transformers_models", "--run", name, "--dtype", dtype, "--device", device]  # fmt: skip
    own = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env={**without_ours_and_torchs(), **own}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return f"| {name} | {dtype} | it ended with {done.returncode} | | |", done.stderr.splitlines()[-5:]
    found = judged_in(folder / "trace")
    wrong = len(found.wrong()) + len(found.suspects()) + len(found.inputs) + len(found.failures)
    reasons = "; ".join(f"{count} {reason}" for reason, count in found.reasons().most_common())
    return f"| {name} | {dtype} | {found.judged} of {found.launches} | {wrong} | {reasons} |", shown(found)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=[])
    parser.add_argument("--dtype", nargs="*", default=["float32", "bfloat16", "float16"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--run", metavar="MODEL", help="run one step of a model, unjudged")
    options = parser.parse_args()
    if options.run:
        import torch

        torch.set_default_device(options.device)
        build(options.run, options.dtype[0])()
        return 0
    accused = 0
    print("| model | dtype | launches judged | accused | not judged |\n|---|---|---|---|---|", flush=True)
    for name in options.models or MODELS:
        for dtype in options.dtype:
            with tempfile.TemporaryDirectory() as folder:
                row, notes = judge(name, dtype, options.device, Path(folder))
            accused += row.split(" | ")[3] != "0"
            print(row, *notes, sep="\n", flush=True)
    return accused > 0


if __name__ == "__main__":
    sys.exit(main())
