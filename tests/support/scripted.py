"""Small models whose behavior is known by heart, for tests of the loops.

`PrefixModel` computes its logits from everything its cache holds below the fed position, so a
stale or missing slot changes them; `law` computes the same without any cache.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models.base import Cache, Output, PromptReading
from specjax.models.caches import move_slots
from specjax.models.info import ModelInfo

WIDTH = 6
POSITIONS = 512


def prefix_params(vocab_size: int, seed: int, scale: float = 1.5) -> dict[str, jax.Array]:
    """Random weights of a `PrefixModel`."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    return {
        "embedding": draw(vocab_size, WIDTH),
        "position": draw(POSITIONS, WIDTH),
        "out": draw(WIDTH, vocab_size) * scale,
    }


@dataclasses.dataclass(frozen=True)
class PrefixModel:
    """Logits are a fixed random function of the source and of every token so far.

    Its layers are one: an early exit is the whole, and nothing is left to resume.
    """

    vocab_size: int
    eos: tuple[int, ...] = ()
    start_token: int | None = 0
    forced: tuple[int, ...] = ()

    @property
    def info(self):
        begin = {"start_token": self.start_token, "forced": self.forced}
        return ModelInfo(self.vocab_size, 2, self.eos, **begin)

    def start(
        self, params, prompt, prompt_length, capacity, *, features=(), ahead=None, longest=None
    ):
        last = jnp.take_along_axis(prompt, prompt_length[:, None] - 1, axis=1)[:, 0]
        reading = PromptReading(params["embedding"][last])
        return self._cache(params, prompt, prompt_length, capacity), reading

    def _cache(self, params, prompt, prompt_length, capacity):
        batch = prompt.shape[0]
        tokens = jnp.full((batch, capacity), -1, jnp.int32)
        inside = jnp.arange(prompt.shape[1]) < prompt_length[:, None]
        if self.start_token is None:
            width = min(prompt.shape[1], capacity)
            tokens = tokens.at[:, :width].set(jnp.where(inside, prompt, -1)[:, :width])
            return Cache({"tokens": tokens, "source": jnp.zeros((batch, WIDTH))}, prompt_length - 1)
        source = jnp.sum(params["embedding"][prompt] * inside[..., None], axis=1)
        return Cache({"tokens": tokens, "source": source}, jnp.zeros_like(prompt_length))

    def extend(
        self, params, tokens, cache, *, at=None, position=None, visible=None, features=(), **whole
    ):
        size = tokens.shape[1]
        slot = cache.length[:, None] + jnp.arange(size)
        rows = jnp.arange(tokens.shape[0])[:, None]
        earlier = cache.data["tokens"]
        # Of a tree, nodes that were fed before these.
        first = cache.length[:, None] - (0 if visible is None else visible.shape[2] - size)
        before = jnp.arange(earlier.shape[1]) < first
        # A slot never written holds -1 and would poison the sum with NaN if it were read.
        known = jnp.where(
            earlier[..., None] >= 0,
            params["embedding"][earlier] * params["position"][: earlier.shape[1]],
            jnp.nan,
        )
        text = jnp.sum(jnp.where(before[..., None], known, 0.0), axis=1)
        place = params["position"][slot if position is None else position]
        seen = jnp.tril(jnp.ones((size, size))) if visible is None else visible.astype(jnp.float32)
        nodes = earlier[rows, first + jnp.arange(seen.shape[-1] - size)]
        nodes = jnp.concatenate([nodes, tokens], axis=1)
        state = text[:, None] + seen @ (params["embedding"][nodes] * place)
        state = jnp.tanh(state + cache.data["source"][:, None])
        logits = state @ params["out"]
        if at is not None:
            logits = jnp.take_along_axis(logits, at[..., None], axis=1)
        held = earlier.at[rows, slot].set(tokens, mode="drop")
        data = {**cache.data, "tokens": held}
        output = Output(logits, state, (state,) * len(features))
        return output, Cache(data, cache.length + size)

    def keep(self, cache, path, count):
        held = cache.data["tokens"]
        rows = jnp.arange(len(held))[:, None]
        nodes = held[rows, cache.length[:, None] + path]
        slot = cache.length[:, None] + jnp.arange(path.shape[1])
        slot = jnp.where(jnp.arange(path.shape[1]) < count[:, None], slot, held.shape[1])
        data = {**cache.data, "tokens": held.at[rows, slot].set(nodes, mode="drop")}
        return Cache(data, cache.length + count)

    def read_out(self, params, hidden):
        return hidden @ params["out"]

    def embed(self, params, tokens):
        return params["embedding"][tokens]

    def logits(self, params, source, prefix) -> np.ndarray:
        """Next-token logits [V] after the decoder tokens `prefix`, without a cache, in float64."""
        weights = {name: np.asarray(value, np.float64) for name, value in params.items()}
        state = np.zeros(WIDTH)
        if self.start_token is not None:
            state = weights["embedding"][list(source)].sum(axis=0)
        for place, token in enumerate(prefix):
            state = state + weights["embedding"][token] * weights["position"][place]
        return np.tanh(state) @ weights["out"]


