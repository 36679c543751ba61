"""Prompts whose translations mix two languages, to see drafters being changed within a text.

    python benchmarks/mixed_texts.py --english=test.en.gz --german=test.de.gz --out=mixed.jsonl

Every prompt is an English and a German sentence under one of the two instructions, in either
order: a translator of both directions writes some of each language. Rows {"id", "text"} for
`configs/selection/mixed.py`.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from specjax.data.text import read_examples
from specjax.runtime.json_files import write_jsonl

INSTRUCTIONS = ("translate English to German: ", "translate German to English: ")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--english", required=True, help="file of sentences, one on each line")
    parser.add_argument("--german", required=True, help="file of sentences, one on each line")
    parser.add_argument("--prompts", type=int, default=100, help="how many")
    parser.add_argument("--out", type=Path, required=True, help="JSONL file to write")
    return parser.parse_args()


def prompts(english: list[str], german: list[str], count: int) -> list[str]:
    """`count` prompts; no sentence stands beside its own translation."""
    forms = list(itertools.product(INSTRUCTIONS, (False, True)))
    found = []
    for place in range(count):
        instruction, turned = forms[place % len(forms)]
        pair = english[place % len(english)], german[(place + count) % len(german)]
        found.append(instruction + " ".join(reversed(pair) if turned else pair))
    return found


def main() -> None:
    args = parse()
    english, german = (
        [example.source for example in read_examples(file)] for file in (args.english, args.german)
    )
    texts = prompts(english, german, args.prompts)
    rows = [{"id": f"mixed/{place}", "text": text} for place, text in enumerate(texts)]
    write_jsonl(args.out, rows)
    print(f"{len(rows)} prompts in {args.out}")


if __name__ == "__main__":
    main()
