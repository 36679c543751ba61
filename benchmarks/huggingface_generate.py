"""`generate()` of transformers for benchmarks/huggingface.py: plain, prompt lookup, assisted.

A rival is spelled `generate`, `lookup:K` (prompt lookup of K tokens), `assisted:NAME:K` (the
config's drafter NAME drafts K tokens) or `assisted:NAME` (as many as transformers' defaults say).
A drafter of another tokenizer assists by universal assisted generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
)

ALLOWED = "generate, lookup:K, assisted:NAME or assisted:NAME:K"

DEFAULT_LENGTH, DEFAULT_THRESHOLD = 20, 0.4
"""What transformers 5 drafts at most, and the confidence below which it stops."""

Prompt = list[int] | np.ndarray
"""Token ids, or the pixels [C, H, W] of an image."""

Generate = Callable[[Prompt, int], list[int]]
"""New token ids from a prompt and the most new tokens."""


def parse_rival(text: str, drafters: Sequence[str]) -> tuple[str, str, int]:
    """The kind, drafter and draft length of a rival; 0 is the default length.

    Raises:
      SystemExit: when it is none of `ALLOWED`, or its drafter is none of the config's.
    """
    kind, *parts = text.split(":")
    name = parts.pop(0) if kind == "assisted" and parts else ""
    length = parts.pop(0) if kind != "generate" and parts else "0"
    needed = {"generate": True, "lookup": length != "0", "assisted": bool(name)}
    if parts or not needed.get(kind) or not length.isdecimal():
        raise SystemExit(f"huggingface: --rivals has {text!r}; allowed are {ALLOWED}")
    if name and name not in drafters:
        known = ", ".join(drafters) or "none"
        raise SystemExit(f"huggingface: --rivals has {text!r}; the config's drafters are {known}")
    return kind, name, int(length)


class Rivals:
    """The models of a config in torch, and how often the target has been called."""

    def __init__(self, places: Mapping[str, str], rivals: Sequence[str], threads: int) -> None:
        torch.set_num_threads(threads)
        drafters = [name for name in places if name != "target"]
        self._rivals = {rival: parse_rival(rival, drafters) for rival in rivals}
        used = {"target", *(name for _, name, _ in self._rivals.values() if name)}
        self.models = {name: load_model(places[name]) for name in used}
        self._tokenizers = {name: AutoTokenizer.from_pretrained(places[name]) for name in used}
        self.calls = 0
        self.models["target"].register_forward_pre_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.calls += 1

    def decoders(self) -> dict[str, Generate]:
        """How each rival decodes, by its spelling."""
        return {rival: self._decoder(*parts) for rival, parts in self._rivals.items()}

    def _decoder(self, kind: str, name: str, length: int) -> Generate:
        target = self.models["target"]
        if kind != "assisted":
            return make_generate(target, lookup=length)
        tokenizers = self._tokenizers["target"], self._tokenizers[name]
        shared = tokenizers[0].get_vocab() == tokenizers[1].get_vocab()
        threshold = 0.0 if length else DEFAULT_THRESHOLD
        return make_generate(
            target,
            self.models[name],
            length or DEFAULT_LENGTH,
            threshold,
            tokenizers=None if shared else tokenizers,
        )


def load_model(place: str) -> Any:
    """The float32 model of a directory or hub id."""
    config = AutoConfig.from_pretrained(place)
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    if config.model_type == "vision-encoder-decoder":
        kind = AutoModelForImageTextToText
    return kind.from_pretrained(place, dtype=torch.float32).eval()


def make_generate(
    target: Any,
    drafter: Any = None,
    length: int = 0,
    threshold: float = 0.0,
    *,
    lookup: int = 0,
    tokenizers: tuple[Any, Any] | None = None,
) -> Generate:
    """Greedy `generate()` of a prompt and of how many new tokens, on the target's device.

    With a `drafter` it drafts `length` tokens, or fewer where its confidence is below `threshold`;
    `tokenizers` are the target's and the drafter's where they differ. `lookup` tokens are copied
    from what matches the end of the text.
    """
    how: dict[str, Any] = {"assistant_model": drafter}
    if lookup:
        how = {"prompt_lookup_num_tokens": lookup}
    if tokenizers:
        how |= dict(zip(("tokenizer", "assistant_tokenizer"), tokenizers, strict=True))

    @torch.inference_mode()
    def decode(given: Prompt, new: int) -> list[int]:
        if drafter is not None:
            settings = drafter.generation_config
            settings.num_assistant_tokens = length
            settings.num_assistant_tokens_schedule = "constant"
            settings.assistant_confidence_threshold = threshold
        inputs = model_inputs(given, target.device)
        out = target.generate(**inputs, max_new_tokens=new, do_sample=False, **how)
        return out[0, 1 if target.config.is_encoder_decoder else len(given) :].tolist()

    return decode


def model_inputs(prompt: Prompt, device: Any) -> dict[str, torch.Tensor]:
    """The arguments of `generate()` that hold a prompt."""
    if isinstance(prompt, np.ndarray):
        return {"pixel_values": torch.tensor(prompt[None], device=device)}
    ids = torch.tensor([prompt], device=device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
