"""llama.cpp in its own process, for benchmarks/llama_cpp.py: prompts in, tokens and seconds out.

    python -P benchmarks/llama_cpp_worker.py MODEL.gguf THREADS CONTEXT REPACKED

Each line of the input is `[ids, most new tokens]`, each line of the output `[tokens, seconds]`.
With `-P` the package is imported, not the benchmark of that name. REPACKED is 1, or 0 without the
buffers of weights that llama.cpp lays out anew for the processor.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def decode_greedily(model: Any, ids: list[int], most: int) -> tuple[list[int], float]:
    """Greedy tokens of a prompt, that of the end included, and the seconds that they took."""
    start = time.perf_counter()
    model.reset()
    tokens: list[int] = []
    for token in model.generate(ids, temp=0.0):
        tokens.append(token)
        if token == model.token_eos() or len(tokens) == most:
            break
    return tokens, time.perf_counter() - start


def load_model(file: str, threads: int, context: int, repacked: bool) -> Any:
    """The model; the package has no argument for its buffers, only llama.cpp's defaults."""
    from llama_cpp import Llama, llama_cpp

    defaults = llama_cpp.llama_model_default_params

    def with_buffers() -> Any:
        params = defaults()
        params.use_extra_bufts = repacked
        return params

    llama_cpp.llama_model_default_params = with_buffers
    return Llama(file, n_threads=threads, n_threads_batch=threads, n_ctx=context, verbose=False)


def main() -> None:
    file, threads, context, repacked = sys.argv[1], *map(int, sys.argv[2:])
    model = load_model(file, threads, context, bool(repacked))
    for line in sys.stdin:
        print(json.dumps(decode_greedily(model, *json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
