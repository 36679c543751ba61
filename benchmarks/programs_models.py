"""The models, tables and programs of `programs.py`: shapes only, nothing is drawn or run."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

import specjax
from specjax.contracts.fields import CORPUS, HEADS
from specjax.data import corpus
from specjax.decoding.beams.loop import search
from specjax.decoding.beams.strategy import BeamStrategy
from specjax.decoding.loop import generate
from specjax.decoding.strategy import Strategy
from specjax.drafting.draft_heads import DraftHeads
from specjax.experiments.config.choosing import selection_trees
from specjax.hf.huggingface import parse_config
from specjax.models.assistant import Assistant, AssistantCausalConfig
from specjax.models.base import LanguageModel, Params
from specjax.models.correction import Correction
from specjax.models.dflash import DFlash, DFlashCausalConfig, DFlashT5Config
from specjax.models.eagle import EagleCausalConfig, EagleT5Config
from specjax.models.heads import Heads, LoadedHeads
from specjax.models.on_target import FeatureDrafter
from specjax.models.p_eagle import PEagle, PEagleCausalConfig, PEagleT5Config
from specjax.models.positions import Rope
from specjax.models.shapes import get_parameter_shapes
from specjax.selection.choosing import POLICY
from specjax.selection.policy import Policy, embedding_source
from specjax.training.ngram import shapes as table_shapes

if TYPE_CHECKING:
    from programs_cases import Case

V, NEW_TOKENS, LAYERS = 32, 8, 3
PROMPTS = [3, 4, 5, 6, 7, 1], [8, 9, 1]
HEARD = 100
"""Frames of what the speech model hears; it makes half as many positions of them."""

SIZES = {"target": (16, LAYERS), "drafter": (12, 1), "other": (8, 1)}
"""Width and layers of models."""

_HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4}
_CAUSAL = {"vocab_size": V, "intermediate_size": 24, "max_position_embeddings": 64} | _HEADS
_BOTH = {"ffn_dim": 24, "attention_heads": 2}
_SIDES = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in _BOTH.items()}

SHAPES: dict[str, dict[str, Any]] = {
    "t5": {
        "model_type": "t5", "vocab_size": V, "d_kv": 4, "d_ff": 24, "num_heads": 2,
        "num_layers": 1, "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 12, "eos_token_id": 1,
        "decoder_start_token_id": 0, "pad_token_id": 0,
    },
    "llama": {"model_type": "llama", "eos_token_id": 1, **_CAUSAL},
    "gemma": {
        "model_type": "gemma3_text", "eos_token_id": 1, "sliding_window": 4,
        "sliding_window_pattern": 2, **_CAUSAL,
    },
    "whisper": {
        "model_type": "whisper", "vocab_size": V, "encoder_layers": 1, "num_mel_bins": 8,
        "max_source_positions": HEARD // 2, "max_target_positions": 64, "eos_token_id": 1,
        "decoder_start_token_id": 3, "pad_token_id": 0, **_SIDES,
    },
}  # fmt: skip
"""In the words of `config.json`, but for what `SIZES` says."""

WIDTH_AND_LAYERS = {
    "t5": ("d_model", "num_decoder_layers"),
    "llama": ("hidden_size", "num_hidden_layers"),
    "gemma": ("hidden_size", "num_hidden_layers"),
    "whisper": ("d_model", "decoder_layers"),
}


@functools.cache
def model(kind: str, name: str, dtype: Any) -> LanguageModel:
    """One of the models of a kind."""
    sizes = dict(zip(WIDTH_AND_LAYERS[kind], SIZES[name], strict=True))
    family, config = parse_config(kind, {**SHAPES[kind], **sizes}, None, dtype)
    return family.model(config)


def feature_drafter(
    kind: type[FeatureDrafter], target: LanguageModel, corrected: bool
) -> FeatureDrafter:
    """A drafter on the states of two of the target's layers, or on its last layer's cache."""
    c, blocks = target.config, issubclass(kind, DFlash)
    if issubclass(kind, Assistant):
        lent = {"num_kv_heads": c.num_kv_heads, "d_head": c.d_head, "rope": c.rope, "eos": c.eos}
        shape = AssistantCausalConfig(
            family="gemma4_assistant", vocab_size=V, d_model=12, d_ff=16, num_layers=1,
            num_heads=c.num_heads, max_positions=64, reads_cache=True, target_width=c.d_model,
            features=(c.num_layers,), sources=(c.num_layers - 1,), draft_vocab=V, normed=True,
            **lent,
        )  # fmt: skip
        return kind(shape)
    masks = issubclass(kind, PEagle)
    common = {
        "vocab_size": V, "d_model": 12, "d_ff": 16, "num_heads": 2, "eos": c.eos,
        "target_width": c.d_model, "features": (1, 2), "draft_vocab": V // 2,
        **({"block_size": 4} if blocks else {}),
        **({"correction": Correction("markov", 4)} if corrected else {}),
    }  # fmt: skip
    if target.info.start_token is None:
        shape, family = EagleCausalConfig, "eagle_llama"
        if blocks or masks:
            shape = DFlashCausalConfig if blocks else PEagleCausalConfig
            family = "dflash_llama" if blocks else "p_eagle_llama"
        own = {"num_kv_heads": 1, "d_head": 4, "max_positions": 64, "rope": Rope(4)}
        return kind(shape(family=family, num_layers=1, start_token=None, **common, **own))
    shape, family = (DFlashT5Config, "dflash_t5") if blocks else (EagleT5Config, "eagle_t5")
    if masks:
        shape, family = PEagleT5Config, "p_eagle_t5"
    crossed = {"cross": LAYERS, "cross_heads": c.num_heads, "cross_width": c.d_kv}
    own = {"d_kv": 4, "num_layers": 0, "num_decoder_layers": 1, "max_distance": c.max_distance}
    return kind(shape(family=family, **common, **own, **crossed))


def weights(one: LanguageModel) -> Params:
    """A model's parameters; drafted ids, which are looked at, are those that it has without any."""
    return {name: tree for name, tree in get_parameter_shapes(one).items() if name != "ids"}