class CachedPrefixModel(PrefixModel):
    """One whose cache also has the keys and values [B, 1, C, 4] of a layer, for others to read."""

    def _cache(self, params, prompt, prompt_length, capacity):
        cache = super()._cache(params, prompt, prompt_length, capacity)
        return self._with_keys(params, cache)

    def extend(self, params, tokens, cache, **how):
        output, cache = super().extend(params, tokens, cache, **how)
        return output, self._with_keys(params, cache)

    def keep(self, cache, path, count):
        own = [move_slots(one, cache.length, path) for one in cache.data["own"]]
        kept = super().keep(cache, path, count)
        return kept.replace(data={**kept.data, "own": own})

    def _with_keys(self, params, cache):
        keys = params["embedding"][cache.data["tokens"]][:, None, :, :4]
        return cache.replace(data={**cache.data, "own": [(keys, keys)]})


@dataclasses.dataclass(frozen=True)
class ScriptModel:
    """Greedy continuation is a fixed text: after t generated tokens it prefers script[t].

    Decoder-only; the prompt is one token. The preference does not depend on the tokens fed, so a
    drafter with another script disagrees exactly where the scripts differ.
    """

    script: tuple[int, ...]
    vocab_size: int = 10
    eos: tuple[int, ...] = (1,)
    start_token: int | None = 0
    peak: float = 5.0  # logit of the preferred token over the others
    peaks: tuple[float, ...] = ()

    @property
    def info(self):
        return ModelInfo(self.vocab_size, 2, self.eos, start_token=self.start_token)

    def start(
        self, params, prompt, prompt_length, capacity, *, features=(), ahead=None, longest=None
    ):
        embedding = jax.nn.one_hot(prompt[:, 0], self.vocab_size)
        return Cache({}, jnp.zeros_like(prompt_length)), PromptReading(embedding)

    def extend(self, params, tokens, cache, *, at=None, **whole):
        position = cache.length[:, None] + jnp.arange(tokens.shape[1])
        script = jnp.array(self.script + (2,) * POSITIONS)
        peaks = jnp.array(self.peaks + (self.peak,) * POSITIONS)
        logits = jax.nn.one_hot(script[position], self.vocab_size) * peaks[position][..., None]
        if at is not None:
            logits = jnp.take_along_axis(logits, at[..., None], axis=1)
        return Output(logits), Cache(cache.data, cache.length + tokens.shape[1])


@dataclasses.dataclass(frozen=True)
class TracedScript(ScriptModel):
    """A `ScriptModel` whose script and peaks are its parameters: one program serves all."""

    script: tuple[int, ...] = ()

    def extend(self, params, tokens, cache, *, at=None, **whole):
        position = cache.length[:, None] + jnp.arange(tokens.shape[1])
        chosen = jax.nn.one_hot(params["script"][position], self.vocab_size)
        logits = chosen * params["peaks"][position][..., None]
        if at is not None:
            logits = jnp.take_along_axis(logits, at[..., None], axis=1)
        return Output(logits), Cache(cache.data, cache.length + tokens.shape[1])


