"""specjax beside Hugging Face `generate()`: the strategies of a decode config, the same prompts.

    python benchmarks/huggingface.py --config=configs/qwen_coder.py --workdir=runs/coder_beside \\
      --config.data.path=HumanEval.jsonl.gz --config.examples=20 --config.repeats=1 \\
      --rivals=generate,lookup:10,assisted:smollm2:5
    python benchmarks/huggingface.py --config=configs/smollm2.py:eagle=DIR --workdir=runs/beside \\
      --config.task=spec_bench --config.turns=1 --config.data.path=question.jsonl.gz \\
      --rivals=generate,lookup:4

Flags of the config are those of `python -m specjax.main`: strategies are named and added there, and
`--config.only=NAME,NAME` chooses among them. Tasks `mt_bench` and `spec_bench` decode all turns,
`--config.turns=1` first ones only. Prompts are texts or images. Rivals:
benchmarks/huggingface_generate.py.

Greedy, batch 1, float32, the same cores for both. All decode every prompt in turn, in an order that
rotates. Compiling and a first short decode are not timed; reading the prompt is, tokenization is
not. A prompt's time is the least of `config.repeats`. Tokens per call: the call that reads a prompt
gives transformers a token and specjax none. The workdir keeps every decode, so a run that was
ended goes on, and `beside.json` has the table. Needs torch; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
import transformers
from huggingface_generate import ALLOWED, Generate, Prompt, Rivals
from ml_collections import ConfigDict

from specjax.decoding.summary import summarize
from specjax.experiments.config.command_line import parse
from specjax.experiments.config.fields import model_names, model_source
from specjax.experiments.decode.checks import check_decode
from specjax.experiments.decode.compiling import compile_programs
from specjax.experiments.decode.job import time_decode
from specjax.experiments.decode.session import Session, open_session
from specjax.experiments.decode.strategies import BASELINE
from specjax.experiments.pairs import load_pair
from specjax.hf.images import ImageReader
from specjax.main import enable_compilation_cache
from specjax.reporting.table import align_columns
from specjax.runtime.errors import UserError
from specjax.runtime.progress import progress

PLAIN = "transformers generate"
JOURNAL, TABLE = "beside.jsonl", "beside.json"
WARM_TOKENS = 8


@dataclasses.dataclass(frozen=True)
class Decoded:
    """One prompt decoded by one contestant."""

    seconds: float
    calls: int  # of the target
    tokens: list[int]


Contestant = Callable[[int], Decoded]
"""Decodes the prompt of an index."""

Decodes = dict[tuple[int, int], dict[str, Decoded]]
"""By repeat and index of the prompt: what each contestant decoded."""


def arguments() -> tuple[argparse.Namespace, ConfigDict, Path]:
    """This benchmark's flags, the config and the workdir."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rivals", default="generate,lookup:10", help=f"of {ALLOWED}, commas between"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args, rest = parser.parse_known_args()
    request = parse([sys.argv[0], *rest])
    config = request.config
    if config.batch_size != 1:
        raise UserError(f"config.batch_size is {config.batch_size}; it must be 1")
    return args, config, request.workdir


def places_of(config: ConfigDict) -> dict[str, str]:
    """Directories or hub ids of the target and the drafters that are models of their own."""
    places = {name: model_source(config, name)[0] for name in model_names(config)}
    return {name: str(place) for name, place in places.items() if str(place) != "target"}


def ours(session: Session) -> dict[str, Contestant]:
    """specjax's contestants, whose programs are compiled and have run once."""
    batches, seed = session.batches(), session.config.seed
    compile_programs(session, batches)

    def contestant(name: str) -> Contestant:
        generator, selector = session.generators[name], session.arm_selectors[name]
        few = np.full(1, WARM_TOKENS, np.int32)
        time_decode(generator, batches[0], seed, limit=few, **selector.run_arguments(0, batches[0]))

        def decode(index: int) -> Decoded:
            batch = batches[index]
            seconds, rows, made = time_decode(
                generator, batch, seed, **selector.run_arguments(0, batch)
            )
            calls = summarize(generator.decoder, [(made, 1)]).reviews
            return Decoded(seconds, calls, rows[0])

        return decode

    return {name: contestant(name) for name in session.generators}


def their_prompts(session: Session) -> Sequence[Prompt]:
    """Prompts as transformers' models read them."""
    reader = session.pair.target.extractor
    if not isinstance(reader, ImageReader):
        return session.prompts
    return [reader.pixels("an image", example.source) for example in session.examples]


def theirs(rivals: Rivals, prompts: Sequence[Prompt], new: int) -> dict[str, Contestant]:
    """Contestants of transformers, which have decoded a few tokens."""

    def contestant(generate: Generate) -> Contestant:
        generate(prompts[0], WARM_TOKENS)

        def decode(index: int) -> Decoded:
            before, start = rivals.calls, time.perf_counter()
            tokens = generate(prompts[index], new)
            return Decoded(time.perf_counter() - start, rivals.calls - before, tokens)

        return decode

    return {f"transformers {name}": contestant(one) for name, one in rivals.decoders().items()}


