"""Trains models that read audio or images: decoders on states of a frozen encoder, or all.

Distil-Whisper (Gandhi et al. 2023, section 3.2) freezes the encoder of its teacher. So its states
are computed once for each file and stored in the workdir, and a step costs a decoder only. A model
with random parameters is trained whole; what its encoder reads is stored instead.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from specjax.contracts.decoder_prefix import choose_decoder_prefix
from specjax.contracts.env import Bound
from specjax.data.batching import round_up
from specjax.data.encoding import Encoder
from specjax.experiments.train.stored_prompts import StoredPrompts
from specjax.experiments.train.subject import MODEL, HeadsAndTrunk, Subject
from specjax.hf.input_reader import load_input_reader
from specjax.loading import LoadedModel
from specjax.models.base import LanguageModel, Params
from specjax.models.info import ForcedToken, has_one_size
from specjax.models.whisper import Whisper
from specjax.models.with_input import (
    NONE,
    InputModel,
    compute_encoder_states,
    drop_encoder,
    select_encoder,
)
from specjax.runtime.errors import UserError

INPUT = "(input)"
"""What is stored of files, in place of the checkpoint whose encoder gives states."""

DETECTED_ROWS = 8
"""Audio files whose language is detected in one call."""

PADDED_SIZES = 16
"""Sizes that prompts of any length are padded to, so that few programs are compiled."""


@dataclasses.dataclass(frozen=True)
class StoredReader:
    """Reads prompts that are stored as arrays: encoder states [S, D], or input [P, M]."""

    processor: Any  # transformers' processor of the files; None: there is none

    def __call__(self, where: str, prompt: Any) -> np.ndarray:
        return np.asarray(prompt, np.float32)


def extract_decoder(loaded: LoadedModel) -> LoadedModel:
    """The decoder of a loaded model that reads audio or images."""
    model, params = get_decoder(loaded.model), drop_encoder(loaded.params)
    reader = StoredReader(loaded.extractor and loaded.extractor.processor)
    return dataclasses.replace(loaded, model=model, params=params, extractor=reader)


def get_decoder(model: LanguageModel) -> LanguageModel:
    """The decoder of a model that reads audio or images; others as they are."""
    return model.with_encoder(NONE) if isinstance(model, InputModel) else model


def check_one_encoder(start: LoadedModel, target: LoadedModel | None) -> None:
    """Refuses a model of audio or images whose encoder differs from its target's.

    A drafter on the target's states has none.

    Raises:
      UserError: naming both fields.
    """
    if target is None or start.model.info.reads_states:
        return
    if start.model.info.input is None and target.model.info.input is None:
        return
    ours, theirs = select_encoder(start.params), select_encoder(target.params)
    alike = start.model.info.input == target.model.info.input and _alike(ours, theirs)
    if not alike or not jax.tree.all(jax.tree.map(_same, ours, theirs)):
        raise UserError(
            "config.model.checkpoint has another encoder than config.target; a model of audio or"
            " images is trained on the encoder states of its target, so they must be the same"
        )


def _alike(ours: Params, theirs: Params) -> bool:
    shapes = (jax.tree.map(jnp.shape, tree) for tree in (ours, theirs))
    return next(shapes) == next(shapes)


def _same(ours: jax.Array, theirs: jax.Array) -> bool:
    return bool(jnp.array_equal(ours.astype(theirs.dtype), theirs))


@dataclasses.dataclass(frozen=True)
class InputEncoder:
    """Encodes files into states or input, and texts into ids with the model's forced tokens."""

    texts: Encoder
    whole: LoadedModel  # whose encoder it is
    writer: LoadedModel  # the decoder that detects languages
    stored: StoredPrompts
    encoded: bool  # states are stored, not input

    def prompts(self, sources: Sequence[str]) -> Sequence[np.ndarray]:
        """Encoder states [S, D], or input [P, M], of files."""
        return self.stored(sources, self._compute)

    def outputs(self, sources: Sequence[str], texts: Sequence[str]) -> list[list[int]]:
        """Ids of the outputs to learn, the forced tokens before each and EOS after it."""
        before = " " * isinstance(self.whole.model, Whisper)  # as its transcripts begin
        return self.with_heads(
            sources, self.texts.plain_outputs([before + text.strip() for text in texts])
        )

    def with_heads(
        self, sources: Sequence[str], outputs: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """Outputs with the forced tokens of each before it."""
        heads = self.heads(sources)
        return [[*head, *output] for head, output in zip(heads, outputs, strict=True)]

    def heads(self, sources: Sequence[str]) -> list[list[int]]:
        """The forced tokens of each file; detects a language if needed."""
        model, params = self.writer.model, self.writer.params
        forced = model.info.prefix
        if not model.info.open_prefix:
            return [list(model.info.first_prefix[1:])] * len(sources)
        found, states = [], self.prompts(sources)
        for first in range(0, len(sources), DETECTED_ROWS):
            rows = [states[i] for i in range(first, min(first + DETECTED_ROWS, len(sources)))]
            filled = np.stack([*rows, *rows[-1:] * (DETECTED_ROWS - len(rows))])
            heads = np.asarray(_detect_prefix(model, forced, params, filled.astype(np.float32)))
            found += heads[: len(rows), 1:].tolist()
        return found

    def _compute(self, source: str) -> np.ndarray:
        given = self.whole.extractor("prompt", source)
        if not self.encoded:
            return given
        return encode_padded(self.whole.model, self.whole.params, given)


def encode_padded(model: Any, params: Params, given: np.ndarray) -> np.ndarray:
    """Encoder states [S, D] of one prompt [P, M], which is padded to one of a few sizes."""
    shape, size = model.config.input, len(given)
    step = -(-shape.count // PADDED_SIZES)
    padded = np.zeros((1, min(round_up(size, step), shape.count), shape.width), np.float32)
    padded[0, :size] = given
    states = compute_encoder_states(model, params, padded, np.array([size], np.int32))
    return np.asarray(states[0, : shape.count_states(size)])


@functools.partial(jax.jit, static_argnames=("model", "forced"))
def _detect_prefix(
    model: LanguageModel, forced: tuple[ForcedToken, ...], params: Params, states: jax.Array
) -> jax.Array:
    length = jnp.full(len(states), states.shape[1])
    cache, _ = model.start(params, states, length, len(forced))
    return choose_decoder_prefix(Bound(model, params), cache, forced)


@dataclasses.dataclass(frozen=True)
class WithEncoder:
    """A trained decoder that is saved together with its frozen encoder."""

    decoder: Subject
    whole: LoadedModel  # before training

    @property
    def start(self) -> LoadedModel:
        return self.decoder.start

    @property
    def params(self) -> Params:
        return self.decoder.params

    @property
    def changes_model(self) -> bool:
        return self.decoder.changes_model

    def model_params(self, params: Params) -> Params:
        return self.decoder.model_params(params)

    def save(self, params: Params, workdir: Path) -> list[Path]:
        whole = {**select_encoder(self.whole.params), **self.model_params(params)}
        place = workdir / MODEL
        dataclasses.replace(self.whole, params=whole).save(place)
        if isinstance(self.decoder, HeadsAndTrunk):
            return [*self.decoder.save_heads(params, workdir), place]
        return [place]


@dataclasses.dataclass(frozen=True)
class InputParts:
    """Models for training on stored states or input, and what encodes files into these."""

    start: LoadedModel  # or a drafter on the target's states
    target: LoadedModel | None
    encoder: InputEncoder

    def with_encoder(self, subject: Subject) -> Subject:
        """The trained subject, a decoder saved together with the encoder.

        What reads the states of a target is saved alone, and so is a model that is trained whole.
        """
        frozen = self.encoder.encoded and subject.changes_model
        return WithEncoder(subject, self.encoder.whole) if frozen else subject


def make_input_parts(
    config: ConfigDict,
    texts: Encoder,
    start: LoadedModel,
    target: LoadedModel | None,
    workdir: Path,
) -> InputParts | None:
    """The initial model and its target for training, with their encoder; None for text models.

    Of models that read audio or images the decoders are trained, of one with random parameters all.
    A drafter on the target's states stays as it is.

    Raises:
      UserError: when their encoders differ, or the workdir has states of another one.
    """
    reads_states = start.model.info.reads_states
    encoded = reads_states or not config.model.shape
    if encoded:
        check_one_encoder(start, target)
    whole = target if target is not None and reads_states else start
    model = whole.model
    if not isinstance(model, InputModel):
        return None
    for side in ("train", "validation"):
        if config[side].prefix:
            given = f"config.{side}.prefix is {config[side].prefix!r}"
            raise UserError(f"{given}; it must be empty for a model that reads audio or images")
    if not encoded:
        return _train_whole(texts, start, target, workdir)
    own = "" if reads_states else config.model.checkpoint
    stored = StoredPrompts(workdir, own or config.target, model.config.encoder_width)
    decoder = target and extract_decoder(target)
    start = start if reads_states else extract_decoder(start)
    encoder = InputEncoder(texts, whole, decoder or start, stored, encoded=True)
    return InputParts(start, decoder, encoder)


def _train_whole(
    texts: Encoder, start: LoadedModel, target: LoadedModel | None, workdir: Path
) -> InputParts:
    """Parts to train a model together with its encoder.

    Raises:
      UserError: when there is a target, which would read other prompts, or prompts have no size.
    """
    if target is not None:
        raise UserError(
            "config.model.shape describes a model that reads audio or images, which is trained with"
            " its encoder; config.target must be empty, or config.model.checkpoint have its encoder"
        )
    given = start.model.info.input
    if given is None:
        raise ValueError("the model reads tokens; it needs no stored input")
    if not has_one_size(given):
        raise UserError(
            f"config.model.shape describes a model that reads {given}, of any length; with its"
            " encoder a model is trained on audio or images of one size only"
        )
    stored = StoredPrompts(workdir, INPUT, given.width)
    extractor = load_input_reader(None, given)
    whole = dataclasses.replace(start, extractor=extractor)
    start = dataclasses.replace(start, extractor=StoredReader(extractor.processor))
    return InputParts(start, None, InputEncoder(texts, whole, start, stored, encoded=False))