def trace_scripts(models, params):
    """The same models and parameters, with every `ScriptModel` as a `TracedScript`."""
    models, params = dict(models), dict(params)
    for name, model in models.items():
        if type(model) is ScriptModel:
            spare = POSITIONS - len(model.script) % POSITIONS
            size = len(model.script) + spare
            params[name] = {
                "script": jnp.array(model.script + (2,) * spare),
                "peaks": jnp.array((model.peaks + (model.peak,) * size)[:size]),
            }
            models[name] = TracedScript((), model.vocab_size, model.eos, model.start_token)
    return tuple(models.items()), params


def adjust_probabilities(
    logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float = 0.0,
    typical_p: float = 1.0, epsilon_cutoff: float = 0.0, eta_cutoff: float = 0.0,
) -> np.ndarray:  # fmt: skip
    """docs/methods/sampling.md written out once more, in float64, for one law."""
    logits = np.asarray(logits, np.float64) / temperature
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if top_k:
        order = order[:top_k]
    weights = np.exp(logits - max(logits[order]))
    distribution = np.zeros(len(logits))
    distribution[order] = weights[order] / weights[order].sum()
    kept, before = [], 0.0
    for token in order:
        if before < top_p or top_p >= 1:
            kept.append(token)
        before += distribution[token]
    out = np.zeros(len(logits))
    out[kept] = distribution[kept] / distribution[kept].sum()
    out = renormalize(out, out >= min_p * out.max())
    if typical_p < 1:
        out = renormalize(out, most_typical(out, typical_p))
    out = renormalize(out, (out >= epsilon_cutoff) | (out == out.max()))
    eta = min(eta_cutoff, math.sqrt(eta_cutoff) * math.exp(-entropy(out)))
    return renormalize(out, (out >= eta) | (out == out.max()))


def renormalize(distribution: np.ndarray, stays: np.ndarray) -> np.ndarray:
    """A law of the tokens that stay."""
    distribution = np.where(stays, distribution, 0.0)
    return distribution / distribution.sum()


def entropy(distribution: np.ndarray) -> float:
    return -sum(p * math.log(p) for p in distribution if p)


def most_typical(distribution: np.ndarray, mass: float) -> np.ndarray:
    """Tokens with a surprise nearest to the entropy, the last of which reaches this mass."""
    far = [abs(-math.log(p) - entropy(distribution)) if p else math.inf for p in distribution]
    sums, bound = 0.0, 0.0
    for token in sorted(range(len(distribution)), key=lambda i: far[i]):
        if sums < mass:
            bound = far[token]
        sums += distribution[token]
    return np.array(far) <= bound


def sequence_distribution(
    model, params, source, start, length, settings
) -> dict[tuple[int, ...], float]:
    """Probability of every output of at most `length` tokens (cut at EOS), enumerated."""
    distributions: dict[tuple[int, ...], float] = {}
    frontier = {(): 1.0}
    for _ in range(length):
        grown: dict[tuple[int, ...], float] = {}
        for text, mass in frontier.items():
            distribution = adjust_probabilities(
                model.logits(params, source, (*start, *text)), *settings
            )
            for token, p in enumerate(distribution):
                if p == 0.0:
                    continue
                into = distributions if token in model.eos else grown
                into[(*text, token)] = into.get((*text, token), 0.0) + mass * p
        frontier = grown
    return distributions | frontier


def chi_square(
    counts: dict[tuple[int, ...], int], distribution: dict[tuple[int, ...], float]
) -> float:
    """p-value of outputs under `law`; rare ones are pooled; 0 when an impossible one occurred."""
    from scipy.stats import chisquare

    if set(counts) - set(distribution):
        return 0.0
    total = sum(counts.values())
    cells = sorted((p * total, counts.get(text, 0)) for text, p in distribution.items())
    expected, observed, pool = [], [], [0.0, 0]
    for e, o in cells:
        pool = [pool[0] + e, pool[1] + o]
        if pool[0] >= 8.0:
            expected.append(pool[0])
            observed.append(pool[1])
            pool = [0.0, 0]
    expected[-1] += pool[0]
    observed[-1] += pool[1]
    scale = sum(observed) / sum(expected)
    return float(chisquare(observed, np.array(expected) * scale).pvalue)


def count_outputs(rows: list[list[int]]) -> dict[tuple[int, ...], int]:
    """How often each output occurred."""
    keyed = sorted(map(tuple, rows))
    return {text: len(list(group)) for text, group in itertools.groupby(keyed)}
