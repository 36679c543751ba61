"""Reinforcement learning whose rollouts are drafted: a policy, and a drafter that follows it.

    python benchmarks/rollouts.py --target=llama-gsm8k-target --drafter=llama-gsm8k-drafter \\
      --source_file=train.jsonl.gz --questions=500 --answers=8 --steps=8

In each step some questions get `--answers` sampled answers each, by speculative sampling in slots
that are refilled. The policy learns from whether the last number is right (clipped policy gradient
with advantages normalised in the group of a question; Shao et al. 2024, "DeepSeekMath", equation 3,
without the KL term), the drafter from the answers' tokens. Then the sampler gets both weights,
without a new compilation. Printed for each step: right answers, tokens a second, tokens per call of
the target, and the largest difference between the sampler's log-probabilities and those of the
policy under teacher forcing. Without `--learn` the drafter stays as it is: what following is worth.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import specjax
from specjax.data.text import read_examples
from specjax.decoding import filling
from specjax.metrics.quality.answers import same_number
from specjax.runtime.errors import UserError

CLIP = 0.2
"""How far the ratio of a token's probabilities may move in a step."""

Arrays = dict[str, jax.Array]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", required=True, help="the policy: directory or hub id")
    parser.add_argument("--drafter", required=True, help="directory or hub id")
    parser.add_argument("--source_file", required=True, help="JSON rows")
    parser.add_argument("--source_field", default="question")
    parser.add_argument("--reference_field", default="answer")
    parser.add_argument("--template", default="Q: {}\\nA:", help="of a prompt")
    parser.add_argument("--questions", type=int, default=500, help="of all steps together")
    parser.add_argument("--answers", type=int, default=8, help="of a question")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--length", type=int, default=3, help="drafted tokens")
    parser.add_argument("--batch_size", type=int, default=32, help="slots")
    parser.add_argument("--rows", type=int, default=32, help="texts of a training step")
    parser.add_argument("--max_new_tokens", type=int, default=128)
    parser.add_argument("--policy_rate", type=float, default=1e-5, help="learning rate")
    parser.add_argument("--drafter_rate", type=float, default=3e-4, help="learning rate")
    parser.add_argument("--learn", action="store_true", help="train the drafter too")
    return parser.parse_args()


class Learner:
    """Parameters of a decoder-only model with Adam's state."""

    def __init__(self, model: Any, params: Any, rate: float, loss: Any) -> None:
        self.params, self._optimizer = params, optax.adam(rate)
        self._state = self._optimizer.init(params)
        self._gradient = jax.jit(jax.value_and_grad(functools.partial(loss, model), has_aux=True))

    def update(self, batch: Arrays) -> jax.Array:
        """One step; returns the log-probabilities [B, T] before it."""
        (_, logprobs), gradient = self._gradient(self.params, batch)
        change, self._state = self._optimizer.update(gradient, self._state, self.params)
        self.params = optax.apply_updates(self.params, change)
        return logprobs


def compute_logprobs(model: Any, params: Any, batch: Arrays) -> jax.Array:
    """Log-probabilities [B, T] of the labels under teacher forcing."""
    logits = model.teach(params, {"inputs": batch["inputs"], "length": batch["length"]})[0]
    chosen = jnp.take_along_axis(logits, batch["labels"][..., None], axis=2)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


def policy_loss(model: Any, params: Any, batch: Arrays) -> tuple[jax.Array, jax.Array]:
    """The clipped policy gradient, a mean over the written tokens."""
    logprobs = compute_logprobs(model, params, batch)
    ratio = jnp.exp(logprobs - batch["logprobs"])
    gain = batch["advantage"][:, None]
    least = jnp.minimum(ratio * gain, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * gain)
    return -jnp.sum(least * batch["mask"]) / jnp.sum(batch["mask"]), logprobs


def drafter_loss(model: Any, params: Any, batch: Arrays) -> tuple[jax.Array, jax.Array]:
    """The cross-entropy of the written tokens, which are draws from the policy."""
    logprobs = compute_logprobs(model, params, batch)
    return -jnp.sum(logprobs * batch["mask"]) / jnp.sum(batch["mask"]), logprobs


