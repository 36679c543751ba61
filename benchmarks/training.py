"""specjax's training step beside PyTorch's eager one: the same weights, batches and threads.

    python benchmarks/training.py --model=DIR --source_file=train.en.gz --target_file=train.de.gz \\
      --prefix='translate English to German: '

A T5 checkpoint; needs torch. float32, AdamW, gradient clipping, cross-entropy with label smoothing.
Batches are those of `data.pipeline.Batches`; without files, rows of random ids. The contestants
train on the same batches in turn (A B A B ...); compilation and warm-up are not timed. Without
dropout the losses of the first step must agree. With it, transformers' dropout of attention
weights is switched off, because specjax has none. Tokens are those the decoder learns. A ratio is
that of two neighboring runs. On a busy machine pin both to one core, and read the tokens per
second of CPU time:

    taskset -c 1 python benchmarks/training.py --threads=1 ...
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
import transformers
from torch.nn.functional import cross_entropy
from transformers import T5ForConditionalGeneration

from specjax.data.pipeline import Arrays, Batches, TokenPair
from specjax.data.text import read_examples
from specjax.hf import descriptions, huggingface
from specjax.hf.tokenizer import load_tokenizer
from specjax.models.base import LanguageModel
from specjax.training.objectives.cross_entropy import CrossEntropy
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, train_step

TOLERANCE = 1e-4
"""Largest relative difference of the first losses: float32 sums over rows in another order."""

RANDOM_PAIRS = 2048

Step = Callable[[Arrays], Any]
"""One training step on a batch; returns its loss, which a device may still be computing."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="directory or hub id of a T5 checkpoint")
    parser.add_argument("--source_file", default="", help="one prompt per line")
    parser.add_argument("--target_file", default="", help="the output of each prompt")
    parser.add_argument("--prefix", default="", help="put before every prompt")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--bucket", type=int, default=8, help="rows are padded to multiples")
    parser.add_argument("--steps", type=int, default=6, help="timed batches of one run")
    parser.add_argument("--rounds", type=int, default=6, help="runs of each contestant")
    parser.add_argument("--dropout", default="off,on", help="settings to measure")
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of PyTorch")
    parser.add_argument("--json", default="", help="file to write the figures to")
    return parser.parse_args()


def token_pairs(args: argparse.Namespace, path: Path, model: LanguageModel) -> list[TokenPair]:
    """Tokenized lines of the two files, or random ids of similar lengths."""
    if args.source_file:
        examples = read_examples(args.source_file, args.target_file)
        tokenizer = load_tokenizer(path)
        sources = tokenizer([args.prefix + example.source for example in examples]).input_ids
        targets = tokenizer([example.output for example in examples]).input_ids
        return list(zip(sources, targets, strict=True))
    rng = np.random.default_rng(0)
    first, last = 2, min(model.info.vocab_size, 30_000)

    def row() -> list[int]:
        return [*rng.integers(first, last, rng.integers(8, 40)).tolist(), model.info.eos[0]]

    return [(row(), row()) for _ in range(RANDOM_PAIRS)]


def batches_of(args: argparse.Namespace, path: Path, model: LanguageModel) -> list[Arrays]:
    made = Batches(
        token_pairs(args, path, model),
        batch_size=args.batch_size,
        bucket=args.bucket,
        seed=0,
        start_token=model.info.start_token,
        pad=model.info.pad,
    )
    return [made[step] for step in range(args.steps)]


def ours(args: argparse.Namespace, dropout: bool) -> Step:
    """specjax's training step from the checkpoint's weights."""
    loaded = huggingface.load(args.model)
    optimizer = Optimizer(
        1, args.learning_rate, decay="constant", weight_decay=0.01, clip=args.clip
    )
    setup = Setup(loaded.model, CrossEntropy(args.smoothing), optimizer, dropout=dropout)
    state = setup.start(loaded.params)

    def step(batch: Arrays) -> jax.Array:
        nonlocal state
        state, report = train_step(setup, state, {}, batch)
        return report["loss"]

    return step


