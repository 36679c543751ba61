"""Beam search beside Hugging Face `generate(num_beams=...)`, and speculative beside plain.

    python benchmarks/beams.py --target=DIR --drafter=DIR --source_file=val.en.gz \\
      --prefix='translate English to German: ' --examples=100

Needs torch. Batch 1, float32. Sentences are decoded by all contestants in turn, in several passes
after a warm-up, which compiles; a contestant's time is the sum over sentences of its best pass.
Tokenisation is outside. Sentences whose texts differ are printed with both scores.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

import specjax
from specjax.data.text import read_examples

THEIRS, PLAIN = "transformers generate", "specjax beams"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The best text of a sentence, and what it took."""

    tokens: list[int]
    score: float
    statistics: Any = None


Decode = Callable[[list[int]], Outcome]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", required=True, help="directory or hub id")
    parser.add_argument("--drafter", required=True, help="directory or hub id")
    parser.add_argument("--source_file", required=True, help="one prompt per line")
    parser.add_argument("--prefix", default="", help="put before every sentence")
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--max_new_tokens", type=int, default=64)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--length_penalty", type=float, default=1.0)
    parser.add_argument("--early_stopping", choices=("False", "True", "never"), default="False")
    parser.add_argument("--drafts", default="1:4,1:8,2:4", help="pairs LENGTH:WIDTH")
    parser.add_argument("--bucket", type=int, default=8, help="prompts are padded to multiples")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    return parser.parse_args()


def ours(args: argparse.Namespace) -> tuple[specjax.LoadedModel, dict[str, Decode]]:
    """The target and specjax's contestants."""
    target, drafter = specjax.load(args.target), specjax.load(args.drafter)
    search = {name: getattr(args, name) for name in ("beams", "length_penalty", "early_stopping")}
    strategies = {PLAIN: specjax.beam_search(**search)}
    for pair in filter(None, args.drafts.split(",")):
        length, width = map(int, pair.split(":"))
        strategies[f"specjax speculative {pair}"] = specjax.beam_search(
            drafter="neural", length=length, width=width, **search
        )

    def contestant(strategy: specjax.BeamStrategy) -> Decode:
        generator = specjax.BeamGenerator(
            target,
            {"drafter": drafter},
            strategy,
            max_new_tokens=args.max_new_tokens,
            bucket=args.bucket,
        )

        def decode(ids: list[int]) -> Outcome:
            result = generator([ids])
            return Outcome(result.tokens[0], result.scores[0], result.statistics)

        return decode

    return target, {name: contestant(strategy) for name, strategy in strategies.items()}


def theirs(args: argparse.Namespace, decoder_only: bool) -> Decode:
    """Hugging Face's beam search."""
    torch.set_num_threads(args.threads)
    load = (AutoModelForCausalLM if decoder_only else AutoModelForSeq2SeqLM).from_pretrained
    model = load(args.target, dtype=torch.float32).eval()
    stopping = {"False": False, "True": True}.get(args.early_stopping, args.early_stopping)

    @torch.inference_mode()
    def decode(ids: list[int]) -> Outcome:
        prompt = torch.tensor([ids])
        made = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            num_beams=args.beams,
            length_penalty=args.length_penalty,
            early_stopping=stopping,
            max_new_tokens=args.max_new_tokens,
            return_dict_in_generate=True,
            output_scores=True,
        )
        head = len(ids) if decoder_only else 1
        return Outcome(made.sequences[0, head:].tolist(), made.sequences_scores[0].item())

    return decode


def race(
    contestants: dict[str, Decode], prompts: list[list[int]], repeats: int
) -> tuple[dict[str, float], dict[str, list[Outcome]]]:
    """Seconds of every contestant, sentence by sentence in turn, and what it found."""
    best = {name: [float("inf")] * len(prompts) for name in contestants}
    found: dict[str, list[Outcome]] = {name: [None] * len(prompts) for name in contestants}
    for repeat in range(repeats + 1):
        for index, ids in enumerate(prompts):
            for name, decode in contestants.items():
                start = time.perf_counter()
                found[name][index] = decode(ids)
                took = time.perf_counter() - start
                if repeat:  # the first pass compiles and warms up
                    best[name][index] = min(best[name][index], took)
        print(f"pass {repeat} of {repeats} done", flush=True)
    return {name: sum(times) for name, times in best.items()}, found


def report(seconds: dict[str, float], found: dict[str, list[Outcome]]) -> None:
    """A line for each contestant, and the sentences that differ from Hugging Face's."""
    for name, outcomes in found.items():
        beside = list(zip(outcomes, found[THEIRS], found[PLAIN], strict=True))
        same = [one.tokens == other.tokens for one, other, _ in beside]
        off = [abs(one.score - other.score) for one, other, _ in beside]
        as_plain = sum(one.tokens == plain.tokens for one, _, plain in beside)
        line = f"{name:26} {seconds[name]:8.2f} s {seconds[PLAIN] / seconds[name]:6.2f}x of plain"
        line += f"  same text {sum(same)} (as plain {as_plain}) of {len(same)}"
        line += f"  score off by at most {max(off):.1e}"
        taken = [one.statistics for one in outcomes if one.statistics]
        if taken:
            rounds = sum(one.rounds for one in taken)
            line += f"  steps/round {sum(one.steps for one in taken) / rounds:.2f}"
            line += f"  nodes/round {sum(one.nodes for one in taken) / rounds:.1f}"
        print(line)
        for index, equal in enumerate(same):
            if not equal:
                one, other = outcomes[index], found[THEIRS][index]
                print(f"  sentence {index}: {one.score:.7f} {one.tokens}")
                print(f"  theirs     {' ' * len(str(index))} {other.score:.7f} {other.tokens}")


def main() -> None:
    args = arguments()
    target, contestants = ours(args)
    decoder_only = target.model.start_token is None
    contestants = {THEIRS: theirs(args, decoder_only), **contestants}
    sources = read_examples(args.source_file)[: args.examples]
    prompts = target.tokenizer([args.prefix + each.source for each in sources]).input_ids
    report(*race(contestants, prompts, args.repeats))


if __name__ == "__main__":
    main()
