"""Deliberate faults: one replacement in one file each, and the tests that should see it.

A fault names the text it replaces, which must occur exactly once in the file: a fault that no
longer fits the code is an error, not a fault that was caught.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Fault:
    """`old` becomes `new` in a file of the package; `tests` is what pytest is given first."""

    name: str
    file: str
    old: str
    new: str
    tests: str


CONTRACT = "tests/contract"
DECODING = "tests/decoding"
RULES = "tests/verification tests/contract"
MODELS = "tests/models tests/contract/test_stubs.py"

FAULTS = (
    # Acceptance and correction.
    Fault(
        "residual with the sign swapped",
        "core/distribution.py",
        "return jnp.maximum(p - pick(self.probs, at), 0.0)",
        "return jnp.maximum(pick(self.probs, at) - p, 0.0)",
        RULES,
    ),
    Fault(
        "residual of a certain token keeps it",
        "core/distribution.py",
        "return p * (1.0 - jax.nn.one_hot(",
        "return p * (1.0 - 0.0 * jax.nn.one_hot(",
        RULES,
    ),
    Fault(
        "correction drawn one position late",
        "verification/speculative_sampling.py",
        "    at_p = pick(p, accepted)\n",
        "    at_p = pick(p, accepted + 1)\n",
        RULES,
    ),
    Fault(
        "acceptance test turned round",
        "verification/speculative_sampling.py",
        "leading_run(drawn * lenience * q_drafted < p_drafted, draft.length)",
        "leading_run(drawn * lenience * q_drafted > p_drafted, draft.length)",
        RULES,
    ),
    Fault(
        "one random number for all positions",
        "verification/speculative_sampling.py",
        "return jax.random.uniform(jax.random.fold_in(key, position))",
        "return jax.random.uniform(jax.random.fold_in(key, 0 * position))",
        RULES,
    ),
    Fault(
        "bonus token treated as a correction",
        "verification/speculative_sampling.py",
        "corrected = (accepted < draft.length) & (",
        "corrected = (accepted <= draft.length) & (",
        RULES,
    ),
    Fault(
        "accepted tokens counted beyond the first rejection",
        "core/verdict.py",
        "jnp.sum(jnp.cumprod((passed & inside).astype(jnp.int32), axis=1), axis=1)",
        "jnp.sum((passed & inside).astype(jnp.int32), axis=1)",
        RULES,
    ),
    Fault(
        "drafts judged beyond their length",
        "core/verdict.py",
        "    inside = jnp.arange(passed.shape[1]) < length[:, None]\n",
        "    inside = jnp.arange(passed.shape[1]) <= length[:, None]\n",
        RULES,
    ),
    Fault(
        "the target's own token is not written",
        "core/verdict.py",
        "    return Verdict(tokens, accepted + 1, accepted, overlap)",
        "    return Verdict(tokens, jnp.maximum(accepted, 1), accepted, overlap)",
        RULES,
    ),
    Fault(
        "lenience multiplied where it divides",
        "verification/lenient.py",
        "kept = jnp.minimum(q, at_p / lenience[..., None])",
        "kept = jnp.minimum(q, at_p * lenience[..., None])",
        f"{RULES} {DECODING}/test_cascade.py",
    ),
    Fault(
        "lenience applied to copied tokens",
        "verification/lenient.py",
        "jnp.where(jnp.isfinite(scores(draft)), value, 1.0)",
        "jnp.where(jnp.isfinite(scores(draft)), value, value)",
        f"{RULES} {DECODING}/test_cascade.py",
    ),
    Fault(
        "rollback keeps what it should drop",
        "verification/rollback.py",
        "return leading_run(~far | agreed, length)",
        "return leading_run(far | agreed, length)",
        f"tests/verification {DECODING}/test_bild.py",
    ),
    Fault(
        "the oracle's target writes behind whole drafts",
        "verification/oracle.py",
        "adds = (accepted < draft.length) | (draft.length == 0)",
        "adds = (accepted <= draft.length) | (draft.length == 0)",
        f"tests/verification {DECODING}/test_bild.py",
    ),
    # Drafting.
    Fault(
        "draft continues behind its EOS",
        "drafting/token_by_token.py",
        "            going=going & ~ended,\n",
        "            going=going,\n",
        f"{DECODING}/test_scripts.py {DECODING}/test_bild.py",
    ),
    Fault(
        "confidence stops the sure instead of the unsure",
        "drafting/token_by_token.py",
        "going &= confidence(logits) >= numbers[self.threshold]",
        "going &= confidence(logits) < numbers[self.threshold]",
        f"{DECODING}/test_scripts.py",
    ),
    Fault(
        "every drafted token drawn with the same key",
        "drafting/token_by_token.py",
        "propose(logits, context.options.sampling, fold(keys, p.step))",
        "propose(logits, context.options.sampling, fold(keys, 0))",
        f"{CONTRACT} {DECODING}/test_distribution.py",
    ),
    Fault(
        "drafter forgets its own last token",
        "drafting/token_by_token.py",
        "LAG = 2\n",
        "LAG = 1\n",
        f"{DECODING}/test_caches.py {DECODING}/test_scripts.py",
    ),
    Fault(
        "early exit leaves the pointer where it fed",
        "drafting/token_by_token.py",
        "cache=p.cache.replace(length=before.length)",
        "cache=p.cache",
        f"{DECODING}/test_early_exit.py {DECODING}/test_caches.py",
    ),
    Fault(
        "copies from one place too early",
        "drafting/copying.py",
        "    return best + 1, jnp.take_along_axis",
        "    return best, jnp.take_along_axis",
        "tests/drafting/test_copying.py",
    ),
    Fault(
        "earlier texts are copied from one place too late",
        "drafting/suffix.py",
        '_of(corpus["order"], chosen) + size[:, None]',
        '_of(corpus["order"], chosen) + size[:, None] + 1',
        "tests/drafting/test_suffix.py",
    ),
    Fault(
        "a doubtful copy goes on",
        "drafting/suffix.py",
        "& (chance >= floor)",
        "& (chance >= 0 * floor)",
        "tests/drafting/test_suffix.py",
    ),
    Fault(
        "heads read each other's tokens",
        "drafting/blockwise.py",
        "per_head(logits, context.options.sampling, head_keys(",
        "per_head(logits[:, ::-1], context.options.sampling, head_keys(",
        f"{DECODING}/test_blockwise.py",
    ),
    Fault(
        "a tree is read as a chain",
        "core/tree.py",
        "above = jnp.pad(parents + 1, ((0, 0), (1, 0)))",
        "above = jnp.pad(0 * parents + jnp.arange(parents.shape[1]), ((0, 0), (1, 0)))",
        "tests/core/test_tree.py",
    ),
    Fault(
        "a fallen child leaves the target's distribution as it was",
        "verification/tree.py",
        "fallen = jnp.where((tried & ~stands)[:, None], rest, law)",
        "fallen = law",
        "tests/verification/test_tree.py",
    ),
    Fault(
        "a block's residual forgets the weight of the prefix",
        "verification/block.py",
        "draft.distribution.residual(pick(weights, accepted)[:, None] * at_p, accepted)",
        "draft.distribution.residual(at_p, accepted)",
        "tests/verification/test_block.py",
    ),
    Fault(
        "a cascade's reviewer keeps the caches of dropped drafts",
        "drafting/cascade.py",
        "{**after, self.model: cache}, caches, context.length + length, context.active",
        "{**after, self.model: cache}, caches, context.length + length + 1, context.active",
        f"{DECODING}/test_caches.py {DECODING}/test_cascade.py",
    ),
    Fault(
        "a cascade hands on the reviewer's distribution where lenience changed it",
        "drafting/cascade.py",
        "distribution = self.rule.distribution(draft, reading, options)",
        "distribution = SpeculativeSampling().distribution(draft, reading, options)",
        f"{DECODING}/test_cascade.py",
    ),
    Fault(
        "BiLD hands over one token late",
        "drafting/bild.py",
        "full = (draft.length > 0) & (draft.length >= context.room)",
        "full = (draft.length > 0) & (draft.length > context.room)",
        f"{DECODING}/test_bild.py",
    ),
    Fault(
        "adaptive length forgets what was tested",
        "drafting/adaptive_length.py",
        "self.tested * kept + tested)",
        "self.tested * kept)",
        f"{DECODING}/test_scripts.py {DECODING}/test_strategy.py",
    ),
    # The loop.
    Fault(
        "rewind assigns instead of taking the minimum",
        "core/rows.py",
        "trusted = jnp.minimum(cache.length, length - 1)",
        "trusted = length - 1",
        f"{DECODING}/test_caches.py",
    ),
    Fault(
        "caches are not rewound",
        "core/rows.py",
        "return cache.replace(length=jnp.where(active, trusted, old.length))",
        "return cache.replace(length=jnp.where(active, cache.length, old.length))",
        f"{DECODING}/test_caches.py {CONTRACT}",
    ),
    Fault(
        "finished rows move",
        "decoding/round.py",
        "            active=context.active & ~ended,\n",
        "            active=~ended,\n",
        f"{DECODING}/test_scripts.py {CONTRACT}",
    ),
    Fault(
        "output one token too long",
        "decoding/round.py",
        "| (length >= context.limit) |",
        "| (length > context.limit) |",
        f"{DECODING}/test_scripts.py",
    ),
    Fault(
        "drafting and verification share keys",
        "decoding/round.py",
        "DRAFT, VERIFY = 0, 1",
        "DRAFT, VERIFY = 0, 0",
        f"{CONTRACT} {DECODING}/test_distribution.py {DECODING}/test_scripts.py",
    ),
    Fault(
        "keys do not move with the row",
        "decoding/round.py",
        "keys = fold(fold(state.keys, context.length), VERIFY)",
        "keys = fold(fold(state.keys, 0), VERIFY)",
        f"{CONTRACT} {DECODING}/test_distribution.py",
    ),
    Fault(
        "narrow calls drop the last token",
        "readers/fitted.py",
        "choice = jnp.argmax(jnp.array(self.fits) >= longest)",
        "choice = jnp.argmax(jnp.array(self.fits) >= longest - 1)",
        f"{DECODING}/test_scripts.py {DECODING}/test_bild.py",
    ),
    # Models.
    Fault(
        "causal mask lets the next token through",
        "models/layers.py",
        "    hidden = distance < 0\n",
        "    hidden = distance < -1\n",
        MODELS,
    ),
    Fault(
        "sliding window one key too wide",
        "models/layers.py",
        "        hidden |= distance >= window\n",
        "        hidden |= distance > window\n",
        MODELS,
    ),
    Fault(
        "keys of a tree's path are not moved",
        "models/linen.py",
        'own = [gathered(pair, cache.length, path) for pair in cache.data["own"]]',
        'own = list(cache.data["own"])',
        CONTRACT,
    ),
    Fault(
        "a model trusts the slot of a leaf that it was never fed",
        "decoding/round.py",
        "fed = jnp.sum(stands & (slots >= 0), axis=1, dtype=jnp.int32)",
        "fed = jnp.sum(stands, axis=1, dtype=jnp.int32)",
        "tests/decoding/test_caches.py",
    ),
    Fault(
        "nodes are chosen without regard to their ancestors",
        "drafting/growing.py",
        "own + (score[:, parents] if depth else 0.0)",
        "own",
        "tests/decoding/test_neural_tree.py",
    ),
    Fault(
        "the levels of a tree end with the first of its paths",
        "drafting/growing.py",
        "jnp.any(~ended[:, fed], axis=1)",
        "jnp.all(~ended[:, fed], axis=1)",
        "tests/decoding/test_neural_tree.py",
    ),
    Fault(
        "of the best tree every child is taken for the first",
        "theory/trees.py",
        "gain = table[depth, rank] * (1.0 + below) + later",
        "gain = table[depth, 0] * (1.0 + below) + later",
        "tests/theory/test_trees.py",
    ),
    Fault(
        "a branch that fell leaves its node too likely to stand",
        "verification/traversal.py",
        "jnp.where(moves, total + (1.0 - weight), 1.0)",
        "jnp.where(moves, total + 0.9 * (1.0 - weight), 1.0)",
        "tests/verification/test_traversal.py",
    ),
    Fault(
        "siblings of a tree see each other",
        "models/layers.py",
        "    among = jnp.take_along_axis(visible, place[:, None], axis=2)\n",
        "    among = jnp.ones_like(jnp.take_along_axis(visible, place[:, None], axis=2))\n",
        CONTRACT,
    ),
    Fault(
        "T5's bias looks one position aside",
        "models/relative_bias.py",
        "jax.lax.dynamic_slice_in_dim(table, capacity - 1 - p, keys or capacity, axis=1)",
        "jax.lax.dynamic_slice_in_dim(table, capacity - 2 - p, keys or capacity, axis=1)",
        MODELS,
    ),
    Fault(
        "T5's bias on a TPU is the last query's for all",
        "models/relative_bias.py",
        "bands[:, :, more - t : more - t + keys]",
        "bands[:, :, 0:keys]",
        "tests/models/test_relative_bias.py",
    ),
    Fault(
        "the last block of a long cache is not attended to",
        "models/attention.py",
        "    last = -(-jnp.minimum(bias.last, slots) // size)\n",
        "    last = jnp.minimum(bias.last, slots) // size\n",
        MODELS,
    ),
    Fault(
        "slots that two blocks share count twice",
        "models/attention.py",
        "begin + jnp.arange(size) < number * size, MASKED, 0.0",
        "begin + jnp.arange(size) < number * size, 0.0, 0.0",
        MODELS,
    ),
    Fault(
        "a ring has one slot less than what is written ahead",
        "models/caches.py",
        "        return window + ahead, True\n",
        "        return window + ahead - 1, True\n",
        "tests/models/test_windows.py -k rejected",
    ),
    Fault(
        "slots are not taken round a ring",
        "models/caches.py",
        "return jax.lax.rem(slots, own[0].shape[2]) if isinstance(own, Ring) else slots",
        "return slots",
        "tests/models/test_windows.py",
    ),
    Fault(
        "padding of a prompt overwrites a ring",
        "models/caches.py",
        "    slot = held(own, jnp.minimum(start + fed, length))\n",
        "    slot = held(own, start + fed)\n",
        "tests/models/test_windows.py",
    ),
    Fault(
        "places of a ring that hold nothing are seen",
        "models/caches.py",
        "    return jnp.where(slot < 0, NEVER, slot)\n",
        "    return slot\n",
        "tests/models/test_windows.py -k rejected",
    ),
    Fault(
        "a model that is not asked writes where the text is",
        "core/catching_up.py",
        "    begin = jnp.minimum(jnp.maximum(context.length - lag, 0), cache.length)\n",
        "    begin = jnp.maximum(context.length - lag, 0)\n",
        "tests/decoding/test_rings.py",
    ),
    Fault(
        "a feature drafter keeps what it drafted",
        "drafting/on_target.py",
        "        length = jnp.minimum(cache.length, context.length)\n",
        "        length = cache.length\n",
        "tests/decoding/test_eagle.py -k trusted",
    ),
    Fault(
        "the target's states are put one slot too far",
        "drafting/on_target.py",
        "        slot = outcome.context.length - 1\n",
        "        slot = outcome.context.length\n",
        "tests/decoding/test_eagle.py -k trusted",
    ),
    Fault(
        "of a tree the states of other nodes are read",
        "drafting/on_target.py",
        "read = jnp.pad(verdict.path + 1, ",
        "read = jnp.pad(verdict.path, ",
        "tests/decoding/test_eagle.py -k trusted",
    ),
    Fault(
        "heads on the target go on from the state of the pending token",
        "drafting/parallel_heads.py",
        "outcome.verdict), outcome.committed)",
        "outcome.verdict), outcome.committed + 1)",
        "tests/decoding/test_heads_on_target.py -k memory",
    ),
    Fault(
        "a node reads the tokens of another path",
        "drafting/hydra_tree.py",
        "for node in self.shape.fed(depth)])",
        "for node in self.shape.fed(depth)[::-1]])",
        "tests/decoding/test_heads_on_target.py -k path",
    ),
    Fault(
        "heads on the target learn from the state of the pending token",
        "training/objectives/medusa.py",
        "state = behind(hidden, head - 1 + shape.behind)",
        "state = behind(hidden, head - 1)",
        "tests/training/test_medusa.py -k place",
    ),
    Fault(
        "a step of training sees the target's states of its own tokens",
        "models/eagle.py",
        "seen = [distance <= -step,",
        "seen = [distance <= 0,",
        "tests/decoding/test_eagle.py -k unrolled",
    ),
    Fault(
        "published layers are taken as SpecForge counts them",
        "models/families/eagle3.py",
        "    shift = 1 if min(ids) == 1 else 0\n",
        "    shift = 0\n",
        "tests/checkpoints/test_published.py -k counted",
    ),
    Fault(
        "a published drafter sees the first token",
        "models/families/eagle3.py",
        "            reads_first=False,\n",
        "",
        "tests/models/test_eagle3_golden.py -k chained",
    ),
    Fault(
        "the residual stream begins before the norm",
        "models/eagle.py",
        "self.state_norm(before) if self.config.normed_residual else before",
        "before",
        "tests/models/test_eagle3_golden.py -k chained",
    ),
    Fault(
        "ids are those that the checkpoint stores",
        "checkpoints/tensors.py",
        "        if self.stored.place:\n",
        "        if False:\n",
        "tests/decoding/test_published.py -k rigged",
    ),
    Fault(
        "top-p drops the crossing token",
        "sampling.py",
        "keep = (before < top_p)",
        "keep = (before + ranked < top_p)",
        "tests/test_sampling.py",
    ),
    Fault(
        "top-k keeps one more",
        "sampling.py",
        "_ranks(logits) < settings.top_k",
        "_ranks(logits) <= settings.top_k",
        "tests/test_sampling.py",
    ),
)
