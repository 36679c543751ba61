"""How well several drafters suit a target: acceptance at temperatures 0 and 1, and own quality.

    python benchmarks/drafters.py --target=DIR --drafters before=DIR,aligned=runs/align/model \\
      --source_file=test.en.gz --reference_file=test.de.gz --prefix='translate English to German: '

Acceptance is analytic: the mean of sum_x min(p, q) over what the target generates
(docs/methods/speculative_sampling.md, "Measuring acceptance"); at temperature 0 how often the
argmax agree. All drafters are measured on the same target text.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import specjax
from specjax.acceptance import acceptance_on, write
from specjax.data.text import read_examples
from specjax.metrics.metric import get_metric
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import write_json
from specjax.runtime.progress import progress

TEMPERATURES = (0.0, 1.0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--target", required=True, help="directory or hub id")
    parser.add_argument("--drafters", required=True, help="name=directory, with commas between")
    parser.add_argument("--source_file", required=True)
    parser.add_argument("--reference_file", required=True)
    parser.add_argument("--prefix", default="", help="put before every source")
    parser.add_argument("--examples", type=int, default=0, help="how many; 0: all")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--max_new_tokens", type=int, default=64)
    parser.add_argument("--json", type=Path, help="where the figures go as well")
    return parser.parse_args()


def measure(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Figures by drafter."""
    target = specjax.load(args.target)
    drafters = {}
    for part in args.drafters.split(","):
        name, equals, place = part.partition("=")
        if not equals:
            raise UserError(f"--drafters has {part!r}; it must be name=directory")
        drafters[name] = specjax.load(place)
    examples = read_examples(args.source_file, args.reference_file)[: args.examples or None]
    prompts = [args.prefix + example.source for example in examples]
    references = [example.reference for example in examples]
    ids = [target.tokenizer(prompt).input_ids for prompt in prompts]
    settings = {"max_new_tokens": args.max_new_tokens, "batch_size": args.batch_size}
    written = {t: write(target, ids, temperature=t, **settings) for t in TEMPERATURES}
    found = {}
    for name, drafter in progress({"target": target, **drafters}.items(), unit="model"):
        baseline = specjax.Generator(drafter, max_new_tokens=args.max_new_tokens, bucket=16)
        texts = baseline(prompts, batch_size=args.batch_size).texts
        found[name] = get_metric("bleu")(texts, references)
        for temperature, text in written.items():
            alpha, tokens = acceptance_on(text, target, drafter)
            found[name] |= {f"acceptance_{temperature:g}": alpha, f"tokens_{temperature:g}": tokens}
    return found


def main() -> int:
    args = parse()
    try:
        found = measure(args)
    except UserError as error:
        print(f"drafters: {error}", file=sys.stderr)
        return 2
    print(f"{'model':16}{'acceptance T=0':>16}{'T=1':>8}{'BLEU':>8}")
    for name, row in found.items():
        print(f"{name:16}{row['acceptance_0']:16.3f}{row['acceptance_1']:8.3f}{row['bleu']:8.2f}")
    if args.json:
        write_json(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
