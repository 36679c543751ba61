"""int8 and int4 weights of one model beside its own: quality, acceptance as its drafter, time.

    python benchmarks/quantized_weights.py --target=TARGET --source=test.en.gz \\
      --reference=test.de.gz --prefix='translate English to German: ' --texts=100

For decoder-only models JSON lines, the field that prompts stand in, and how they are put:
`--source=test.jsonl.gz --field=question --prefix='Q: ' --suffix=$'\\nA:'`.

Batch 1, greedy but where copies draft at another temperature. Contestants take turns at every text,
after one that compiles; ratios are those of the same text over the same baseline, with their
quartiles.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

import jax
import numpy as np
import sacrebleu

import specjax
from specjax.data.text import read_examples
from specjax.models.quantized_weights import count_stored_bytes
from specjax.reporting.table import align_columns

BUCKET = 48


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--target", required=True, help="directory or hub id")
    parser.add_argument("--source", required=True, help="file of prompts, one on each line")
    parser.add_argument(
        "--reference", default="", help="file of their translations; empty: no BLEU"
    )
    parser.add_argument("--field", default="source", help="of JSON lines, which prompts stand in")
    parser.add_argument("--prefix", default="", help="put before every prompt")
    parser.add_argument("--suffix", default="", help="put behind every prompt")
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--weights", default="int8,int4:32", help="commas between")
    parser.add_argument(
        "--parts",
        default="alone,0,1",
        help="copies alone, and drafting for the model at these temperatures; commas between",
    )
    parser.add_argument("--length", type=int, default=3, help="drafted tokens")
    parser.add_argument("--max_new_tokens", type=int, default=48)
    return parser.parse_args()


def contestants(args: argparse.Namespace) -> dict[str, specjax.Generator]:
    """The model, its copies alone, and the model with each copy as its drafter."""
    whole = specjax.load(args.target)
    copies = {weights: specjax.quantize(whole, weights) for weights in args.weights.split(",")}
    limits = {"max_new_tokens": args.max_new_tokens, "bucket": BUCKET}
    made = {"float32": specjax.Generator(whole, **limits)}
    for part in args.parts.split(","):
        for name, copy in copies.items():
            if part == "alone":
                made[name] = specjax.Generator(copy, **limits)
                continue
            strategy = specjax.speculative(length=args.length, temperature=float(part))
            drafted = specjax.Generator(whole, {"drafter": copy}, strategy, **limits)
            made[f"float32, {name} drafts, T={part}"] = drafted
    return made


def measure(
    generators: Mapping[str, specjax.Generator], prompts: list[str]
) -> tuple[dict[str, list[specjax.Result]], dict[str, np.ndarray]]:
    """Results and milliseconds per token of every text, by contestant."""
    results: dict[str, list[specjax.Result]] = {name: [] for name in generators}
    spent: dict[str, list[float]] = {name: [] for name in generators}
    for generator in generators.values():
        generator(prompts[:1])
    for place, prompt in enumerate(prompts):
        for name, generator in generators.items():
            start = time.perf_counter()
            result = generator([prompt], seed=place)
            taken = time.perf_counter() - start
            results[name].append(result)
            spent[name].append(1e3 * taken / len(result.tokens[0]))
    return results, {name: np.array(times) for name, times in spent.items()}


def line(
    name: str,
    generator: specjax.Generator,
    results: list[specjax.Result],
    times: np.ndarray,
    base: np.ndarray,
    references: list[str],
) -> list[str]:
    """One row of the table."""
    counts = [result.statistics for result in results]
    tested = sum(each.tested for each in counts)
    accepted = f"{sum(each.accepted for each in counts) / tested:.3f}" if tested else ""
    texts = [result.texts[0] for result in results]
    bleu = f"{sacrebleu.corpus_bleu(texts, [references]).score:.2f}" if references else ""
    shared = {id(x): count_stored_bytes(x) for x in jax.tree.leaves(generator.params)}
    low, middle, high = np.percentile(times / base, (25, 50, 75))
    return [
        name,
        bleu,
        f"{sum(shared.values()) / 1e6:.1f}",
        accepted,
        f"{np.median(times):.2f}",
        f"{middle:.2f} ({low:.2f} to {high:.2f})",
    ]


def main() -> None:
    args = parse()
    found = read_examples(args.source, source_field=args.field)[: args.texts]
    prompts = [args.prefix + example.source + args.suffix for example in found]
    examples = read_examples(args.reference)[: args.texts] if args.reference else []
    references = [example.source for example in examples]
    generators = contestants(args)
    results, times = measure(generators, prompts)
    base = times["float32"]
    same = {name: [r.tokens for r in found] for name, found in results.items()}
    rows = [
        [
            *line(name, generators[name], results[name], times[name], base, references),
            str(sum(a == b for a, b in zip(same[name], same["float32"], strict=True))),
        ]
        for name in generators
    ]
    heads = ["weights", "BLEU", "MB", "accepted", "ms/token", "over float32", "same texts"]
    print(align_columns(heads, rows))


if __name__ == "__main__":
    main()
