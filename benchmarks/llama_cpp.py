"""specjax beside llama.cpp on the same GGUF file, prompts and threads.

    pip install 'specjax[gguf]'; python -m venv LLAMA; LLAMA/bin/pip install llama-cpp-python
    python benchmarks/llama_cpp.py --model=model.gguf --prompts=chats.txt --python=LLAMA/bin/python

Greedy, batch 1. Each line of `--prompts` is a chat's first message. Prompts are decoded by all
contestants in turn, in several passes after a warm-up that compiles; prompt reading is timed,
tokenization is not. Ratios are of times per token in one pass: their median, least and most over
passes. llama.cpp rounds activations to 8 bits where weights are quantized, so texts may differ: the
last column counts those that do not. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax

import specjax

Decode = Callable[[list[int]], tuple[list[int], float]]

RIVAL = "llama.cpp"
WORKER = Path(__file__).with_name("llama_cpp_worker.py")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--prompts", required=True, help="a text file, one message per line")
    parser.add_argument("--examples", type=int, default=20)
    parser.add_argument("--max_new_tokens", type=int, default=64)
    parser.add_argument("--weights", default="", help="of specjax.load, as int8:32 or int4")
    parser.add_argument("--lookup", type=int, default=8, help="draft length of prompt lookup")
    parser.add_argument("--bucket", type=int, default=32, help="prompts are padded to multiples")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--plain_buffers",
        action="store_true",
        help="without llama.cpp's repacked weights: for virtual machines that grant no AMX, where"
        " llama.cpp crashes with them",
    )
    parser.add_argument("--python", default=sys.executable, help="one that has llama-cpp-python")
    return parser.parse_args()


def ours(args: argparse.Namespace, target: specjax.LoadedModel) -> dict[str, Decode]:
    """specjax's contestants."""
    strategies = {
        "specjax autoregressive": specjax.autoregressive(),
        f"specjax prompt lookup {args.lookup}": specjax.strategy(
            drafter="prompt_lookup", length=args.lookup
        ),
    }

    def contestant(strategy: specjax.Strategy) -> Decode:
        generator = specjax.Generator(
            target, {}, strategy, max_new_tokens=args.max_new_tokens, bucket=args.bucket
        )

        def decode(ids: list[int]) -> tuple[list[int], float]:
            start = time.perf_counter()
            batch = generator.batch([ids], 1)
            tokens = generator.rows(generator.run(batch, generator.keys(batch, 0)))[0]
            return tokens, time.perf_counter() - start

        return decode

    return {name: contestant(strategy) for name, strategy in strategies.items()}


def theirs(args: argparse.Namespace, longest: int) -> Decode:
    """llama.cpp's contestant: a process that holds the model, and waits between prompts."""
    numbers = args.threads, longest + args.max_new_tokens, int(not args.plain_buffers)
    command = [args.python, "-P", str(WORKER), args.model, *map(str, numbers)]
    worker = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )

    def decode(ids: list[int]) -> tuple[list[int], float]:
        print(json.dumps([ids, args.max_new_tokens]), file=worker.stdin, flush=True)
        line = worker.stdout.readline()
        if not line:
            raise SystemExit(f"llama.cpp's process ended with exit code {worker.wait()}")
        return tuple(json.loads(line))

    return decode


def race(
    contestants: dict[str, Decode], prompts: list[list[int]], repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[list[int]]]]:
    """Milliseconds per token of every contestant in every pass, and its tokens."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    tokens: dict[str, list[list[int]]] = {}
    for repeat in range(repeats + 1):
        passed = {name: [] for name in contestants}
        for index, ids in enumerate(prompts):
            order = list(contestants)
            for name in order if (repeat + index) % 2 else reversed(order):
                passed[name].append(contestants[name](ids))
        for name, made in passed.items():
            tokens[name] = [one for one, _ in made]
            if repeat:  # the first pass compiles and warms up
                took = sum(seconds for _, seconds in made)
                times[name].append(took / sum(map(len, tokens[name])) * 1e3)
        print(f"pass {repeat} of {repeats} done", flush=True)
    return times, tokens


def report(times: dict[str, list[float]], tokens: dict[str, list[list[int]]]) -> None:
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}, batch 1, greedy")
    print(f"{'':28}{'tokens/s':>10}  {'speed over llama.cpp':24}{'same texts':>14}")
    for name, values in times.items():
        ratios = [rival / own for rival, own in zip(times[RIVAL], values, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        same = sum(a == b for a, b in zip(tokens[name], tokens[RIVAL], strict=True))
        speed = 1e3 / statistics.median(values)
        print(f"{name:28}{speed:10.1f}  {spread:24}{same:>7} of {len(tokens[name])}")


def main() -> None:
    args = arguments()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    target = specjax.load(args.model, weights=args.weights)
    lines = Path(args.prompts).read_text("utf-8").splitlines()[: args.examples]
    prompts = specjax.chat_prompts(target, lines)
    rival = theirs(args, max(map(len, prompts)))
    report(*race({RIVAL: rival} | ours(args, target), prompts, args.repeats))


if __name__ == "__main__":
    main()
