"""Drafters on the states of a speech target: audio for prompts, several tokens before the text.

The target is the golden Whisper with larger weights, so that its transcripts vary. It detects the
language of each row; in some tests other text precedes the audio.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import first_state, one_round
from feature_drafters import count_different_slots, read_whole
from golden_models import GOLDEN
from ml_collections import ConfigDict
from parallel_heads import heads_on_target

import specjax
from specjax.contracts.registry import OBJECTIVES
from specjax.data.pipeline import pad_batch
from specjax.decoding.strategy import Strategy
from specjax.drafting.dflash import DFlash
from specjax.drafting.eagle import Eagle
from specjax.drafting.p_eagle import PEagle
from specjax.experiments.train.feature_drafter import adopt_target
from specjax.experiments.train.model import make_model_shape
from specjax.experiments.train.objective import make_frozen
from specjax.experiments.train.subject import make_subject
from specjax.loading import LoadedModel
from specjax.models.eagle import Eagle as EagleModel
from specjax.models.whisper import Whisper
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, train_step

ROWS, FRAMES, MELS, HEAD = 4, 100, 6, 4
LIMIT, STEPS, WIDTH = 12, 60, 16
LARGER = 2.0
SHAPES = {
    "eagle": {"model_type": "eagle_t5"},
    "p_eagle": {"model_type": "p_eagle_t5", "num_decoder_layers": 1},
    "dflash": {"model_type": "dflash_t5", "num_decoder_layers": 1, "block_size": 4,
               "markov_rank": 6, "markov_head_type": "vanilla"},
}  # fmt: skip
"""The last one has a correction, which `dspark` reads and `dflash` does not."""


@functools.cache
def target() -> LoadedModel:
    loaded = specjax.load(GOLDEN / "whisper")
    params = jax.tree.map(lambda x: LARGER * x, loaded.params)
    speech = dataclasses.replace(loaded.model.config.speech, previous=88)
    model = Whisper(dataclasses.replace(loaded.model.config, speech=speech))
    return dataclasses.replace(loaded, model=model, params=params)


@functools.cache
def audio() -> list[np.ndarray]:
    """Log-mel features [M, P] of each row, with spectra of their own."""
    rng = np.random.default_rng(1)
    spectrum = 2.0 * rng.normal(size=(ROWS, MELS, 1))
    return list((spectrum + rng.normal(size=(ROWS, MELS, FRAMES))).astype(np.float32))


@functools.cache
def transcripts() -> list[list[int]]:
    return transcribe_clips(Strategy())[0]


def transcribe_clips(strategy: Strategy, drafter: LoadedModel | None = None, **tables: Any):
    """The transcripts and the number of accepted tokens."""
    drafters = {"drafter": drafter} if drafter else {}
    generator = specjax.Generator(target(), drafters, strategy, tables=tables, max_new_tokens=LIMIT)
    found = generator(audio())
    return found.tokens, found.statistics.accepted


def initialize_drafter(kind: str) -> LoadedModel:
    """A drafter before training, with what it has from the target."""
    model, words = target().model, {"draft_vocab_size": 60, **SHAPES[kind]}
    ends = {"eos_token_id": model.info.eos[0], "pad_token_id": model.info.pad}
    shape = ConfigDict({"shape": words})
    made = make_model_shape(shape, model.info.vocab_size, ends, model).adapt_to(model)
    drawn = LoadedModel(made, jax.jit(made.init)(jax.random.key(0)))
    return adopt_target(drawn, target(), map(np.array, transcripts()))


@functools.cache
def train_drafter(kind: str) -> tuple[LoadedModel, list[float]]:
    """The drafter after some steps on the target's transcripts, and their losses."""
    entry, start = OBJECTIVES[kind], initialize_drafter(kind)
    objective = entry.cls(**entry.example)
    subject = make_subject(objective, start, 0)
    setup = Setup(start.model, objective, Optimizer(STEPS, 1e-2))
    frozen = make_frozen(objective, start, target())
    heads = language_heads()
    rows = [
        (one.T, [*head, *row]) for one, head, row in zip(audio(), heads, transcripts(), strict=True)
    ]
    info = target().model.info
    batch = pad_batch(rows, 4, info.start_token, info.pad, forced=HEAD - 1)
    state, losses = setup.start(subject.params), []
    for _ in range(STEPS):
        state, report = train_step(setup, state, frozen, batch)
        losses.append(float(report["loss"]))
    return LoadedModel(start.model, subject.model_params(state.params)), losses


def language_heads() -> list[list[int]]:
    """The tokens after the start token before each transcript."""
    generator = specjax.Generator(target(), max_new_tokens=LIMIT)
    batch = generator.batch(generator.encode(audio()), ROWS)
    made = generator.run(batch, generator.keys(batch, 0))
    return np.asarray(made.tokens)[:, 1:HEAD].tolist()


