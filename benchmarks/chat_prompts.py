"""Writes user messages of Alpaca and GSM8K as JSONL files to train drafters of chat models on.

    python benchmarks/chat_prompts.py --alpaca=alpaca.jsonl.gz --gsm8k=train.jsonl.gz \
      --count=2800 --heldout=128 --output=prompts

`train.jsonl` and `heldout.jsonl` have no message in common; half of each is from either set.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from specjax.data import files


def alpaca_messages(file: str) -> list[str]:
    """Instructions, each followed by its input if it has one."""
    rows = files.json_rows("alpaca", file)
    return ["\n\n".join(filter(None, (row["instruction"], row.get("input")))) for row in rows]


def gsm8k_messages(file: str) -> list[str]:
    """Questions."""
    return [row["question"] for row in files.json_rows("gsm8k", file)]


def write_messages(file: Path, messages: list[str]) -> None:
    """One JSON object {"source": message} per line."""
    lines = (json.dumps({"source": message}, ensure_ascii=False) for message in messages)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{file}: {len(messages)} messages")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--alpaca", required=True, help="rows of instruction and input, JSONL")
    parser.add_argument("--gsm8k", required=True, help="rows of question, JSONL")
    parser.add_argument("--count", type=int, default=2800, help="training messages")
    parser.add_argument("--heldout", type=int, default=128, help="messages to evaluate on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True, help="folder")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    heldout, train = [], []
    for messages in (alpaca_messages(args.alpaca), gsm8k_messages(args.gsm8k)):
        messages = sorted({message for message in messages if message.strip()})
        draw.shuffle(messages)
        needed = (args.count + args.heldout) // 2
        if len(messages) < needed:
            parser.error(f"one of the files has {len(messages)} messages; {needed} are needed")
        heldout += messages[: args.heldout // 2]
        train += messages[args.heldout // 2 : needed]
    draw.shuffle(train)
    args.output.mkdir(parents=True, exist_ok=True)
    write_messages(args.output / "train.jsonl", train)
    write_messages(args.output / "heldout.jsonl", heldout)


if __name__ == "__main__":
    main()
