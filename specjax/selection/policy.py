"""The policy: a small network that reads the target's embedding of a prompt and scores the arms.

Context-aware assistant selection, docs/methods/selection.md, "Policy": D inputs, two hidden layers
of tanh units, one logit for each arm; their softmax is the probability of choosing it. Letters: B
rows, D width of the embedding, k arms.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp

from specjax.data.batching import Batch
from specjax.hf.trees import load_tree, save_tree
from specjax.models.base import LanguageModel, Params
from specjax.models.layers import multiply
from specjax.models.shapes import get_parameter_shapes
from specjax.runtime.errors import UserError
from specjax.runtime.files import replacing_directory
from specjax.runtime.json_files import read_json, write_json
from specjax.selection.reward import Reward

SHAPE, WEIGHTS = "policy.json", "model.safetensors"
"""Files of a policy's folder."""

ENCODER_MEAN, LAST_PROMPT_STATE = SOURCES = ("encoder_mean", "last_prompt_state")
"""Kinds of embeddings: `LanguageModel.start` of the two kinds of models."""

LAYERS = ("first", "second", "out")


@dataclasses.dataclass(frozen=True)
class Policy:
    """The arms, inputs and training reward of a policy.

    Raises:
      ValueError: when a setting is unknown or out of range.
    """

    arms: tuple[str, ...]  # names of strategies, in the order of the logits
    source: str  # of the embedding, one of `SOURCES`
    width: int  # D
    reward: Reward = Reward()
    hidden: int = 512

    def __post_init__(self) -> None:
        if len(self.arms) < 2 or len(set(self.arms)) < len(self.arms):
            raise ValueError(f"arms is {self.arms!r}; it must be at least two different names")
        if self.source not in SOURCES:
            raise ValueError(f"source is {self.source!r}; it must be one of {', '.join(SOURCES)}")
        for field in ("width", "hidden"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} is {getattr(self, field)!r}; it must be at least 1")

    def init(self, key: jax.Array) -> Params:
        """Float32 parameters, uniform in +-1/sqrt(inputs) as the common default; zero biases."""
        sizes = (self.width, self.hidden, self.hidden, len(self.arms))
        keys = jax.random.split(key, len(LAYERS))
        return {
            name: {
                "kernel": jax.random.uniform(layer_key, (a, b), jnp.float32, -1, 1) * a**-0.5,
                "bias": jnp.zeros((b,)),
            }
            for name, layer_key, a, b in zip(LAYERS, keys, sizes[:-1], sizes[1:], strict=True)
        }


def logits(params: Params, embedding: jax.Array) -> jax.Array:
    """Logits [B, k] float32 of the arms for embeddings [B, D] float32."""
    first, second, out = (params[name] for name in LAYERS)
    hidden = jnp.tanh(multiply(embedding, first["kernel"]) + first["bias"])
    hidden = jnp.tanh(multiply(hidden, second["kernel"]) + second["bias"])
    return multiply(hidden, out["kernel"]) + out["bias"]


def check(policy: Policy, arms: Sequence[str], source: str, width: int) -> None:
    """Refuses a policy for other arms, or one that reads other embeddings.

    Raises:
      UserError: saying what does not match.
    """
    if tuple(arms) != policy.arms:
        raise UserError(
            f"arms is {', '.join(arms)}; the policy chooses among {', '.join(policy.arms)}, in"
            " this order"
        )
    if (source, width) != (policy.source, policy.width):
        raise UserError(
            f"the target gives embeddings {source} of width {width}; the policy reads"
            f" {policy.source} of width {policy.width}"
        )


def save(folder: str | Path, policy: Policy, params: Params) -> None:
    """Writes policy.json and model.safetensors into the folder, replacing earlier ones."""
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing_directory(folder) as partial:
        write_json(partial / SHAPE, dataclasses.asdict(policy))
        save_tree(params, partial / WEIGHTS)


def load(folder: str | Path) -> tuple[Policy, Params]:
    """Reads what `save` wrote.

    Raises:
      UserError: when the folder is not one of a policy, or is damaged.
    """
    folder = Path(folder)
    if not os.path.isfile(folder / SHAPE):
        raise UserError(f"policy {str(folder)!r} is not a folder with {SHAPE}")
    policy = _parse_policy(folder / SHAPE)
    shapes = get_parameter_shapes(policy)
    return policy, load_tree(folder / WEIGHTS, shapes, "weights", SHAPE)


def _parse_policy(file: Path) -> Policy:
    content = read_json(file)
    try:
        fields = {**content, "arms": tuple(content["arms"]), "reward": Reward(**content["reward"])}
        return Policy(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{str(file)!r} describes no policy: {error}") from None


def embedding_source(model: LanguageModel) -> tuple[str, int]:
    """The kind of a model's embeddings, one of `policy.SOURCES`, and their width D."""
    kind = LAST_PROMPT_STATE if model.info.start_token is None else ENCODER_MEAN
    return kind, model.config.d_model


def embeddings(target: LanguageModel, params: Params, batch: Batch) -> jax.Array:
    """Embeddings [B, D] float32 of a batch of prompts, by one prefill.

    A decode gets them from its own prefill (`LanguageModel.start`); this function is for queries
    whose outputs were generated before.
    """
    return _read(target, params, batch.tokens, batch.length)


@functools.partial(jax.jit, static_argnames="target")
def _read(target: LanguageModel, params: Params, tokens: jax.Array, length: jax.Array) -> jax.Array:
    return target.start(params, tokens, length, tokens.shape[1])[1].embedding
