"""Would a block drafter gain from a second call that reads the tokens drafted so far?

    python benchmarks/refreshed_blocks.py --target=t5-ende-target --drafters=runs/jetspec/model \\
      --source_file=val.en.gz --template='translate English to German: {}'

One call on masks gives the distributions of all places of a draft, so place k does not know which
tokens stand before it. A refreshed call puts them in place of the masks, one call per level of a
tree: JetSpec's page describes it, its repository does not have it (arXiv 2606.18394). Printed are
the acceptance of every place given that the tokens before it were accepted, and the greedy tokens
of a round, with masks and with the text's own tokens. A drafter that was not trained on blocks with
known tokens may be accepted less for it.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flags import add_prompt_flags, read_prompts

import specjax
from specjax.data.pipeline import pad_batch
from specjax.loading import LoadedModel
from specjax.models.base import Params
from specjax.models.correction import BlockLogits
from specjax.models.dflash import DFlash, DFlashModule
from specjax.models.layers import call
from specjax.models.on_target import Cross
from specjax.runtime.progress import progress
from specjax.training.feature_drafting import TEACHER, TRUNK
from specjax.training.objective import FrozenModel, TrainingBatch
from specjax.training.objectives.dflash import DFlashObjective


class RefreshedModule(DFlashModule):
    """A block that begins with tokens which are known, and goes on with masks."""

    known: jax.Array | None = None  # [B, A, R] tokens after the anchors

    def embed_block(self, pending: jax.Array, size: int) -> jax.Array:
        masked = super().embed_block(pending, size)
        if self.known is None or not self.known.shape[-1]:
            return masked
        tokens = self.embed(self.known)
        tokens = tokens if self.config.d_model == self.config.embedding_size else self.enter(tokens)
        return masked.at[..., 1 : 1 + self.known.shape[-1], :].set(tokens)


@dataclasses.dataclass(frozen=True)
class Refreshed(DFlash):
    """The drafter whose blocks begin with `count` known tokens."""

    count: int = 0

    def compute_block_logits(
        self,
        params: Params,
        tokens: jax.Array,
        features: jax.Array,
        cross: Cross | None,
        anchors: jax.Array,
        size: int,
        all_tokens: bool = False,
    ) -> BlockLogits:
        rows, blocks = anchors.shape
        at = (anchors[..., None] + jnp.arange(1, 1 + self.count)).reshape(rows, -1)
        known = jnp.take_along_axis(tokens, at, axis=1, mode="clip")
        module = RefreshedModule(self.config, known.reshape(rows, blocks, self.count))
        given = tokens, features, cross, anchors, size, all_tokens
        return call(module, "compute_block_logits", params, *given)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_prompt_flags(parser)
    parser.add_argument("--drafters", required=True, help="directories, with commas between")
    parser.add_argument("--examples", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--max_new_tokens", type=int, default=64)
    parser.add_argument("--anchors", type=int, default=16, help="blocks of a text")
    return parser.parse_args()


def write_texts(
    target: LoadedModel, prompts: list[str], args: argparse.Namespace
) -> list[TrainingBatch]:
    """Batches of the prompts and what the target answers greedily."""
    generator = specjax.Generator(target, max_new_tokens=args.max_new_tokens, bucket=16)
    answers = generator(prompts, batch_size=args.batch_size)
    ids = generator.encode(prompts)
    pairs = list(zip(ids, answers.tokens, strict=True))
    info = target.model.info
    return [
        pad_batch(pairs[first : first + args.batch_size], 16, info.start_token, info.pad)
        for first in range(0, len(pairs), args.batch_size)
    ]


def measure(
    target: LoadedModel, drafter: LoadedModel, batches: list[TrainingBatch], anchors: int
) -> dict[str, list[float]]:
    """Acceptance by place with masks and with known tokens, greedy and at temperature 1."""
    objective, model = DFlashObjective(anchors=anchors), drafter.model
    assert isinstance(model, DFlash)
    frozen = {
        TEACHER: FrozenModel(target.params, target.model),
        TRUNK: FrozenModel(drafter.params, model),
    }

    @functools.partial(jax.jit, static_argnums=0)
    def count_accepted(known: int, frozen: Any, batch: TrainingBatch) -> Any:
        refreshed = Refreshed(model.config, known)
        steps = objective.compute_steps(refreshed, {}, frozen, batch, None)
        ids = frozen[TRUNK].params["ids"]
        return [tuple(map(jnp.sum, mask_hits(step.measurable(ids)))) for step in steps]

    def total(known: int) -> np.ndarray:
        counted = [count_accepted(known, frozen, batch) for batch in batches]
        return np.sum(jax.device_get(counted), axis=0)  # [K, 3]

    masks = total(0)
    refreshed = np.stack([masks[0], *(total(k)[k] for k in range(1, len(masks)))])
    return {
        f"{name}_{temperature}": list(counts[:, temperature] / counts[:, 2])
        for name, counts in (("masks", masks), ("known", refreshed))
        for temperature in (0, 1)
    }


def mask_hits(step: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
    """Hits and chances where they count, and which do."""
    hits, chance, mask = step
    return hits & mask, jnp.where(mask, chance, 0.0), mask


def main() -> int:
    args = parse()
    target = specjax.load(args.target)
    batches = write_texts(target, read_prompts(args, args.examples), args)
    for place in progress(args.drafters.split(","), unit="drafter"):
        found = measure(target, specjax.load(place), batches, args.anchors)
        print(place)
        for name, by_place in found.items():
            chain = 1 + np.sum(np.cumprod(by_place))
            print(f"  {name}: {' '.join(f'{x:.3f}' for x in by_place)}; tokens {chain:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