def theirs(args: argparse.Namespace, path: Path, dropout: bool) -> Step:
    """PyTorch's training step, eager, from the same weights."""
    torch.set_num_threads(args.threads)
    model = T5ForConditionalGeneration.from_pretrained(path, dtype=torch.float32).train(dropout)
    for module in model.modules():
        if isinstance(module, transformers.models.t5.modeling_t5.T5Attention):
            module.dropout = 0.0
    # Fused: no slower than the default on the shapes that were tried.
    optimizer = torch.optim.AdamW(
        model.parameters(), args.learning_rate, (0.9, 0.98), weight_decay=0.01, fused=True
    )

    def step(batch: Arrays) -> torch.Tensor:
        prompt = torch.from_numpy(batch["prompt"]).long()
        inside = np.arange(prompt.shape[1]) < batch["prompt_length"][:, None]
        labels = np.where(batch["mask"], batch["labels"], -100)
        optimizer.zero_grad()
        logits = model(
            input_ids=prompt,
            attention_mask=torch.from_numpy(inside).long(),
            decoder_input_ids=torch.from_numpy(batch["inputs"]).long(),
            use_cache=False,
        ).logits
        loss = cross_entropy(
            logits.flatten(0, 1),
            torch.from_numpy(labels).long().flatten(),
            label_smoothing=args.smoothing,
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        return loss.detach()

    return step


CLOCKS = {"second": time.perf_counter, "second of CPU time": time.process_time}


def run(step: Step, batches: Sequence[Arrays]) -> dict[str, float]:
    """Tokens per second on each clock of one pass over the batches."""
    start = {name: clock() for name, clock in CLOCKS.items()}
    losses = [step(batch) for batch in batches]
    float(losses[-1])  # waits for the device
    tokens = sum(int(batch["mask"].sum()) for batch in batches)
    return {name: tokens / (clock() - start[name]) for name, clock in CLOCKS.items()}


def race(contestants: dict[str, Step], batches: list[Arrays], rounds: int) -> dict[str, Any]:
    """Speeds of every run, in turn, the machine's load, and everyone's first loss."""
    first = {name: float(step(batches[0])) for name, step in contestants.items()}
    for step in contestants.values():
        run(step, batches)  # compiles every shape
    speeds: dict[str, Any] = {clock: {name: [] for name in contestants} for clock in CLOCKS}
    loads = []
    for _ in range(rounds):
        for name, step in contestants.items():
            for clock, speed in run(step, batches).items():
                speeds[clock][name].append(speed)
        loads.append(os.getloadavg()[0])
    return {"first_loss": first, "tokens_per": speeds, "load": loads}


def report(dropout: str, raced: dict[str, Any]) -> dict[str, Any]:
    """Prints one setting's figures and returns them."""
    print(f"dropout {dropout}; load {min(raced['load']):.1f} to {max(raced['load']):.1f}")
    summary = {}
    for clock, speeds in raced["tokens_per"].items():
        median = {name: statistics.median(values) for name, values in speeds.items()}
        for name, values in speeds.items():
            runs = " ".join(f"{value:6.0f}" for value in values)
            print(f"  {name:8} tokens per {clock:18} {runs}   median {median[name]:.0f}")
        over = sorted(a / b for a, b in zip(speeds["specjax"], speeds["PyTorch"], strict=True))
        ratio = {"low": over[0], "median": statistics.median(over), "high": over[-1]}
        print("  specjax over PyTorch {median:.2f} ({low:.2f} to {high:.2f})".format(**ratio))
        summary[clock] = {"median": median, "ratio": ratio}
    return {**raced, "summary": summary}


def check_losses(first: dict[str, float]) -> None:
    """Refuses contestants that do not compute the same loss."""
    apart = abs(first["specjax"] / first["PyTorch"] - 1.0)
    print(f"first losses {first}; relative difference {apart:.1e}")
    if apart > TOLERANCE:
        raise SystemExit("the contestants do not compute the same loss")


def main() -> None:
    args = arguments()
    path = huggingface.locate(args.model)
    batches = batches_of(args, path, descriptions.describe(args.model, np.float32))
    shapes = sorted({batch["inputs"].shape for batch in batches})
    tokens = sum(int(batch["mask"].sum()) for batch in batches)
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}, torch {torch.__version__},")
    print(f"{len(batches)} batches of {tokens} tokens in all, shapes {shapes}", flush=True)
    figures = {}
    for dropout in args.dropout.split(","):
        contestants = {
            "specjax": ours(args, dropout == "on"),
            "PyTorch": theirs(args, path, dropout == "on"),
        }
        raced = race(contestants, batches, args.rounds)
        if dropout == "off":
            check_losses(raced["first_loss"])
        figures[dropout] = report(dropout, raced)
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1), "utf-8")


if __name__ == "__main__":
    main()
