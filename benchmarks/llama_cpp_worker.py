"""llama.cpp in its own process, for benchmarks/llama_cpp.py: prompts in, tokens and seconds out.

    python -P benchmarks/llama_cpp_worker.py MODEL.gguf THREADS CONTEXT

Each line of the input is `[ids, most new tokens]`, each line of the output `[tokens, seconds]`.
With `-P` the package is imported, not the benchmark of that name.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def decoded(model: Any, ids: list[int], most: int) -> tuple[list[int], float]:
    """Greedy tokens of a prompt, that of the end included, and the seconds that they took."""
    start = time.perf_counter()
    model.reset()
    tokens: list[int] = []
    for token in model.generate(ids, temp=0.0):
        tokens.append(token)
        if token == model.token_eos() or len(tokens) == most:
            break
    return tokens, time.perf_counter() - start


def main() -> None:
    from llama_cpp import Llama

    file, threads, context = sys.argv[1], *map(int, sys.argv[2:])
    model = Llama(file, n_threads=threads, n_threads_batch=threads, n_ctx=context, verbose=False)
    for line in sys.stdin:
        print(json.dumps(decoded(model, *json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
