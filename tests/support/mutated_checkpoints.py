"""A folder with random weights whose JSON changes, read by transformers and by specjax."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from mutations import Mutation, apply_fault
from torch_models import maker

import specjax

NEW_TOKENS, VOCABULARY, END = 12, 64, 5
LENGTHS = (3, 7, 20)  # ascending: PyTorch's dynamic rotation remembers the longest row so far
_MADE = np.random.default_rng(11)
PROMPTS = [_MADE.integers(6, VOCABULARY, length).tolist() for length in LENGTHS]

MIDDLES = {"t5gemma2": -1.0}
"""Of the last norm's weights, where a scale is what exceeds 1."""

LAST = (
    r"model\.norm|decoder\.(layer_)?norm|ln_f\.weight|(?<!\d\.)final_layer_norm"
    r"|decoder\.layers\.1\.final_layer_norm"  # BART and Marian have no norm behind their layers
)
"""Names of the last norm's weights."""

SEEDS = {
    "bart": 20, "led": 1, "marian": 7, "marian_two": 43, "pegasus": 6, "pegasus_x": 1,
    "switch_transformers": 4,
}  # fmt: skip
"""Where the usual one gives a model that says two tokens, whatever it reads."""


@torch.no_grad()
def randomize(model: Any, name: str = "") -> None:
    """Weights of a scale at which every part of the model moves the logits."""
    kind = model.config.model_type
    generator = torch.Generator().manual_seed(SEEDS.get(name or kind, 3))
    middle = MIDDLES.get(kind, 0.0)
    # The bias of the last norm is one of the logits where the embedding is tied.
    shift = 0.1 if model.config.is_encoder_decoder else 0.5
    for name, weight in model.named_parameters():
        if name.endswith("bias") and "relative" not in name:
            weight.normal_(0.0, shift if "norm" in name else 0.5, generator=generator)
        elif re.search(LAST, name):
            # Of either sign, or a tied model repeats the token just read for ever.
            weight.uniform_(middle - 2.0, middle + 2.0, generator=generator)
        elif "norm" in name or ".ln_" in name:
            weight.uniform_(0.5, 1.5, generator=generator)
        else:
            weight.normal_(0.0, 2.0 * weight.shape[-1] ** -0.5, generator=generator)


class Checkpoint:
    """A folder with random weights, whose JSON is written anew for every mutation."""

    def __init__(
        self, folder: Path, model_type: str, shape: dict[str, Any], name: str = ""
    ) -> None:
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        config = transformers.AutoConfig.for_model(model_type, **shape)
        self.folder, self.encoder = folder, config.is_encoder_decoder
        auto = transformers.AutoModelForSeq2SeqLM if self.encoder else None
        self.auto = auto or maker("causal")["AutoModelForCausalLM"]  # with Mistral 4
        model = self.auto.from_config(config)
        if shape.get("tie_word_embeddings") is False:  # transformers 5 ties every T5 that it makes
            head = model.get_output_embeddings()
            head.weight = torch.nn.Parameter(head.weight.detach().clone())
        randomize(model, name)
        model.save_pretrained(folder)
        self.config = json.loads((folder / "config.json").read_text("utf-8"))

    def mutate(self, mutation: Mutation) -> None:
        written = apply_fault(self.config, mutation)
        (self.folder / "config.json").write_text(json.dumps(written), "utf-8")
        generation = self.folder / "generation_config.json"
        generation.unlink(missing_ok=True)
        if mutation.generation is not None:
            generation.write_text(json.dumps(mutation.generation), "utf-8")

    def their_tokens(self) -> list[list[int]] | str:
        """Hugging Face's greedy tokens, one prompt at a time, or why it has none."""
        try:
            model = self.auto.from_pretrained(self.folder, dtype=torch.float32).eval()
            model = maker("bart")["add_hooks"](model)
            return [self._continued(model, prompt) for prompt in PROMPTS]
        except Exception as error:  # whatever it is, it decodes nothing
            return f"{type(error).__name__}: {error}"

    def _continued(self, model: Any, prompt: list[int]) -> list[int]:
        tokens = torch.tensor([prompt])
        made = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            do_sample=False,
            num_beams=1,  # a Generator searches no beams and says so
            max_new_tokens=NEW_TOKENS,
        )
        return made[0, 1 if self.encoder else len(prompt) :].tolist()

    def our_tokens(self, ignored: bool) -> list[list[int]] | str:
        """Our greedy tokens, or the sentence of the refusal."""
        try:
            target = specjax.load(self.folder, ignore_generation_config=ignored)
            strategy = specjax.autoregressive(temperature=0.0)
            decode = specjax.Generator(target, {}, strategy, max_new_tokens=NEW_TOKENS, bucket=32)
            return decode(PROMPTS).tokens
        except specjax.UserError as error:
            return str(error)
