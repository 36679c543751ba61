"""BART's kind against what PyTorch computed once (tests/golden/make_bart.py).

Learned positions and sinusoids of both sorts, norms before and behind sublayers, an output layer of
its own, a vocabulary of the encoder's own. That a call of any width computes the same is T5's test:
the passes are shared.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from golden_models import GOLDEN, Golden, check_ragged_chunks, read_golden, same, teacher_forced
from jax.sharding import PartitionSpec as P
from safetensors.numpy import load_file, save_file
from slow_cases import some_slow

import specjax
from specjax.decoding.strategy import Strategy, autoregressive
from specjax.drafting.neural import Neural
from specjax.hf.families.bart import STACKS
from specjax.hf.huggingface import load, read_config, read_generation, save
from specjax.models.layers import apply
from specjax.models.positions import Sinusoids
from specjax.parallel.sharding import parameter_spec
from specjax.prompts import prompt_positions
from specjax.runtime.errors import UserError

SHAPES = ("bart", "mbart", "marian", "marian_two", "m2m_100", "pegasus")
SLOW = ("led", "pegasus_x")
TENSORS = "model.safetensors"
SHARED, HEAD, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"


def some(*fast: str) -> list:
    """All of the shapes, those that are not named as slow tests."""
    return some_slow(SHAPES + SLOW, *fast)


@pytest.fixture(scope="module", params=some(*SHAPES))
def golden(request: pytest.FixtureRequest) -> Golden:
    return read_golden(request.param)


def make_prompts(golden: Golden) -> list[list[int]]:
    return [row[:n].tolist() for row, n in zip(golden.source, golden.source_length, strict=True)]


def test_teacher_forced_logits_equal_pytorch(golden: Golden) -> None:
    same(teacher_forced(golden, golden.pad_source(3)), golden.logits)


@pytest.mark.parametrize("golden", some("m2m_100"), indirect=True)
def test_ragged_chunks_over_stale_slots_equal_pytorch(golden: Golden) -> None:
    check_ragged_chunks(golden)


@pytest.mark.slow
@pytest.mark.parametrize("golden", some("bart", "marian_two"), indirect=True)
def test_greedy_decoding_continues_as_pytorch(golden: Golden) -> None:
    models, params = (("target", golden.model),), {"target": golden.params}
    made = run(models, params, autoregressive(), make_prompts(golden), golden.greedy.shape[1])
    assert texts(made) == golden.greedy.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bart", "marian_two", "pegasus"])
def test_a_drafter_changes_no_token(name: str) -> None:
    """One that often agrees: the target with other biases of the logits."""
    golden = read_golden(name)
    other = {**golden.params, "logits_bias": golden.params["logits_bias"] * 0.5}
    models = (("target", golden.model), ("drafter", golden.model))
    params = {"target": golden.params, "drafter": other}
    strategy = Strategy(Neural(3, model="drafter"))
    made = run(models, params, strategy, make_prompts(golden), golden.greedy.shape[1])
    assert texts(made) == golden.greedy.tolist()
    assert int(jnp.sum(made.trace.accepted)) > 0


def test_an_export_is_read_back_as_it_was(golden: Golden, tmp_path: Path) -> None:
    save(tmp_path / "out", golden.model, golden.params)
    again = load(tmp_path / "out")
    assert again.model == golden.model
    jax.tree.map(np.testing.assert_array_equal, again.params, golden.params)


@pytest.mark.slow
def test_prompts_may_be_longer_than_texts() -> None:
    """The encoder of LED has more positions than its decoder."""
    target = specjax.load(GOLDEN / "led")
    generator = specjax.Generator(target, max_new_tokens=30)
    assert len(generator([[7] * 60]).tokens) == 1
    with pytest.raises(UserError, match="61 tokens.* 30 positions for new tokens and 60 for prom"):
        generator([[7] * 61])


def copy_with(tmp_path: Path, name: str, **tensors: np.ndarray | None) -> Path:
    """A copy of a golden checkpoint with tensors replaced, added, or taken out (None)."""
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    stored = load_file(folder / TENSORS) | tensors
    kept = {name: value for name, value in stored.items() if value is not None}
    save_file(kept, folder / TENSORS, metadata={"format": "pt"})
    return folder


def test_a_copy_of_the_embedding_as_output_layer_is_not_held_twice(tmp_path: Path) -> None:
    table = load_file(GOLDEN / "m2m_100" / TENSORS)[SHARED]
    copied = load(copy_with(tmp_path, "m2m_100", **{HEAD: table}))
    assert copied.model == load(GOLDEN / "m2m_100").model and copied.model.config.tied


def test_an_output_layer_that_differs_counts(tmp_path: Path) -> None:
    table = load_file(GOLDEN / "m2m_100" / TENSORS)[SHARED]
    own = load(copy_with(tmp_path, "m2m_100", **{HEAD: 2.0 * table}))
    assert not own.model.config.tied
    np.testing.assert_array_equal(own.params["head"]["kernel"], 2.0 * table.T)


def test_an_encoder_with_another_embedding_is_refused(tmp_path: Path) -> None:
    table = load_file(GOLDEN / "bart" / TENSORS)[SHARED]
    folder = copy_with(tmp_path, "bart", **{"model.encoder.embed_tokens.weight": 2.0 * table})
    with pytest.raises(UserError, match="encoder.embed_tokens.weight' that differs"):
        load(folder)


def test_a_checkpoint_without_a_bias_of_the_logits_has_none(tmp_path: Path) -> None:
    loaded = load(copy_with(tmp_path, "bart", **{BIAS: None}))
    assert not loaded.model.config.logits_bias and "logits_bias" not in loaded.params


def test_what_a_config_leaves_out_of_generation_is_not_made_up(tmp_path: Path) -> None:
    """Hugging Face decodes by what is written; its class's defaults are those of a new model."""
    config = json.loads((GOLDEN / "bart" / "config.json").read_text("utf-8"))
    for field in ("decoder_start_token_id", "pad_token_id", "forced_eos_token_id"):
        del config[field]
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    _, read = read_config(tmp_path, jnp.float32)
    assert (read.start_token, read.pad) == (config["bos_token_id"], config["eos_token_id"])
    assert "forced_eos_token_id" not in read_generation(tmp_path)