class Journal:
    """The decodes of a workdir, one JSON line for each prompt and repeat."""

    def __init__(self, file: Path, settings: Mapping[str, Any]) -> None:
        """Reads what an earlier run of the same settings decoded.

        Raises:
          SystemExit: when the file is of other settings.
        """
        self.decodes: Decodes = {}
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        if lines and json.loads(lines[0]) != json.loads(json.dumps(settings)):
            raise SystemExit(
                f"huggingface: {file} has decodes of other flags; give another workdir"
            )
        for line in lines[1:]:
            row = json.loads(line)
            decoded = {name: Decoded(*values) for name, values in row["decoded"].items()}
            self.decodes[row["repeat"], row["index"]] = decoded
        self._file = file.open("a", encoding="utf-8")
        if not lines:
            print(json.dumps(settings), file=self._file, flush=True)

    def add(self, repeat: int, index: int, decoded: dict[str, Decoded]) -> None:
        self.decodes[repeat, index] = decoded
        values = {name: dataclasses.astuple(one) for name, one in decoded.items()}
        row = {"repeat": repeat, "index": index, "decoded": values}
        print(json.dumps(row), file=self._file, flush=True)


def race(
    contestants: Mapping[str, Contestant], prompts: int, repeats: int, journal: Journal
) -> Decodes:
    """Every contestant decodes every prompt in turn, but for what the journal holds."""
    turns = [(repeat, index) for repeat in range(repeats) for index in range(prompts)]
    left = [turn for turn in turns if turn not in journal.decodes]
    names = list(contestants)
    with progress(
        total=len(turns), initial=len(turns) - len(left), desc="decode", unit="prompt"
    ) as bar:
        for repeat, index in left:
            first = (repeat + index) % len(names)
            order = names[first:] + names[:first]
            decoded = {name: contestants[name](index) for name in order}
            journal.add(repeat, index, {name: decoded[name] for name in names})
            bar.update()
    return {turn: journal.decodes[turn] for turn in turns}


def figures(decodes: Decodes) -> dict[str, dict[str, Any]]:
    """What the table says of each contestant, and its tokens."""
    names = list(next(iter(decodes.values())))
    prompts = 1 + max(index for _, index in decodes)
    repeats = 1 + max(repeat for repeat, _ in decodes)
    grid = {n: [[decodes[r, i][n] for i in range(prompts)] for r in range(repeats)] for n in names}
    tokens = {name: [one.tokens for one in rows[0]] for name, rows in grid.items()}
    counts = {name: np.array([len(one) for one in texts]) for name, texts in tokens.items()}
    seconds = {
        name: np.min([[one.seconds for one in row] for row in rows], axis=0)
        for name, rows in grid.items()
    }
    speed = {name: counts[name].sum() / seconds[name].sum() for name in names}
    bases = baselines(names, speed)
    found = {}
    for name in names:
        each = seconds[name] / counts[name]
        ratios = {}
        for title, base in bases.items():
            quartiles = np.percentile(seconds[base] / counts[base] / each, (25, 50, 75))
            ratios[title] = [float(speed[name] / speed[base]), *map(float, quartiles)]
        found[name] = {
            "ms_per_token": 1e3 / float(speed[name]),
            "tokens_per_call": float(counts[name].sum() / sum(one.calls for one in grid[name][0])),
            "over": ratios,
            "same": {t: sum(a == b for a, b in zip(tokens[name], tokens[base], strict=True))
                     for t, base in bases.items()},
            "seconds": seconds[name].tolist(),
            "tokens": tokens[name],
        }  # fmt: skip
    return found


def baselines(names: Sequence[str], speed: Mapping[str, float]) -> dict[str, str]:
    """Titles of what contestants are compared with, and their names."""
    bases = {"autoregressive": BASELINE, "generate": PLAIN}
    drafted = [name for name in names if name.startswith("transformers ") and name != PLAIN]
    if drafted:
        bases["best rival"] = max(drafted, key=lambda name: speed[name])
    return {title: name for title, name in bases.items() if name in names}


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The figures in columns: ratios of all prompts, quartiles of single prompts in brackets."""
    titles = list(next(iter(found.values()))["over"])
    heads = ["", "ms/token", "tokens/call", *(f"over {title}" for title in titles), "same texts"]
    rows = []
    for name, row in found.items():
        ratios = ["{:.2f} ({:.2f} {:.2f} {:.2f})".format(*row["over"][title]) for title in titles]
        count = len(row["tokens"])
        same = ", ".join(str(row["same"][title]) for title in titles[:2]) + f" of {count}"
        rows.append(
            [name, f"{row['ms_per_token']:.1f}", f"{row['tokens_per_call']:.2f}", *ratios, same]
        )
    return align_columns(heads, rows)


def main() -> None:
    args, config, workdir = arguments()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    enable_compilation_cache()
    workdir.mkdir(parents=True, exist_ok=True)
    settings = {"config": config.to_dict(), "rivals": args.rivals, "threads": args.threads}
    journal = Journal(workdir / JOURNAL, settings)
    rivals = Rivals(places_of(config), args.rivals.split(","), args.threads)
    session = open_session(config, check_decode(config), load_pair(config), workdir)
    contestants = ours(session) | theirs(rivals, their_prompts(session), config.max_new_tokens)
    found = figures(race(contestants, len(session.prompts), config.repeats, journal))
    (workdir / TABLE).write_text(json.dumps(found), "utf-8")
    versions = f"jax {jax.__version__}, torch {torch.__version__}"
    print(f"{versions}, transformers {transformers.__version__}, {args.threads} threads, float32")
    print("ratios of all prompts, and quartiles of the ratios of single prompts")
    print(table(found))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"huggingface: {error}") from None
