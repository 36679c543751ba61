"""`accelerator.py`'s contests in torch: `generate()` with an assistant against without one.

The shapes, prompts and planted texts of `planted.py` in bfloat16; needs torch and transformers.
"""

from __future__ import annotations

from typing import Any

import planted
import torch
from contests import Texts, Trial, Unit, time_run
from huggingface_generate import make_generate
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM


class Loaded:
    """The models of a pair with weights on torch's accelerator, or on the CPU without one."""

    def __init__(self, pair: planted.Pair, texts: Texts) -> None:
        self.pair, self.texts = pair, texts
        torch.manual_seed(0)
        shapes = {"target": pair.target, **pair.drafters}
        self.models = {name: _model(shape) for name, shape in shapes.items()}

    def contest(self, unit: Unit) -> Decodes:
        return Decodes(self, unit)


class Decodes:
    """Assisted generation of one prompt against plain generation, batch 1."""

    def __init__(self, loaded: Loaded, unit: Unit) -> None:
        target, self._drafter = (loaded.models[name] for name in ("target", unit.drafter))
        self._sides = [make_generate(target), make_generate(target, self._drafter, unit.length)]
        self._prompt = planted.prompt(loaded.pair, loaded.texts.prompt)
        self._unit, self._new = unit, loaded.texts.new
        for side in (0, 1):
            self.trial(side, 0)  # warms up

    def trial(self, side: int, repeat: int) -> Trial:
        """Milliseconds of a token behind the first: reading the prompt does not count."""
        vocabulary = self._drafter.config.vocab_size
        _count(self._drafter, planted.successors(vocabulary, self._unit.acceptance, seed=repeat))
        decode = self._sides[side]
        _synchronize()
        # The ids come back as a list, so the device is done when the clock is read.
        reading, _ = time_run(lambda: decode(self._prompt, 1))
        whole, tokens = time_run(lambda: decode(self._prompt, self._new))
        return Trial((whole - reading) / (self._new - 1) * 1e3, tokens)


def device_name() -> str:
    """What torch computes on."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@torch.inference_mode()
def _model(shape: planted.Shape) -> Any:
    """A model that counts; its weights are made where they are used."""
    config = AutoConfig.for_model(**planted.endless(shape))
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = kind.from_config(config, dtype=torch.bfloat16).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.normal_(std=planted.SMALL * weight.shape[-1] ** -0.5)
    table = model.get_input_embeddings().weight.normal_()
    # A T5 is tied by transformers 5 whatever its configuration says; here it must not be.
    model.get_output_embeddings().weight = torch.nn.Parameter(torch.empty_like(table), False)
    _count(model, planted.successors(config.vocab_size))
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


@torch.inference_mode()
def _count(model: Any, after: Any) -> None:
    """Makes the model go on from each token as `after` [V] says."""
    table = model.get_input_embeddings().weight
    rows = torch.as_tensor(planted.find_predecessors(after), device=table.device)
    model.get_output_embeddings().weight.copy_(table[rows])