def test_padding_has_no_position() -> None:
    """Of M2M100, whose positions begin behind it."""
    loaded = load(GOLDEN / "m2m_100")
    tokens = jnp.array([[loaded.model.info.pad, 7, 7]])
    made = apply(loaded.model.module, "enter", loaded.params, tokens, jnp.array([[5, 5, 0]]))[0]
    embedded = loaded.model.embed(loaded.params, tokens)[0]
    np.testing.assert_array_equal(made[0], embedded[0])
    added = Sinusoids(20, to_base=True)(jnp.array([5 + 2, 0 + 2]))
    np.testing.assert_allclose(made[1:], embedded[1:] + added, atol=1e-6)


@pytest.mark.parametrize("to_base", [False, True])
def test_sinusoids_of_an_odd_width(to_base: bool) -> None:
    """Marian has a sine more than cosines, fairseq a column of zeros."""
    found = np.asarray(Sinusoids(5, to_base)(jnp.array([[3, 40]])))[0, 1]
    step = 1.0 if to_base else 0.4
    waves = 40.0 * 10_000.0 ** -(step * np.arange(3))
    sines = np.sin(waves[:2] if to_base else waves)
    last = [np.cos(waves[0]), np.cos(waves[1]), 0.0][: 5 - len(sines)]
    np.testing.assert_allclose(found, [*sines, *last], atol=1e-5)


def test_positions_of_pegasus_may_be_stored_or_not(tmp_path: Path) -> None:
    """They are sinusoids, which transformers writes and reads."""
    golden, names = read_golden("pegasus"), [f"model.{s}.embed_positions.weight" for s in STACKS]
    assert golden.model.config.sinusoids is None
    bare = load(copy_with(tmp_path, "pegasus", **dict.fromkeys(names)))
    assert bare.model.config.sinusoids == Sinusoids(18)
    made = dataclasses.replace(golden, model=bare.model, params=bare.params)
    same(teacher_forced(made, golden.source), golden.logits)
    shutil.rmtree(tmp_path / "pegasus")
    with pytest.raises(UserError, match="decoder.embed_positions.weight' is missing"):
        load(copy_with(tmp_path, "pegasus", **{names[1]: None}))


def test_prompts_of_a_vocabulary_of_their_own_are_read_in_it() -> None:
    """Ids beyond the decoder's 96 among them; texts are not looked up in such prompts."""
    golden = read_golden("marian_two")
    assert (golden.model.info.source_vocab, golden.model.info.vocab_size) == (109, 96)
    assert golden.source.max() >= golden.model.info.vocab_size
    target = specjax.LoadedModel(golden.model, golden.params)
    prompts, new = make_prompts(golden), golden.greedy.shape[1]
    lookup = specjax.strategy(drafter="prompt_lookup", length=3)
    made = specjax.Generator(target, strategy=lookup, max_new_tokens=new)(prompts)
    assert made.tokens == golden.greedy.tolist()
    with pytest.raises(UserError, match="109"):
        specjax.Generator(target, max_new_tokens=new)([[3, 109]])


def test_what_reads_prompts_in_other_ids_drafts_for_no_such_target() -> None:
    one, two = (
        specjax.LoadedModel(g.model, g.params) for g in map(read_golden, ("bart", "marian_two"))
    )
    drafters, strategy = {"drafter": one}, specjax.strategy(drafter="neural", length=2)
    with pytest.raises(UserError, match="prompts in that of its texts, the target in a vocabulary"):
        specjax.Generator(two, drafters, strategy)
    with pytest.raises(UserError, match="encoder_no_repeat_ngram_size is 2"):
        specjax.Generator(two, generation={"encoder_no_repeat_ngram_size": 2})
    search = specjax.beam_search(beams=2, drafter="neural", length=2)
    with pytest.raises(UserError, match="they must be alike"):
        specjax.BeamGenerator(two, drafters, search)


def test_both_tables_are_split_where_both_vocabularies_divide() -> None:
    model = load(GOLDEN / "marian_two").model
    even = dataclasses.replace(model, config=dataclasses.replace(model.config, source_vocab=100))
    for where in (("source_embedding",), ("embedding",)):
        assert parameter_spec(where, model, 2) == P(None, None)
        assert parameter_spec(where, even, 2) == P("model", None)


def test_encoder_and_decoder_are_split_only_where_both_divide() -> None:
    """The golden one has 3 heads of encoder and 2 of decoder, and 22 and 30 neurons."""
    model = load(GOLDEN / "bart").model
    up, q = ("encoder_0", "ff", "up", "kernel"), ("decoder_0", "cross_attention", "q", "kernel")
    assert parameter_spec(up, model, 2)[1] == "model" and parameter_spec(q, model, 2)[1] is None
    assert parameter_spec(("logits_bias",), model, 2)[1] == "model"


def test_positions_of_prompt_and_text_are_counted_apart() -> None:
    bart, m2m = load(GOLDEN / "bart").model, load(GOLDEN / "m2m_100").model
    assert [prompt_positions(bart, new) for new in (10, 40, 41)] == [40, 40, 0]
    assert prompt_positions(m2m, 41) is None
