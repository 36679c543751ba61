"""Beam search beside Hugging Face `generate(num_beams=...)`, and speculative beside plain.

    python benchmarks/beams.py --target=DIR --drafter=DIR --source_file=val.en.gz \\
      --prefix='translate English to German: ' --examples=100

Needs torch. Float32. Batches are decoded by all contestants in turn, in several passes after a
warm-up, which compiles; a contestant's time is the sum over batches of its best pass. Tokenization
is outside. Sentences whose texts differ are printed with both scores.
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
    """The best texts of a batch, and what they took."""

    tokens: list[list[int]]
    scores: list[float]
    statistics: Any = None


Decode = Callable[[list[list[int]]], Outcome]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", required=True, help="directory or hub id")
    parser.add_argument("--drafter", required=True, help="directory or hub id")
    parser.add_argument("--source_file", required=True, help="one prompt per line")
    parser.add_argument("--prefix", default="", help="put before every sentence")
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--batch_size", type=int, default=1)
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

        def decode(ids: list[list[int]]) -> Outcome:
            result = generator(ids, batch_size=args.batch_size)
            return Outcome(result.tokens, result.scores, result.statistics)

        return decode

    return target, {name: contestant(strategy) for name, strategy in strategies.items()}


def theirs(args: argparse.Namespace, decoder_only: bool) -> Decode:
    """Hugging Face's beam search."""
    torch.set_num_threads(args.threads)
    load = (AutoModelForCausalLM if decoder_only else AutoModelForSeq2SeqLM).from_pretrained
    model = load(args.target, dtype=torch.float32).eval()
    stopping = {"False": False, "True": True}.get(args.early_stopping, args.early_stopping)

    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]

    @torch.inference_mode()
    def decode(ids: list[list[int]]) -> Outcome:
        width = max(map(len, ids))
        rows = [pad_prompt(row, width, decoder_only) for row in ids]
        prompt, mask = (torch.tensor(each) for each in zip(*rows, strict=True))
        made = model.generate(
            prompt,
            attention_mask=mask,
            do_sample=False,
            num_beams=args.beams,
            length_penalty=args.length_penalty,
            early_stopping=stopping,
            max_new_tokens=args.max_new_tokens,
            return_dict_in_generate=True,
            output_scores=True,
        )
        texts = made.sequences[:, width if decoder_only else 1 :].tolist()
        return Outcome([cut_at_end(text, ends) for text in texts], made.sequences_scores.tolist())

    return decode


def pad_prompt(row: list[int], width: int, left: bool) -> tuple[list[int], list[int]]:
    """A prompt with zeros up to a width, and which of them are tokens."""
    rest = [0] * (width - len(row))
    here = [1] * len(row)
    return (rest + row, rest + here) if left else (row + rest, here + rest)


def cut_at_end(text: list[int], ends: list[int]) -> list[int]:
    """The text up to its first end."""
    return next((text[: at + 1] for at, token in enumerate(text) if token in ends), text)


def race(
    contestants: dict[str, Decode], batches: list[list[list[int]]], repeats: int
) -> tuple[dict[str, float], dict[str, list[Outcome]]]:
    """Seconds of every contestant, batch by batch in turn, and what it found."""
    best = {name: [float("inf")] * len(batches) for name in contestants}
    found: dict[str, list[Outcome]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for index, ids in enumerate(batches):
            for name, decode in contestants.items():
                start = time.perf_counter()
                outcome = decode(ids)
                took = time.perf_counter() - start
                if repeat:  # the first pass compiles and warms up
                    best[name][index] = min(best[name][index], took)
                else:
                    found[name].append(outcome)
            print(f"pass {repeat} of {repeats}: batch {index + 1} of {len(batches)}", flush=True)
    return {name: sum(times) for name, times in best.items()}, found


def flat(outcomes: list[Outcome]) -> list[tuple[list[int], float]]:
    """Text and score of every sentence."""
    return [pair for one in outcomes for pair in zip(one.tokens, one.scores, strict=True)]


def report(seconds: dict[str, float], found: dict[str, list[Outcome]]) -> None:
    """A line for each contestant, and the sentences that differ from Hugging Face's."""
    reference, plain = flat(found[THEIRS]), flat(found[PLAIN])
    for name, outcomes in found.items():
        mine = flat(outcomes)
        beside = list(zip(mine, reference, strict=True))
        same = [one == other for (one, _), (other, _) in beside]
        off = max(abs(score - other) for (_, score), (_, other) in beside)
        as_plain = sum(one == other for (one, _), (other, _) in zip(mine, plain, strict=True))
        line = f"{name:26} {seconds[name]:8.2f} s {seconds[THEIRS] / seconds[name]:6.2f}x of theirs"
        line += f"  same text {sum(same)} (as plain {as_plain}) of {len(same)}"
        line += f"  scores off by at most {off:.1e}"
        taken = [one.statistics for one in outcomes if one.statistics]
        if taken:
            rounds = sum(one.rounds for one in taken)
            line += f"  steps/round {sum(one.steps for one in taken) / rounds:.2f}"
            line += f"  nodes/round {sum(one.nodes for one in taken) / rounds:.1f}"
        print(line)
        for index in (index for index, equal in enumerate(same) if not equal):
            (one, score), (other, score_of_other) = beside[index]
            print(f"  sentence {index}: {score:.7f} {one}")
            print(f"  theirs: {score_of_other:.7f} {other}")


def main() -> None:
    args = arguments()
    target, contestants = ours(args)
    decoder_only = target.model.info.start_token is None
    contestants = {THEIRS: theirs(args, decoder_only), **contestants}
    sources = read_examples(args.source_file)[: args.examples]
    prompts = target.tokenizer([args.prefix + each.source for each in sources]).input_ids
    size = args.batch_size
    batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
    report(*race(contestants, batches, args.repeats))


if __name__ == "__main__":
    main()
