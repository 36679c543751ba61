"""Are the texts of trees and drafted beams those of plain decoding, sentence for sentence?

    python benchmarks/thousand_sentences.py --target=t5-ende-target --drafter=t5-ende-drafter \\
      --source_file=test_2016_flickr.en.gz --prefix='translate English to German: ' \\
      --strategies=chain_5,tree_8,tree_32,beams_1

Greedy, float32. Prompts are sorted by length and decoded in batches. Chains and the trees of
`configs/trees.py` are compared token for token with autoregressive decoding, beams that a model
drafts (`beams_K`: K steps, four hypotheses wide) with plain ones. Of the texts that differ, those
at a float tie are counted apart: where the target itself cannot tell two tokens, or the scores of
two hypotheses, apart by more than rounding. Exit code 1 if any other text differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Callable, Sequence

import jax.numpy as jnp

import specjax
from specjax.data.text import read_examples
from specjax.experiments.recipes.trees import ACCEPTANCE, KINDS, best_trees, chains
from specjax.metrics.ties import divergence, near_ties
from specjax.runtime.errors import UserError
from specjax.runtime.progress import progress

KIND = KINDS["neural"]
GREEDY = chains(KIND, 0.0) | best_trees(KIND, 0.0, ACCEPTANCE)
BEAMS = {
    f"beams_{steps}": {"drafter": "neural", "length": steps, "width": 4} for steps in (1, 2, 3)
}
NAMES = (*GREEDY, *BEAMS)
EQUAL_SCORES = 1e-5
"""Of two hypotheses: log-probabilities per token that differ by rounding at most."""


def names(text: str) -> tuple[str, ...]:
    """The strategies asked for.

    Raises:
      argparse.ArgumentTypeError: naming one that is not known.
    """
    wanted = tuple(text.split(","))
    for name in wanted:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(f"{name!r} must be one of {', '.join(NAMES)}")
    return wanted


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", required=True, help="directory or hub id")
    parser.add_argument("--drafter", required=True, help="directory or hub id")
    parser.add_argument("--source_file", required=True, help="one sentence on each line")
    parser.add_argument("--prefix", default="", help="put before every sentence")
    parser.add_argument(
        "--strategies",
        type=names,
        default=("chain_5", "tree_4", "tree_8", "tree_16", "tree_32", "beams_1"),
        help=f"of {', '.join(NAMES)}, with commas between",
    )
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--batch_size", type=int, default=50)
    parser.add_argument("--max_new_tokens", type=int, default=64)
    parser.add_argument("--beams", type=int, default=4, help="hypotheses of a beam search")
    parser.add_argument("--bucket", type=int, default=32, help="prompts are padded to multiples")
    return parser.parse_args()


@dataclasses.dataclass
class Decoded:
    """What a strategy made of all prompts."""

    texts: list[list[int]]  # generated ids
    scores: list[float]  # of the texts; none of greedy decoding
    steps: int  # tokens, or steps of a beam search
    calls: int  # of the target

    @property
    def line(self) -> str:
        kind = "steps" if self.scores else "tokens"
        return f"{self.steps:7,} {kind}, {self.steps / self.calls:.2f} a call"


Generate = Callable[[list[list[int]]], tuple[list[list[int]], list[float], int, int]]


class Decoder:
    """The pair of models and the prompts, shortest first."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.target = specjax.load(args.target)
        self.drafters = {"drafter": specjax.load(args.drafter)}
        sources = [args.prefix + each.source for each in read_examples(args.source_file)]
        self.prompts = sorted(self.target.tokenizer(sources[: args.examples]).input_ids, key=len)

    def greedy(self, **strategy: object) -> Generate:
        made = specjax.Generator(
            self.target,
            self.drafters,
            specjax.strategy(**strategy),
            max_new_tokens=self.args.max_new_tokens,
            bucket=self.args.bucket,
        )

        def generate(ids: list[list[int]]) -> tuple[list[list[int]], list[float], int, int]:
            found = made(ids, batch_size=self.args.batch_size)
            return found.tokens, [], found.statistics.tokens, found.statistics.calls["target"]

        return generate

    def beams(self, **strategy: object) -> Generate:
        made = specjax.BeamGenerator(
            self.target,
            self.drafters,
            specjax.beam_search(beams=self.args.beams, **strategy),
            max_new_tokens=self.args.max_new_tokens,
            bucket=self.args.bucket,
        )

        def generate(ids: list[list[int]]) -> tuple[list[list[int]], list[float], int, int]:
            found = made(ids, batch_size=self.args.batch_size)
            return found.tokens, found.scores, found.statistics.steps, found.statistics.rounds

        return generate

    def decode(self, name: str, generate: Generate) -> Decoded:
        """All prompts, batch by batch; prints what came of them."""
        size, whole = self.args.batch_size, Decoded([], [], 0, 0)
        starts = range(0, len(self.prompts), size)
        for start in progress(starts, desc=name, unit="batch"):
            texts, scores, steps, calls = generate(self.prompts[start : start + size])
            whole.texts += texts
            whole.scores += scores
            whole.steps += steps
            whole.calls += calls
        print(f"{name:14}{len(whole.texts):6,} texts {whole.line}", flush=True)
        return whole

    def ties(self, one: Decoded, other: Decoded) -> tuple[int, int]:
        """How many texts differ, and how many of these at a float tie."""
        if one.scores:
            pairs = zip(one.texts, other.texts, one.scores, other.scores, strict=True)
            off = [abs(mine - its) for text, twin, mine, its in pairs if text != twin]
            return len(off), sum(gap <= EQUAL_SCORES for gap in off)
        rows = zip(self.prompts, one.texts, other.texts, strict=True)
        parted = list(filter(None, itertools.starmap(divergence, rows)))
        model, params = self.target.model, self.target.params
        return len(parted), near_ties(model, params, parted, jnp.float32)


def compare(decoder: Decoder, wanted: Sequence[str]) -> int:
    """Decodes plainly, then by every strategy; returns how many texts differ for no tie."""
    others = 0
    for plain, make, kinds in (
        ("autoregressive", decoder.greedy, GREEDY),
        ("beams", decoder.beams, BEAMS),
    ):
        chosen = [name for name in wanted if name in kinds]
        if not chosen:
            continue
        base = decoder.decode(plain, make(drafter="none"))
        for name in chosen:
            differing, ties = decoder.ties(decoder.decode(name, make(**kinds[name])), base)
            print(f"{'':14}{differing} differ from {plain}, {ties} of them at a float tie")
            others += differing - ties
    return others


def main() -> int:
    args = parse()
    try:
        return int(compare(Decoder(args), args.strategies) > 0)
    except UserError as error:
        print(f"thousand_sentences: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
