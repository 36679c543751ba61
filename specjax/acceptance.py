"""The analytic acceptance rate of a drafter.

See docs/methods/speculative_sampling.md, "Measuring acceptance".
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.api import Generator
from specjax.contracts.context import Context, Options
from specjax.contracts.logits_processor import bind_processors
from specjax.data.batching import Batch, Prompt
from specjax.decoding.state import Generation
from specjax.decoding.strategy import autoregressive
from specjax.loading import LoadedModel
from specjax.models.base import LanguageModel
from specjax.models.vocabularies import share_vocabulary
from specjax.runtime import processes
from specjax.runtime.errors import UserError
from specjax.sampling import adjust, argmax


@functools.partial(jax.jit, static_argnames="models")
def _overlaps(
    models: tuple[LanguageModel, LanguageModel],
    params: tuple[Any, Any],
    prompt: jax.Array,
    prompt_length: jax.Array,
    context: Context,
) -> jax.Array:
    """sum_x min(p, q) [B, L] after every prefix of a context's tokens [B, L]."""
    tokens, sampling, logits = context.tokens, context.options.sampling, []
    # All tokens but the first count as drafted, each with the text before it.
    settings = bind_processors(context, models[0].info.vocab_size)
    path = jnp.broadcast_to(tokens[:, None, 1:], (*tokens.shape, tokens.shape[1] - 1))
    for model, weights in zip(models, params, strict=True):
        cache, _ = model.start(weights, prompt, prompt_length, tokens.shape[1])
        # A decoder-only cache already holds the prompt: feed everything again from the start.
        cache = cache.replace(length=jnp.zeros_like(prompt_length))
        own = model.extend(weights, tokens, cache)[0].logits
        logits.append(settings.process_paths(own, path, jnp.arange(tokens.shape[1])))
    if sampling.greedy:
        return (argmax(logits[0]) == argmax(logits[1])).astype(jnp.float32)
    return jnp.sum(jnp.minimum(*(adjust(of_model, sampling) for of_model in logits)), axis=-1)


@dataclasses.dataclass(frozen=True)
class Written:
    """Text that a target generated, batch by batch, to measure drafters on."""

    options: Options
    batches: list[tuple[Batch, Generation]]


def write(
    target: LoadedModel,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int = 64,
    batch_size: int = 16,
    bucket: int = 16,
    seed: int = 0,
    **drawing: float,
) -> Written:
    """Generates the target's text for prompts under sampling fields: `temperature`, ...

    Raises:
      UserError: when it is guided, or a field is unknown or out of range.
    """
    if "guidance_scale" in target.settings:
        raise UserError(
            f"guidance_scale is {target.settings['guidance_scale']:g}; it must be None: acceptance"
            " is measured on texts read once"
        )
    baseline = Generator(
        target, strategy=autoregressive(**drawing), max_new_tokens=max_new_tokens, bucket=bucket
    )
    batches = []
    for start in range(0, len(prompts), batch_size):
        batch = baseline.batch(prompts[start : start + batch_size], batch_size, first=start)
        batches.append((batch, baseline.run(batch, baseline.keys(batch, seed))))
    return Written(baseline.options, batches)


def acceptance_on(written: Written, target: LoadedModel, drafter: LoadedModel) -> tuple[float, int]:
    """Mean of sum_x min(p, q) over the target's text, and its number of tokens."""
    models = share_vocabulary({"target": target.model, "drafter": drafter.model})
    total, count = 0.0, 0
    for batch, made in written.batches:
        beta = _overlaps(
            (models["target"], models["drafter"]),
            (target.params, drafter.params),
            batch.tokens,
            batch.length,
            _context(written.options, target.model, batch, made),
        )
        # The distribution after position i is that of the token at i + 1.
        place = np.arange(made.tokens.shape[1])[None] + 1
        begin, length = np.asarray(made.begin)[:, None], np.asarray(made.length)[:, None]
        inside = (place >= begin) & (place < length)
        total += float(np.sum(processes.whole(beta).astype(np.float64) * inside))
        count += int(inside.sum())
    return total / max(count, 1), count


def _context(options: Options, target: LanguageModel, batch: Batch, made: Generation) -> Context:
    """The rows of a decode with their first token committed, and nothing else."""
    prompt, length = jnp.asarray(batch.tokens), jnp.asarray(batch.length)
    if target.info.start_token is None:
        prompt, length = prompt[:, :0], jnp.zeros_like(length)
    first, none = jnp.ones_like(made.begin), jnp.zeros_like(made.begin)
    limit = made.begin + jnp.asarray(batch.limit)
    return Context(prompt, length, made.tokens, first, made.begin, limit, none, none > 0, options)


def analytic_acceptance(
    target: LoadedModel, drafter: LoadedModel, prompts: list[list[int]], **settings: Any
) -> tuple[float, int]:
    """Mean of sum_x min(p, q) over text that the target generates, and its number of tokens.

    Target and drafter share the sampling settings (those of `write`) and those of generation. At
    temperature 0 this is how often their argmax agree. Leviathan et al. (2023), section 3.2 and
    Table 3.
    """
    return acceptance_on(write(target, prompts, **settings), target, drafter)
