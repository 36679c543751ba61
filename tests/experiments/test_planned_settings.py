"""Generation settings in a dry run: planned with the decode, or said to be left out."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import pytest
from sessions import make_plan, model_plans

from specjax.experiments.beams import job as beams
from specjax.experiments.config.defaults import beams_config, decode_config
from specjax.experiments.config.generation import NOTHING, plan_settings
from specjax.experiments.decode.planning import abstract_decode, show_plan
from specjax.experiments.pairs import describe_pair, load_pair
from specjax.models.guided import GuidedModel
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden"
WORD = "target"
FILE = "generation_config.json"
CHAIN = {"chain": {"drafter": "neural", "length": 2}}


@pytest.fixture
def target(pair: Path, tmp_path: Path) -> Path:
    """A tiny target that says something of generation."""
    shutil.copytree(pair / WORD, tmp_path / WORD)
    said = json.loads((tmp_path / WORD / FILE).read_text("utf-8"))
    said |= {"repetition_penalty": 1.3, "stop_strings": ["Mann"], "top_k": 9}
    (tmp_path / WORD / FILE).write_text(json.dumps(said), "utf-8")
    return tmp_path / WORD


def make_config(pair: Path, target: Path | str, **fields):
    named = {"target": str(target), "drafter": str(pair / "drafter")}
    return decode_config(**named, strategies=CHAIN, max_new_tokens=6, **fields)


def test_a_plan_decodes_under_the_settings_of_the_checkpoint(pair, target, capsys) -> None:
    config = make_config(pair, target)
    config.generation.suppress_tokens = [3]
    planned = make_plan(config)
    show_plan(planned)
    said = capsys.readouterr().out
    assert "settings: repetition_penalty=1.3, stop_strings=('Mann',), suppress_tokens=(3,)" in said
    assert "left out" not in said
    _, (*_, options) = abstract_decode(planned, planned.strategies["chain"])
    kinds = {type(one).__name__ for one in options.processors}
    assert kinds == {"RepetitionPenalty", "SuppressedTokens"} and options.stops is not None
    bare = dataclasses.replace(planned, settings=NOTHING)
    _, (*_, plain) = abstract_decode(bare, planned.strategies["chain"])
    assert jax.tree.structure(plain) != jax.tree.structure(options)


def test_a_plan_refuses_what_a_run_would(pair, target) -> None:
    config = make_config(pair, target)
    config.generation.suppress_tokens = [10**6]
    with pytest.raises(UserError, match="suppress_tokens has 1000000"):
        model_plans(config)
    for file in target.glob("*token*"):
        file.unlink()
    with pytest.raises(UserError, match="needs the target's tokenizer"):
        model_plans(make_config(pair, target))


def test_a_plan_of_shapes_alone_says_what_it_leaves_out() -> None:
    config = decode_config(target="facebook/bart-large-cnn")
    config.generation.min_length = 5
    config.generation.stop_strings = "Mann"
    planned = plan_settings(config)
    assert planned.settings == {"min_length": 5}
    assert planned.lines == (
        "settings: min_length=5",
        "left out: what the generation_config.json of facebook/bart-large-cnn says; it is not here",
        "left out: stop_strings; the target's tokenizer is not here",
    )
    config.generation.penalty_alpha = 0.6
    with pytest.raises(UserError, match="penalty_alpha is 0.6"):
        describe_pair(config)


@pytest.mark.slow
def test_a_plan_and_a_run_guide_their_target(capsys) -> None:
    """A plan counts both texts' caches, and a cost is that of both calls."""
    llama = str(GOLDEN / "llama")
    config = decode_config(target=llama, drafter=llama, strategies=CHAIN, max_new_tokens=6)
    plain = model_plans(config)["target"].cache_bytes
    config.generation.guidance_scale = 1.5
    planned = model_plans(config)
    assert "settings: guidance_scale=1.5" in capsys.readouterr().out
    assert plain < planned["target"].cache_bytes < 2 * plain
    loaded = load_pair(config)
    assert loaded.target.model == GuidedModel(loaded.drafters["drafter"].model, 1.5)
    config.generation.guidance_scale = -1.0
    with pytest.raises(UserError, match="guidance_scale is -1.0; it must be a number of"):
        model_plans(config)


def test_a_plan_notes_the_beams_that_decodes_leave_out() -> None:
    config = decode_config(target="facebook/bart-large-cnn")
    assert not plan_settings(config).note
    config.generation.num_beams = 4
    assert plan_settings(config).note == (
        "model 'facebook/bart-large-cnn' has num_beams 4; this decodes without beams"
    )
    config.generation = {"num_beams": 0}
    with pytest.raises(UserError, match="num_beams is 0; it must be an integer of at least 1"):
        plan_settings(config)


def test_a_plan_leaves_out_a_language_whose_token_is_not_here() -> None:
    config = decode_config(target="facebook/nllb-200-3.3B", target_language="deu_Latn")
    planned = plan_settings(config)
    assert not planned.settings
    assert planned.lines[-1] == "left out: target_language; the target's tokenizer is not here"
    config.generation.forced_bos_token_id = 5
    with pytest.raises(UserError, match="config.target_language is 'deu_Latn' and config.gener"):
        plan_settings(config)


def test_a_plan_of_beam_searches_has_them_too(pair, target, capsys) -> None:
    config = beams_config(target=str(target), strategies={"plain": {"beams": 2}})
    with pytest.raises(UserError, match="stop_strings is .* must be None for a beam search"):
        beams.plan(config)
    config.generation.stop_strings = None
    beams.plan(config)
    assert "settings: repetition_penalty=1.3\n" in capsys.readouterr().out