def make_batch(
    prompts: list[list[int]], result: specjax.Result, advantage: np.ndarray, width: int
) -> Arrays:
    """Arrays of texts: `mask` and `logprobs` [B, T] are of the written tokens."""
    rows = len(prompts)
    inputs, labels = np.zeros((2, rows, width), np.int32)
    mask, logprobs = np.zeros((2, rows, width), np.float32)
    length = np.zeros(rows, np.int32)
    texts = zip(prompts, result.tokens, result.logprobs, strict=True)
    for row, (prompt, tokens, numbers) in enumerate(texts):
        text = [*prompt, *tokens]
        length[row], begin = len(text) - 1, len(prompt) - 1
        inputs[row, : length[row]], labels[row, : length[row]] = text[:-1], text[1:]
        mask[row, begin : length[row]], logprobs[row, begin : length[row]] = 1.0, numbers
    made = {"inputs": inputs, "labels": labels, "mask": mask, "logprobs": logprobs}
    return made | {"length": length, "advantage": advantage.astype(np.float32)}


def normalise(rewards: np.ndarray) -> np.ndarray:
    """Advantages [N * G] of rewards [N, G], normalised in each group."""
    spread = rewards.std(axis=1, keepdims=True)
    return ((rewards - rewards.mean(axis=1, keepdims=True)) / (spread + 1e-4)).reshape(-1)


def run(args: argparse.Namespace) -> None:
    target, drafter = specjax.load(args.target), specjax.load(args.drafter)
    sampler = specjax.Generator(
        target,
        {"drafter": drafter},
        specjax.speculative(args.length, temperature=1.0),
        max_new_tokens=args.max_new_tokens,
        bucket=256,  # holds GSM8K's prompts: another width would be another program
        logprobs=True,
    )
    policy = Learner(target.model, target.params, args.policy_rate, policy_loss)
    follower = Learner(drafter.model, drafter.params, args.drafter_rate, drafter_loss)
    template = args.template.replace("\\n", "\n")
    fields = {"source_field": args.source_field, "reference_field": args.reference_field}
    rows = read_examples(args.source_file, **fields)[: args.questions]
    ids = sampler.encode([template.format(row.source) for row in rows])
    width = -(-(max(map(len, ids)) + args.max_new_tokens) // 64) * 64
    share = -(-len(rows) // args.steps)
    for step in range(args.steps):
        chosen = range(step * share, min((step + 1) * share, len(rows)))
        places = [place for place in chosen for _ in range(args.answers)]
        start = time.perf_counter()
        prompts = [ids[place] for place in places]
        result = sampler(prompts, seed=step, batch_size=args.batch_size)
        seconds = time.perf_counter() - start
        right = [
            same_number(text, str(rows[place].reference))
            for place, text in zip(places, result.texts or (), strict=True)
        ]
        rewards = np.array(right, np.float32).reshape(-1, args.answers)
        whole = make_batch(prompts, result, normalise(rewards), width)
        apart = train(args, policy, follower, whole)
        sampler = sampler.with_params(
            policy.params, {"drafter": follower.params} if args.learn else None
        )
        print(
            f"step {step + 1}: {np.mean(right):.1%} of {len(right)} answers right,"
            f" {result.statistics.tokens / seconds:,.0f} tokens a second,"
            f" {result.statistics.tokens_per_target_call:.2f} per call, log-probabilities apart by"
            f" {apart:.1e} at most, {filling.advance_until._cache_size()} program of rounds",
            flush=True,
        )


def train(args: argparse.Namespace, policy: Learner, follower: Learner, whole: Arrays) -> float:
    """A step for each `rows` texts; the largest difference of log-probabilities in the first."""
    apart, count = 0.0, len(whole["length"])
    for first in range(0, count - args.rows + 1, args.rows):
        batch = {name: x[first : first + args.rows] for name, x in whole.items()}
        logprobs = policy.update(batch)
        if not first:
            apart = float(jnp.max(jnp.abs(logprobs - batch["logprobs"]) * batch["mask"]))
        if args.learn:
            follower.update(batch)
    return apart


def main() -> int:
    args = parse()
    try:
        run(args)
    except UserError as error:
        print(f"rollouts: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
