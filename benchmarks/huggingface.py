"""specjax beside Hugging Face `generate()` on the same checkpoints, sentences and threads.

    python benchmarks/huggingface.py --target=DIR --drafter=DIR --source_file=test.en.gz \\
      --prefix='translate English to German: ' --examples=100
    python benchmarks/huggingface.py --target=DIR --drafter=DIR --task=gsm8k_qa \\
      --source_file=test.jsonl.gz

Encoder-decoder or decoder-only pairs. Needs torch. Greedy, batch 1, float32. Prompts are decoded
by all contestants in turn, in several passes after a warm-up; a contestant's time is the sum over
prompts of its best pass. Compilation is not timed; tokenisation is outside, prompt reading inside.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

import specjax
from specjax.data import examples as of_task
from specjax.data.sources import Source
from specjax.data.text import read_examples
from specjax.experiments.decode.data import kind_of

Decode = Callable[[list[int]], list[int]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", required=True, help="directory or hub id")
    parser.add_argument("--drafter", required=True, help="directory or hub id")
    parser.add_argument(
        "--source_file", required=True, help="one prompt per line, or a task's rows"
    )
    parser.add_argument(
        "--task", default="", help="whose rows --source_file holds; see docs/how_to/data.md"
    )
    parser.add_argument("--prefix", default="", help="put before every sentence")
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--max_new_tokens", type=int, default=64)
    parser.add_argument("--lengths", default="2,3,4,5", help="draft lengths of specjax")
    parser.add_argument("--bucket", type=int, default=8, help="prompts are padded to multiples")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    return parser.parse_args()


def ours(args: argparse.Namespace) -> tuple[specjax.LoadedModel, dict[str, Decode]]:
    """The target and specjax's contestants."""
    target, drafter = specjax.load(args.target), specjax.load(args.drafter)
    strategies = {"specjax autoregressive": specjax.autoregressive()}
    for length in map(int, args.lengths.split(",")):
        strategies[f"specjax speculative {length}"] = specjax.speculative(length)

    def contestant(strategy: specjax.Strategy) -> Decode:
        generator = specjax.Generator(
            target,
            {"drafter": drafter},
            strategy,
            max_new_tokens=args.max_new_tokens,
            bucket=args.bucket,
        )

        def decode(ids: list[int]) -> list[int]:
            batch = generator.batch([ids], 1)
            return generator.rows(generator.run(batch, generator.keys(batch, 0)))[0]

        return decode

    return target, {name: contestant(s) for name, s in strategies.items()}


def theirs(args: argparse.Namespace, decoder_only: bool) -> dict[str, Decode]:
    """Hugging Face's contestants: plain, and assisted with three schedules."""
    torch.set_num_threads(args.threads)
    load = (AutoModelForCausalLM if decoder_only else AutoModelForSeq2SeqLM).from_pretrained
    target, drafter = (load(d, dtype=torch.float32).eval() for d in (args.target, args.drafter))

    def contestant(*how: Any) -> Decode:
        decode = generating(target, *how)
        return lambda ids: decode(ids, args.max_new_tokens)

    return {
        "transformers generate": contestant(),
        "transformers assisted 3": contestant(drafter, 3, 0.0),
        "transformers assisted 5": contestant(drafter, 5, 0.0),
        "transformers assisted default": contestant(drafter, 20, 0.4),
    }


def generating(
    target: Any, drafter: Any = None, length: int = 0, threshold: float = 0.0
) -> Callable[[list[int], int], list[int]]:
    """Greedy `generate()` of a prompt's ids and of how many new tokens, on the target's device.

    With a `drafter` it drafts `length` tokens, or fewer where its confidence is below `threshold`.
    """

    @torch.inference_mode()
    def decode(ids: list[int], new: int) -> list[int]:
        if drafter is not None:
            settings = drafter.generation_config
            settings.num_assistant_tokens = length
            settings.num_assistant_tokens_schedule = "constant"
            settings.assistant_confidence_threshold = threshold
        prompt = torch.tensor([ids], device=target.device)
        out = target.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=new,
            do_sample=False,
            assistant_model=drafter,
        )
        return out[0, 1 if target.config.is_encoder_decoder else len(ids) :].tolist()

    return decode


def race(contestants: dict[str, Decode], prompts: list[list[int]], repeats: int) -> dict[str, Any]:
    """Seconds and tokens of every contestant, sentence by sentence in turn."""
    best = {name: [float("inf")] * len(prompts) for name in contestants}
    tokens: dict[str, list[list[int]]] = {name: [[]] * len(prompts) for name in contestants}
    for repeat in range(repeats + 1):
        for index, ids in enumerate(prompts):
            for name, decode in contestants.items():
                start = time.perf_counter()
                tokens[name][index] = decode(ids)
                took = time.perf_counter() - start
                if repeat:  # the first pass compiles and warms up
                    best[name][index] = min(best[name][index], took)
        print(f"pass {repeat} of {repeats} done", flush=True)
    return {"seconds": {name: sum(times) for name, times in best.items()}, "tokens": tokens}


def report(raced: dict[str, Any]) -> None:
    reference = raced["tokens"]["transformers generate"]
    rows = {}
    for name, seconds in raced["seconds"].items():
        tokens = raced["tokens"][name]
        same = sum(a == b for a, b in zip(tokens, reference, strict=True))
        rows[name] = (seconds / sum(map(len, tokens)) * 1e3, same)
    plain = rows["specjax autoregressive"][0]
    hugging_face = rows["transformers generate"][0]
    assisted = min(ms for name, (ms, _) in rows.items() if "assisted" in name)
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}, torch {torch.__version__},")
    print("float32, batch 1, greedy; speed of each row over three baselines:")
    head = ("ms/token", "/specjax AR", "/HF generate", "/best HF assisted", "same as HF")
    print(f"{'':32}" + "".join(f"{title:>19}" for title in head))
    for name, (ms, same) in rows.items():
        ratios = "".join(f"{base / ms:18.2f}x" for base in (plain, hugging_face, assisted))
        print(f"{name:32}{ms:19.3f}{ratios}{same:>12} of {len(reference)}")


def main() -> None:
    args = arguments()
    target, contestants = ours(args)
    if args.task:
        kind = Source(kind_of(args.source_file), args.source_file)
        examples = of_task.examples(args.task, kind, args.examples)
    else:
        examples = read_examples(args.source_file)[: args.examples]
    prompts = target.tokenizer([args.prefix + example.source for example in examples]).input_ids
    rivals = theirs(args, target.model.start_token is None)
    report(race(contestants | rivals, prompts, args.repeats))


if __name__ == "__main__":
    main()
