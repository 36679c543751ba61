"""A tiny trained-looking pair on disk, for tests of jobs and of the API."""

from __future__ import annotations

from pathlib import Path

import jax

from specjax.data import grammar
from specjax.hf import huggingface
from specjax.hf.tokenizer import train_tokenizer
from specjax.models.t5 import T5, T5Config

TEXTS = 60


def corpus() -> list[grammar.Pair]:
    """The sentences that the tokenizer and the files are made of."""
    return grammar.pairs("train", TEXTS)


def write_pair(folder: Path, padding: int = 0) -> None:
    """Random `target` and `drafter` directories, and source, reference and n-gram text.

    The drafter's vocabulary is `padding` ids wider than the tokenizer's.
    """
    pairs = corpus()
    tokenizer = train_tokenizer([s for p in pairs for s in (p.source, p.target)], 300)
    for seed, (name, width) in enumerate((("target", 24), ("drafter", 12))):
        shape = T5Config(
            vocab_size=len(tokenizer) + seed * padding, d_model=width, d_kv=6, d_ff=2 * width,
            num_heads=2, num_layers=1, num_decoder_layers=2 - seed, tied=True, scale_outputs=True,
        )  # fmt: skip
        model = T5(shape)
        params = jax.tree.map(lambda x: x * 2.0, model.init(jax.random.key(seed)))
        huggingface.save(folder / name, model, params, tokenizer)
    for name, side in (("source.txt", "source"), ("reference.txt", "target")):
        lines = "".join(f"{getattr(pair, side)}\n" for pair in pairs)
        (folder / name).write_text(lines, "utf-8")