EAGLE = specjax.strategy(drafter="eagle", length=3)
STRATEGIES = {
    "eagle_chain": ("eagle", EAGLE),
    "eagle_tree": ("eagle", specjax.strategy(drafter="eagle", widths=(3, 2, 1), nodes=6)),
    "dflash_chain": ("dflash", specjax.strategy(drafter="dflash", length=3)),
    "dflash_nodes": ("dflash", specjax.strategy(drafter="dflash", length=3, nodes=6)),
    "dspark": ("dflash", specjax.strategy(drafter="dspark", length=3)),
    "p_eagle": ("p_eagle", specjax.strategy(drafter="p_eagle", length=3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_the_targets_own_transcripts_are_written(name):
    kind, strategy = STRATEGIES[name]
    assert len(set(map(tuple, transcripts()))) == ROWS
    tokens, accepted = transcribe_clips(strategy, train_drafter(kind)[0])
    assert tokens == transcripts() and accepted > ROWS * LIMIT / 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eagle", "dflash"])
def test_training_lowers_the_loss_and_more_tokens_are_accepted(kind):
    drafter, losses = train_drafter(kind)
    strategy = specjax.strategy(drafter=kind, length=3)
    _, before = transcribe_clips(strategy, initialize_drafter(kind))
    _, after = transcribe_clips(strategy, drafter)
    assert losses[-1] < losses[0] / 2 and after > before + ROWS


@pytest.mark.slow
@pytest.mark.parametrize("sequential", [False, True])
def test_heads_read_the_states_of_a_speech_target(sequential):
    fields = {"drafter": "hydra"} if sequential else {"drafter": "medusa", "model": "target"}
    heads = heads_on_target(3, WIDTH, sequential)
    tokens, _ = transcribe_clips(specjax.strategy(**fields, length=3), heads=heads)
    assert tokens == transcripts()


@functools.partial(jax.jit, static_argnames="models")
def read_again(models, params, context, frames):
    """The drafter's cache of the whole text, by one call of the target and one of its own."""
    _, (_, drafter) = models
    _, _, cache = read_whole(models, params, context, frames)
    if isinstance(drafter, EagleModel):
        _, cache = drafter.extend(params["drafter"], context.tokens, cache)
    return cache


def states(kind: str, strategy: Strategy):
    """Wrong slots under the pointer, and the state, before every round and after the last.

    Rows have no previous text, or some of different lengths.
    """
    models = (("target", target().model), ("drafter", train_drafter(kind)[0].model))
    params = {"target": target().params, "drafter": train_drafter(kind)[0].params}
    made = strategy.decoder(models, LIMIT)
    frames = jnp.stack([one.T for one in audio()]), jnp.full(ROWS, FRAMES)
    keys, limit = jax.random.split(jax.random.key(0), ROWS), jnp.full(ROWS, LIMIT)
    previous = jnp.asarray([[88, 5, 6, 7, 8, 9]] * ROWS, jnp.int32), jnp.array([0, 6, 3, 1])
    options = strategy.options().replace(previous=previous)
    state = first_state(made, params, *frames, keys, limit, options)
    while True:
        cache = state.caches["drafter"]
        wrong = count_different_slots(
            cache, read_again(models, params, state.context, frames), cache.length
        )
        yield wrong, state
        if not bool(state.context.active.any()):
            return
        state = one_round(made, params, state)


AUDITED = {
    "eagle": Eagle(3),
    "eagle_tree": Eagle(widths=(2, 2, 1), nodes=6),
    "p_eagle": PEagle(3),
    "dflash": DFlash(3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITED)
def test_after_every_round_trusted_slots_are_of_the_targets_states(name):
    """From the first one on: those of the previous text and of the decoder prefix too."""
    seen = list(states(name.removesuffix("_tree"), Strategy(AUDITED[name])))
    assert len(seen) > 3 and not any(wrong for wrong, _ in seen)
    first = seen[0][1]
    length = np.asarray(first.context.length)
    assert length.tolist() == [HEAD, HEAD + 6, HEAD + 3, HEAD + 1]
    assert np.asarray(first.caches["drafter"].length).tolist() == (length - 1).tolist()


@dataclasses.dataclass(frozen=True)
class Deaf(Eagle):
    """Wrong on purpose: reads nothing of the decoder prefix."""

    def start(self, env, caches, context, prompt):
        memory, caches = super().start(env, caches, context, prompt.replace(features=()))
        cache = caches[self.model].replace(length=context.length - 1)
        return memory, {**caches, self.model: cache}


@pytest.mark.slow
def test_the_audit_sees_a_prefix_that_was_not_read():
    assert all(wrong for wrong, _ in states("eagle", Strategy(Deaf(3))))


@pytest.mark.slow
def test_long_audio_with_previous_text_is_transcribed_as_without_drafts():
    timed = specjax.in_language(target(), timestamps=True)
    long = [np.concatenate(audio()[:2], axis=1), np.concatenate(audio()[2:], axis=1)]
    plain, drafted = (
        specjax.transcribe(
            specjax.Generator(timed, drafters, strategy, max_new_tokens=8),
            long, batch_size=2, condition_on_prev_tokens=True,
        )
        for drafters, strategy in (({}, None), ({"drafter": train_drafter("eagle")[0]}, EAGLE))
    )  # fmt: skip
    assert drafted.segments == plain.segments and drafted.texts == plain.texts
    assert drafted.statistics.accepted > 0