def heads(drafter: DraftHeads, on_target: bool, width: int) -> LoadedHeads:
    """Parallel heads on the target's states, or on those of a trunk."""
    own: dict[str, Any] = {}
    if on_target:
        own = {"activation": "silu", "state_lag": 1, "normed": True}
        own |= {"sequential": drafter.sequential}
    shape = Heads(2, width, width + 2, **own)
    return LoadedHeads(shape, get_parameter_shapes(shape))


def tables(case: Case, made: Strategy, target: LanguageModel, drafter: Any) -> dict[str, Params]:
    """All trees beside models that the drafter may read."""
    found: dict[str, Params] = {"ngram": table_shapes(V), CORPUS: corpus.shapes(64)}
    if isinstance(made, Strategy):
        on_target = case.on_target or bool(made.drafter.spec.features)
        if isinstance(made.drafter, DraftHeads):
            trunk = target if on_target else drafter
            found[HEADS] = heads(made.drafter, on_target, trunk.config.d_model)
        names = getattr(made.drafter, "names", ())
        if POLICY in made.drafter.spec.resources:
            found[POLICY] = get_parameter_shapes(Policy(names, *embedding_source(target), hidden=8))
        found |= selection_trees({"": made}, target)
    return found


def lower_program(case: Case, platform: str) -> str:
    """The text of a case's decode program, as a platform is given it."""
    made = case.made()
    names = ("target", "drafter")
    models = {name: model(case.kind, name, case.dtype) for name in names}
    target = models["target"]
    reads_target = isinstance(made, Strategy) and bool(made.drafter.spec.features)
    if reads_target and not isinstance(made.drafter, DraftHeads):
        models["drafter"] = feature_drafter(made.drafter.drives, target, made.drafter.corrected)
    read = tables(case, made, target, models["drafter"])
    loaded = {name: specjax.LoadedModel(one, weights(one)) for name, one in models.items()}
    common: dict[str, Any] = {"tables": read, "max_new_tokens": NEW_TOKENS}
    common["generation"] = case.settings
    drafters = {"drafter": loaded["drafter"]}
    if isinstance(made, BeamStrategy):
        beams = specjax.BeamGenerator(loaded["target"], drafters, made, **common)
        batch = beams.prompts.batch(prompts(case), case.rows)
        rows = batch.tokens, batch.length, batch.limit > 0
        jitted, arguments = search, (beams.decoder, beams.params, *rows, beams.scoring)
    else:
        common["invariant"] = case.invariant
        generator = specjax.Generator(loaded["target"], drafters, made, **common)
        batch = generator.batch(prompts(case), case.rows)
        choice = made.drafter.choice
        choices = dict.fromkeys(choice.rows if choice else (), np.zeros(case.rows, np.int32))
        jitted = generate
        arguments = generator.arguments(batch, generator.keys(batch, 0), rows=choices)
    return jitted.trace(*arguments).lower(lowering_platforms=(platform,)).as_text()


def prompts(case: Case) -> list[Any]:
    """Rows of ids, or of what is heard."""
    if case.kind == "whisper":
        return [np.zeros((HEARD, 8), np.float32)] * case.rows
    return [list(ids) for ids in PROMPTS[: case.rows]]
