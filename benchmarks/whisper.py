"""Whisper alone and with drafters, decoding apart from the encoder, strategies in turn.

    python benchmarks/whisper.py --target=openai/whisper-base --tiny=openai/whisper-tiny.en \
      --borrowing=runs/whisper_drafter/model --manifest=speech.jsonl --draft_tokens=8000

Each row of the manifest has `audio`, the path of a file of at most 30 seconds, and `text`. Encoder
and prefix run once for each clip and strategy; what is timed are the rounds of the decode, from the
same state, by all strategies one after another, `repeats` times. Printed are tokens per target
call, the ratio of the first strategy's seconds to each one's over all clips, its quartiles over
clips and repeats, texts that equal the first one's, and word error rates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import specjax
from specjax.api import Generator
from specjax.data.examples import examples
from specjax.data.sources import Source
from specjax.decoding.loop import advance_jitted, begin_jitted, finish
from specjax.decoding.summary import summarize
from specjax.hf.shared_encoder import with_encoder_of
from specjax.hf.speech import limit_draft_ids
from specjax.loading import LoadedModel
from specjax.metrics.metric import get_metric
from specjax.reporting.table import align_columns

TARGET = flags.DEFINE_string("target", "openai/whisper-base", "directory or hub id")
TINY = flags.DEFINE_string("tiny", "openai/whisper-tiny.en", "a drafter of another tokenizer")
BORROWING = flags.DEFINE_string("borrowing", "", "a drafter with the target's encoder; empty: none")
LAYERS = flags.DEFINE_list("layers", [], "drafters on the target's states, as eagle=DIR")
MANIFEST = flags.DEFINE_string("manifest", None, "JSONL with audio and text", required=True)
LENGTHS = flags.DEFINE_list("lengths", ["2", "3", "4", "5"], "draft lengths")
DRAFT_TOKENS = flags.DEFINE_integer("draft_tokens", 8000, "first ids that drafters draft; 0: all")
LANGUAGE = flags.DEFINE_string("language", "en", "of the speech")
WEIGHTS = flags.DEFINE_string("weights", "", "how models keep them, as bfloat16; empty: float32")
REPEATS = flags.DEFINE_integer("repeats", 2, "decodes of each clip by each strategy")
MOST = flags.DEFINE_integer("max_new_tokens", 128, "tokens of a text")


def main(argv: Sequence[str]) -> None:
    del argv
    target = specjax.load(TARGET.value, weights=WEIGHTS.value)
    target = specjax.in_language(target, LANGUAGE.value, "transcribe")
    clips = examples("transcribe", Source("json", MANIFEST.value))
    strategies = make_generators(target)
    results = {name: [] for name in strategies}
    texts: dict[str, list[str]] = {name: [] for name in strategies}
    statistics: dict[str, list[Any]] = {name: [] for name in strategies}
    for clip in clips:
        states = {name: begin_decode(one, clip.source) for name, one in strategies.items()}
        seconds = {name: [] for name in strategies}
        for turn in range(1 + REPEATS.value):  # the first compiles
            for name, one in strategies.items():
                took, generation = time_decode(one, states[name])
                if turn:
                    seconds[name].append(took)
                else:
                    statistics[name].append((generation, 1))
                    texts[name] += one.decode(one.rows(generation))
        for name, each in seconds.items():
            results[name].append(each)
        print(clip.source, {name: f"{np.median(each):.3f}" for name, each in seconds.items()})
    references = [clip.reference for clip in clips]
    print(format_table(strategies, results, texts, statistics, references))


def make_generators(target: LoadedModel) -> dict[str, Generator]:
    """The target alone, and with each drafter at each length."""
    drafters = {}
    for name, place in (("tiny", TINY.value), ("borrowing", BORROWING.value)):
        if place:
            drafter = specjax.load(place, weights=WEIGHTS.value)
            loaded = specjax.in_vocabulary_of(target, drafter, name=name)
            drafters[name] = with_encoder_of(target, loaded)
            if DRAFT_TOKENS.value:
                drafters[name] = limit_draft_ids(drafters[name], DRAFT_TOKENS.value)
    made = {"alone": Generator(target, max_new_tokens=MOST.value)}
    for name, drafter in drafters.items():
        for length in map(int, LENGTHS.value):
            made[f"{name} K={length}"] = Generator(
                target, {"drafter": drafter}, specjax.speculative(length), max_new_tokens=MOST.value
            )
    for part in LAYERS.value:
        kind, _, place = part.partition("=")
        drafters = {"drafter": specjax.load(place, weights=WEIGHTS.value)}
        for length in map(int, LENGTHS.value):
            strategy = specjax.strategy(drafter=kind, length=length)
            made[f"{kind} K={length}"] = Generator(
                target, drafters, strategy, max_new_tokens=MOST.value
            )
    return made


def begin_decode(generator: Generator, audio: str) -> Any:
    """The state before the first round: audio and prefix read."""
    batch = generator.batch(generator.encode([audio]), 1)
    return jax.block_until_ready(
        begin_jitted(*generator.arguments(batch, generator.keys(batch, 0)))
    )


def time_decode(generator: Generator, state: Any) -> tuple[float, Any]:
    """Seconds of all rounds from a state, which stays, and what they generate."""
    copy = jax.block_until_ready(jax.tree.map(jnp.copy, state))
    start = time.perf_counter()
    after = advance_jitted(generator.decoder, generator.params, copy, None)
    jax.block_until_ready(after.context.length)
    return time.perf_counter() - start, finish(after).replace(memory=())


def format_table(
    strategies: dict[str, Generator],
    results: dict[str, Any],
    texts: dict[str, list[str]],
    statistics: dict[str, list[Any]],
    references: list[Any],
) -> str:
    head = ["strategy", "tokens/call", "accepted", "ratio", "quartiles", "same", "WER", "s"]
    first, lines = np.array(results["alone"]), []
    for name, generator in strategies.items():
        seconds = np.array(results[name])
        low, high = np.quantile(first / seconds, (0.25, 0.75))
        made = summarize(generator.decoder, statistics[name])
        same = sum(map(str.__eq__, texts[name], texts["alone"]))
        wrong = 100 - get_metric("wer_basic")(texts[name], references)["word_accuracy"]
        rate = made.acceptance_rate
        lines.append(
            [
                name,
                f"{made.tokens_per_target_call:.2f}",
                "-" if rate is None else f"{rate:.2f}",
                f"{np.median(first, axis=1).sum() / np.median(seconds, axis=1).sum():.2f}",
                f"{low:.2f}-{high:.2f}",
                f"{same}/{len(references)}",
                f"{wrong:.1f}%",
                f"{np.median(seconds, axis=1).sum():.2f}",
            ]
        )
    return align_columns(head, lines)


if __name__ == "__main__":
    app.run(main)
