"""Trains decoders of speech models on states of a frozen encoder.

Distil-Whisper (Gandhi et al. 2023, section 3.2) freezes the encoder of its teacher. So its states
are computed once for each audio file and stored in the workdir, and a step costs a decoder only.
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
from specjax.data.encoding import Encoder
from specjax.experiments.train.encoder_states import EncoderStates
from specjax.experiments.train.subject import MODEL, HeadsAndTrunk, Subject
from specjax.loading import LoadedModel
from specjax.models.base import LanguageModel, Params
from specjax.models.info import ForcedToken
from specjax.models.whisper import (
    Whisper,
    WhisperDecoder,
    compute_encoder_states,
    drop_encoder,
    select_encoder,
)
from specjax.runtime.errors import UserError

DETECTED_ROWS = 8
"""Audio files whose language is detected in one call."""


@dataclasses.dataclass(frozen=True)
class StatesExtractor:
    """The prompts of a speech model's decoder, which are encoder states [S, D]."""

    def __call__(self, where: str, prompt: Any) -> np.ndarray:
        return np.asarray(prompt, np.float32)


def extract_decoder(loaded: LoadedModel) -> LoadedModel:
    """The decoder of a loaded speech model."""
    model, params = trained_part(loaded.model), drop_encoder(loaded.params)
    return dataclasses.replace(loaded, model=model, params=params, extractor=StatesExtractor())


def trained_part(model: LanguageModel) -> LanguageModel:
    """The trained part of a model: of a speech model its decoder."""
    return WhisperDecoder.from_model(model) if isinstance(model, Whisper) else model


def check_one_encoder(start: LoadedModel, target: LoadedModel | None) -> None:
    """Refuses a speech model whose encoder differs from its target's.

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
            "config.model.checkpoint has another encoder than config.target; a speech model is"
            " trained on the encoder states of its target, so they must be the same"
        )


def _alike(ours: Params, theirs: Params) -> bool:
    shapes = (jax.tree.map(jnp.shape, tree) for tree in (ours, theirs))
    return next(shapes) == next(shapes)


def _same(ours: jax.Array, theirs: jax.Array) -> bool:
    return bool(jnp.array_equal(ours.astype(theirs.dtype), theirs))


@dataclasses.dataclass(frozen=True)
class SpeechEncoder:
    """Encodes audio files into states, and texts into ids with the model's forced tokens."""

    texts: Encoder
    whole: LoadedModel  # whose encoder it is
    transcriber: LoadedModel  # the decoder that detects languages
    states: EncoderStates

    def prompts(self, sources: Sequence[str]) -> Sequence[np.ndarray]:
        """Encoder states [S, D] of audio files."""
        return self.states(sources, self._compute_states)

    def outputs(self, sources: Sequence[str], texts: Sequence[str]) -> list[list[int]]:
        """Ids of the outputs to learn, the forced tokens before each and EOS after it."""
        return self.with_heads(
            sources, self.texts.plain_outputs([" " + text.strip() for text in texts])
        )

    def with_heads(
        self, sources: Sequence[str], outputs: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """Outputs with the forced tokens of each before it."""
        heads = self.heads(sources)
        return [[*head, *output] for head, output in zip(heads, outputs, strict=True)]

    def heads(self, sources: Sequence[str]) -> list[list[int]]:
        """The forced tokens of each audio file; detects its language if needed."""
        model, params = self.transcriber.model, self.transcriber.params
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

    def _compute_states(self, source: str) -> np.ndarray:
        frames = self.whole.extractor("audio", source)[None]
        return np.asarray(compute_encoder_states(self.whole.model, self.whole.params, frames)[0])


@functools.partial(jax.jit, static_argnames=("model", "forced"))
def _detect_prefix(
    model: WhisperDecoder, forced: tuple[ForcedToken, ...], params: Params, states: jax.Array
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
class Speech:
    """Decoders of speech models for training, with the states of their shared encoder."""

    start: LoadedModel  # or a drafter on the target's states
    target: LoadedModel | None
    encoder: SpeechEncoder

    def with_encoder(self, subject: Subject) -> Subject:
        """The trained subject, a decoder saved together with the encoder.

        What reads the states of a target is saved alone.
        """
        return WithEncoder(subject, self.encoder.whole) if subject.changes_model else subject


def make_speech(
    config: ConfigDict,
    texts: Encoder,
    start: LoadedModel,
    target: LoadedModel | None,
    workdir: Path,
) -> Speech | None:
    """Decoders of the initial model and its target, and their encoder; None for text models.

    A drafter on the target's states stays as it is.

    Raises:
      UserError: when their encoders differ, or the workdir has states of another one.
    """
    check_one_encoder(start, target)
    reads_states = start.model.info.reads_states
    whole = target if target is not None and reads_states else start
    model = whole.model
    if not isinstance(model, Whisper):
        return None
    for side in ("train", "validation"):
        if config[side].prefix:
            given = f"config.{side}.prefix is {config[side].prefix!r}"
            raise UserError(f"{given}; it must be empty for a speech model")
    shape = model.config.encoder_positions, model.config.d_model
    own = "" if reads_states else config.model.checkpoint
    states = EncoderStates(workdir, own or config.target, shape)
    decoder = target and extract_decoder(target)
    start = start if reads_states else extract_decoder(start)
    encoder = SpeechEncoder(texts, whole, decoder or start, states)
    return Speech(start, decoder, encoder)
