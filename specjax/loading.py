"""Loads models from checkpoints: `specjax.load`, its result, and quantized copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jax.sharding import Mesh

from specjax.checks import check_dictionary, check_integer, parse_dtype, parse_weights
from specjax.hf import huggingface
from specjax.hf.families.generation import beams_in, settings_in
from specjax.hf.input_reader import load_input_reader
from specjax.hf.languages import check_one_language, language_generation
from specjax.hf.speech_prompts import set_languages
from specjax.hf.tokenizer import load_tokenizer
from specjax.logits.settings import parse_settings
from specjax.models.base import LanguageModel, Params
from specjax.models.canary import Canary
from specjax.models.quantized_weights import quantize_params
from specjax.parallel import padding
from specjax.parallel.sharding import placement
from specjax.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A model with its parameters and, when it has one, its tokenizer."""

    model: LanguageModel
    params: Params
    tokenizer: Any = None
    name: str = "model"
    mesh: Mesh | None = None  # None: on one device
    ways: int = 0  # devices of the mesh's `model` axis that share it; 0: all, 1: each has all of it
    own_tokenizer: Any = None  # of a model in the ids of another vocabulary (`in_vocabulary_of`)
    generation: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of its file
    extractor: Any = None  # of a model that reads audio or images: these to input features
    original_config: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # its config.json

    @property
    def settings(self) -> dict[str, Any]:
        """The generation settings that its decodes apply."""
        return parse_settings(settings_in(self.generation), f"{self.name}: ")

    @property
    def beams(self) -> int:
        """Number of beams in its file, which only a beam search uses."""
        return beams_in(self.generation)

    def save(self, folder: str | Path) -> None:
        """Writes a directory that `load` and transformers' `from_pretrained` read.

        Raises:
          UserError: saying why nothing was written.
        """
        if self.own_tokenizer is not None:
            raise UserError(f"model {self.name!r} is in another model's ids; save it as it was")
        huggingface.save(
            folder,
            self.model,
            self.params,
            self.tokenizer,
            self.generation,
            self.original_config,
            self.extractor and self.extractor.processor,
        )


def load(
    name: str | Path,
    dtype: Any = jnp.float32,
    *,
    weights: str = "",
    mesh: Mesh | None = None,
    ways: int = 0,
    pad_heads: bool = False,
    fully_sharded: bool = False,
    ignore_generation_config: bool = False,
    generation: Mapping[str, Any] | None = None,
    source_language: str = "",
    target_language: str = "",
) -> LoadedModel:
    """Loads a model and its tokenizer from a Hugging Face directory, hub id or GGUF file.

    `dtype` is that of weights and arithmetic: float32 on CPU, bfloat16 on TPU and GPU; `weights`
    "int8", "int4" or "int4:64" store kernels in fewer bits (`quantized_weights`), "bfloat16" stores
    kernels and embeddings as most checkpoints are published, under float32 arithmetic, which reads
    half the bytes (on one device). On a `mesh`
    (`specjax.make_mesh`) weights go from the files straight to their shards: over all devices of
    its `model` axis, or with `ways=1` whole to every device, which suits small drafters, or over
    the part that the mesh was made with. `pad_heads` adds heads of zeros where these do not divide:
    same tokens, and their weights are split too. `fully_sharded` splits over its `data` axis too.

    A target's decodes apply the settings of its `generation_config.json`, changed by `generation`
    as `{"min_length": None}` (docs/methods/generation_settings.md). Unsupported settings are
    refused; `num_beams` is for a `BeamGenerator`, and a `Generator` notes that it has no beams.
    `ignore_generation_config` drops all but its special tokens.
    `source_language` of prompts and `target_language` of texts are codes of the tokenizer, such as
    NLLB's eng_Latn; empty: as saved, and as in `generation`. A Canary's are those of the audio and
    of its text, such as "de"; empty: English, and that of the audio.

    Raises:
      UserError: when something is missing or does not fit.
    """
    if not isinstance(name, (str, Path)) or not str(name):
        raise UserError(f"name is {name!r}; it must be a model directory or hub id")
    if not isinstance(mesh, Mesh | None):
        raise UserError(f"mesh is {mesh!r}; it must be what specjax.make_mesh returns, or None")
    check_integer("ways", ways, 0)
    parse_weights(weights, mesh=mesh)
    where = None if mesh is None else placement(mesh, ways, fully_sharded)
    check_dictionary("generation", generation)
    options = {"ignore_generation_config": ignore_generation_config, "generation": generation}
    checkpoint = huggingface.load(name, parse_dtype(dtype), where, weights=weights, **options)
    check_one_language(target_language, generation)
    tokenizer, model, fields = _set_languages(checkpoint, source_language, target_language)
    params = checkpoint.params
    # A user's changes are not errors of the file.
    file = name if generation else huggingface.generation_file(checkpoint.path)
    parse_settings(settings_in(fields), f"{file}: ")
    if mesh is not None and pad_heads:
        model, params = padding.pad_heads(model, params, mesh, ways)
    extractor = load_input_reader(checkpoint.path, model.info.input)
    original = checkpoint.original_config
    return LoadedModel(
        model, params, tokenizer, str(name), mesh, ways, None, fields, extractor, original
    )


def _set_languages(
    checkpoint: huggingface.Checkpoint, source: str, target: str
) -> tuple[Any, LanguageModel, Mapping[str, Any]]:
    """The tokenizer, the model and its settings, with the languages of prompts and of texts.

    Raises:
      UserError: when there is no such language.
    """
    model, fields = checkpoint.model, checkpoint.generation
    vocabularies = {"vocab_size": model.info.vocab_size, "source_vocab": model.info.source_vocab}
    if isinstance(model, Canary):  # which hears the first one: the tokenizer reads no prompts
        tokenizer = load_tokenizer(checkpoint.path, **vocabularies)
        return tokenizer, set_languages(model, tokenizer, source, target), fields
    tokenizer = load_tokenizer(checkpoint.path, language=source, **vocabularies)
    return tokenizer, model, language_generation(fields, tokenizer, target)


def quantize(model: LoadedModel, weights: str) -> LoadedModel:
    """A copy of a loaded model with kernels in fewer bits and all other parameters shared.

    So a quantized drafter takes memory only for its kernels. `weights` is as for `load`.

    Raises:
      UserError: when weights are none that `load` takes, or do not fit the model.
    """
    small = parse_weights(weights, mesh=getattr(model, "mesh", None))
    params: Any = getattr(model, "params", None)
    if params is None:
        raise UserError(f"model is {model!r}; it must be what specjax.load returns")
    try:
        return dataclasses.replace(
            model, params=quantize_params(params, small) if small else params
        )
    except ValueError as error:
        raise UserError(str(error)) from None
