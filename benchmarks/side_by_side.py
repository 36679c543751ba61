"""How fast two checkouts decode beside each other: time after over time before, by strategy.

    python benchmarks/side_by_side.py --before=OLD --after=NEW --target=t5-ende-target \
      --drafter=t5-ende-drafter --source_file=test.en.gz --ngram_file=train.de.gz \
      --prefix='translate English to German: '
    python benchmarks/side_by_side.py --before=OLD --after=NEW --target=llama-gsm8k-target \
      --drafter=llama-gsm8k-drafter --task=gsm8k_qa --data_path=test.jsonl.gz

Each checkout has a process that holds its models and programs and decodes all prompts with one
strategy on command, one after another: before and after, then after and before. So a
machine that changes its speed changes both. Batch 1, float32. Compiling is timed apart, with all
programs dropped before. Run it on an idle machine; below 1 is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Row = dict[str, Any]

CHOSEN = ("alone", "speculative_3", "speculative_7")

STRATEGIES: dict[str, dict[str, Any]] = {
    "autoregressive": {"drafter": "none"},
    "alone": {"drafter": "none"},
    "speculative_3": {"drafter": "neural", "model": "drafter", "length": 3},
    "speculative_7": {"drafter": "neural", "model": "drafter", "length": 7},
    "bild": {"drafter": "bild", "fallback": 0.4, "rollback": 2.0},
    "early_exit": {"drafter": "early_exit", "exit": 1, "length": 3},
    "cascade": {
        "drafter": "cascade",
        "drafters": ("drafter", "max_gram"),
        "matrix": ((4, 2), (0, 2)),
    },
    "selected": {"drafter": "selected", "arms": CHOSEN, "mode": "random"},
    "switched": {"drafter": "switched", "arms": CHOSEN, "costs": (0.0, 0.06, 0.06)},
}
"""As configs spell them. `alone` is an arm like any other."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--before", type=Path, help="checkout to compare with")
    parser.add_argument("--after", type=Path, help="checkout that is compared")
    parser.add_argument("--target", required=True, help="directory or hub id")
    parser.add_argument("--drafter", required=True, help="directory or hub id")
    parser.add_argument("--source_file", default="", help="prompts, one on each line")
    parser.add_argument("--prefix", default="", help="put before every prompt")
    parser.add_argument("--task", default="", help="instead of source_file")
    parser.add_argument("--data_path", default="", help="of the task")
    parser.add_argument(
        "--ngram_file", default="", help="text for Max-Gram; empty: examples that are left over"
    )
    parser.add_argument("--examples", type=int, default=24)
    parser.add_argument("--max_new_tokens", type=int, default=48)
    parser.add_argument("--bucket", type=int, default=32)
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help="with commas between")
    parser.add_argument("--repeats", type=int, default=10, help="of every strategy on both sides")
    parser.add_argument("--compiles", type=int, default=3, help="timed compilations on both sides")
    parser.add_argument("--json", type=Path, help="where the figures go as well")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def generators(args: argparse.Namespace) -> tuple[Mapping[str, Any], list[Any]]:
    """The generators of all strategies by name, and the batches of one prompt each.

    The one place that knows how a checkout builds them; an import that moves is added here.
    """
    from specjax.experiments.config.defaults import decode_config

    config = decode_config(
        target=args.target,
        drafter=args.drafter,
        task=args.task,
        source_file=args.source_file,
        prefix=args.prefix,
        ngram_file=args.ngram_file,
        examples=args.examples,
        max_new_tokens=args.max_new_tokens,
        bucket=args.bucket,
        strategies=STRATEGIES,
    )
    config.data.path = args.data_path
    try:
        from specjax.experiments.decode.checks import check_decode
        from specjax.experiments.decode.session import open_session
        from specjax.experiments.pairs import load_pair

        session = open_session(config, check_decode(config), load_pair(config), Path())
    except ImportError:  # before there were sessions
        from specjax.experiments.decode import job

        session = job.prepare(config, job.load_models(config), Path())
    return session.generators, session.batches()


