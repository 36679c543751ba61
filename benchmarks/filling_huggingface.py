"""Tokens a second of refilled batches beside transformers' batches, static and continuous.

    python benchmarks/filling_huggingface.py --target=llama-gsm8k-target \\
      --drafter=llama-gsm8k-drafter --source_file=test.jsonl.gz --source_field=question \\
      --template='Q: {}\\nA:' --examples=96 --batch_size=32 --rival_sizes=8,32

Greedy, float32, as many threads for both. `generate` decodes padded batches of each rival size,
`generate_batch` is transformers' continuous batching (decoder-only targets; it reads its prompts in
its own order). Ours are slots that are refilled, without a drafter and with one. All run in turn;
the first turn is not counted. Needs PyTorch: pip install torch==2.13.0.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from flags import add_prompt_flags, read_prompts
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, GenerationConfig

import specjax
from specjax.runtime.errors import UserError

Run = Callable[[], list[list[int]]]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_prompt_flags(parser)
    parser.add_argument("--length", type=int, default=3, help="drafted tokens")
    parser.add_argument("--examples", type=int, default=96)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--rival_sizes", default="8,32", help="rows of transformers' batches")
    parser.add_argument("--max_new_tokens", type=int, default=256)
    parser.add_argument("--bucket", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    return parser.parse_args()


class Rival:
    """The target in transformers."""

    def __init__(self, args: argparse.Namespace, target: Any, ids: list[list[int]]) -> None:
        torch.set_num_threads(args.threads)
        self.decoder_only = target.model.info.start_token is None
        kind = AutoModelForCausalLM if self.decoder_only else AutoModelForSeq2SeqLM
        self.model = kind.from_pretrained(args.target, dtype=torch.float32).eval()
        self.ids, self.new, self.info = ids, args.max_new_tokens, target.model.info

    def generate(self, size: int) -> Run:
        """Padded batches of `size` prompts."""

        def run() -> list[list[int]]:
            rows: list[list[int]] = []
            for first in range(0, len(self.ids), size):
                rows += self._batch(self.ids[first : first + size])
            return rows

        return run

    def _batch(self, ids: list[list[int]]) -> list[list[int]]:
        width = max(map(len, ids))
        pad, side = self.info.pad, -1 if self.decoder_only else 1
        tokens, mask = torch.full((len(ids), width), pad), torch.zeros(len(ids), width).long()
        for row, prompt in enumerate(ids):
            place = slice(width - len(prompt), width) if side < 0 else slice(0, len(prompt))
            tokens[row, place], mask[row, place] = torch.tensor(prompt), 1
        with torch.inference_mode():
            out = self.model.generate(
                tokens,
                attention_mask=mask,
                max_new_tokens=self.new,
                do_sample=False,
                num_beams=1,
                pad_token_id=pad,
            )
        return [self._cut(row) for row in out[:, width if self.decoder_only else 1 :].tolist()]

    def _cut(self, row: list[int]) -> list[int]:
        """The row up to its first end token."""
        ends = [place for place, token in enumerate(row) if token in self.info.eos]
        return row[: ends[0] + 1] if ends else row

    def continuous(self) -> list[list[int]]:
        """transformers' continuous batching."""
        config = GenerationConfig(
            max_new_tokens=self.new,
            do_sample=False,
            eos_token_id=list(self.info.eos),
            pad_token_id=self.info.pad,
        )
        found = self.model.generate_batch(self.ids, generation_config=config)
        rows = [list(one.generated_tokens) for one in found.values()]
        return [self._cut(row) for row in rows]


def make_runs(args: argparse.Namespace) -> dict[str, Run]:
    """All ways to decode the prompts, by name."""
    target = specjax.load(args.target)
    drafters = {"drafter": specjax.load(args.drafter)} if args.drafter else {}
    ours = {"slots, no drafter": specjax.autoregressive()}
    if drafters:
        ours[f"slots, {args.length} drafted"] = specjax.speculative(args.length)
    generators = {
        name: specjax.Generator(
            target,
            drafters,
            strategy,
            max_new_tokens=args.max_new_tokens,
            bucket=args.bucket,
        )
        for name, strategy in ours.items()
    }
    first = next(iter(generators.values()))
    ids = first.encode(read_prompts(args, args.examples))
    runs: dict[str, Run] = {
        name: lambda made=made: made(ids, batch_size=args.batch_size).tokens
        for name, made in generators.items()
    }
    rival = Rival(args, target, ids)
    for size in map(int, args.rival_sizes.split(",")):
        runs[f"generate, {size} rows"] = rival.generate(size)
    if rival.decoder_only:
        runs["generate_batch"] = rival.continuous
    return runs


def main() -> int:
    args = parse()
    try:
        runs = make_runs(args)
    except UserError as error:
        print(f"filling_huggingface: {error}", file=sys.stderr)
        return 2
    rates: dict[str, list[float]] = {name: [] for name in runs}
    tokens: dict[str, list[list[int]]] = {}
    for turn in range(args.repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            tokens[name] = run()
            if turn:
                seconds = time.perf_counter() - start
                rates[name].append(sum(map(len, tokens[name])) / seconds)
    base, plain = next(iter(tokens)), sorted(next(iter(tokens.values())))
    for name, rate in rates.items():
        ratios = sorted(mine / its for mine, its in zip(rate, rates[base], strict=True))
        equal = sum(a == b for a, b in zip(sorted(tokens[name]), plain, strict=True))
        print(
            f"{name}: {statistics.median(rate):,.0f} tokens a second,"
            f" {statistics.median(ratios):.2f} of the first ({ratios[0]:.2f} to {ratios[-1]:.2f});"
            f" {equal} of {len(plain)} rows equal"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