def serve(args: argparse.Namespace) -> None:
    """Answers each line {"strategy", "cold"} by {"seconds", "tokens"} until there are no more."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    import jax  # the process that compares needs neither

    import specjax

    known, batches = generators(args)

    def answer(content: Mapping[str, Any]) -> None:
        print(json.dumps(content), file=answers, flush=True)

    answer({"package": specjax.__file__})
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["cold"]:
            jax.clear_caches()
        answer(decode_all(known[asked["strategy"]], batches))


def decode_all(generator: Any, batches: list[Any]) -> Row:
    """Seconds from host tokens to host tokens, and the tokens of all prompts."""
    keys = [generator.keys(batch, 0).block_until_ready() for batch in batches]
    start = time.perf_counter()
    rows = [
        generator.rows(generator.run(batch, key))[0]
        for batch, key in zip(batches, keys, strict=True)
    ]
    return {"seconds": time.perf_counter() - start, "tokens": rows}


class Side:
    """The process of one checkout."""

    def __init__(self, checkout: Path) -> None:
        # Compiling is timed: nothing may come from programs that an earlier run has kept.
        kept = {"JAX_COMPILATION_CACHE_DIR"}
        variables = {name: value for name, value in os.environ.items() if name not in kept}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--worker"],
            env=variables | {"PYTHONPATH": str(checkout.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        package = Path(self._read()["package"])
        if not package.is_relative_to(checkout.resolve()):
            raise SystemExit(f"side_by_side: {checkout} has no specjax; {package} would be run")

    def decode(self, strategy: str, *, cold: bool = False) -> Row:
        """All prompts once; `cold` drops every compiled program first."""
        print(json.dumps({"strategy": strategy, "cold": cold}), file=self.process.stdin, flush=True)
        return self._read()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()

    def _read(self) -> Row:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("side_by_side: a checkout's process ended; see above")
        return json.loads(line)


def run_alternately(
    sides: tuple[Side, Side], repeats: int, run: Callable[[Side], Row]
) -> Iterator[tuple[Row, Row]]:
    """What both sides answer, each time the other one first."""
    for repeat in range(repeats):
        turn = sides if repeat % 2 == 0 else sides[::-1]
        pair = [run(side) for side in turn]
        yield (pair[0], pair[1]) if repeat % 2 == 0 else (pair[1], pair[0])


def measure(sides: tuple[Side, Side], strategy: str, repeats: int, compiles: int) -> Row:
    """Figures of one strategy."""
    cold = list(run_alternately(sides, compiles, lambda side: side.decode(strategy, cold=True)))
    warm = list(run_alternately(sides, repeats, lambda side: side.decode(strategy)))
    ratios = [after["seconds"] / before["seconds"] for before, after in warm]
    usual = [statistics.median(pair[side]["seconds"] for pair in warm) for side in (0, 1)]
    compiling = [
        statistics.median(pair[side]["seconds"] for pair in cold) - usual[side] for side in (0, 1)
    ]
    return {
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "seconds": usual,
        "same_tokens": all(a["tokens"] == b["tokens"] for a, b in (*cold, *warm)),
        "compile_seconds": compiling,
    }


def show(strategy: str, row: Row) -> None:
    before, after = row["compile_seconds"]
    print(
        f"{strategy:16}{row['ratio']:8.3f}{row['least']:8.3f}{row['most']:8.3f}"
        f"{'same' if row['same_tokens'] else 'DIFFER':>8}{row['seconds'][0]:10.2f}"
        f"{row['seconds'][1]:8.2f}{before:10.2f}{after:8.2f}{after / before:8.3f}",
        flush=True,
    )


def main() -> int:
    args = parse()
    if args.worker:
        serve(args)
        return 0
    if not (args.before and args.after and args.repeats > 0 and args.compiles > 0):
        raise SystemExit("side_by_side: give --before and --after, and repeats of at least 1")
    sides = Side(args.before), Side(args.after)
    print(
        f"{'':16}{'after/before':>14}{'':10}{'tokens':>8}{'seconds':>18}{'compile seconds':>26}\n"
        f"{'strategy':16}{'median':>8}{'min':>8}{'max':>8}{'':8}{'before':>10}{'after':>8}"
        f"{'before':>10}{'after':>8}{'ratio':>8}"
    )
    found = {}
    for strategy in args.strategies.split(","):
        found[strategy] = measure(sides, strategy, args.repeats, args.compiles)
        show(strategy, found[strategy])
    for side in sides:
        side.close()
    if args.json:
        args.json.write_text(json.dumps(found, indent=1), "utf-8")
    return int(not all(row["same_tokens"] for row in found.values()))


if __name__ == "__main__":
    sys.exit(main())
