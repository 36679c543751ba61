"""Models with the configurations of popular ones write transformers' greedy tokens.

Random weights of small sizes; transformers and specjax read the same folder, whose JSON has all the
fields of the published files (`tests/hf/published_configs.json`).
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from mutations import Mutation
from published_configs import Published, read_published

pytest.importorskip("torch")

from mutated_checkpoints import Checkpoint  # noqa: E402
from speech_checkpoint import Speech, same  # noqa: E402
from torch_models import maker  # noqa: E402
from transformers import WhisperConfig, WhisperForConditionalGeneration  # noqa: E402

pytestmark = pytest.mark.slow

READ = {name: one for name, one in read_published().items() if not one.refused}
TEXT = [name for name, one in READ.items() if one.config["model_type"] != "whisper"]
SPEECH = sorted(set(READ) - set(TEXT))
NOT_OF_THE_SHAPE = {"model_type", "torch_dtype", "transformers_version", "_attn_implementation"}
"""Fields that say how a model is stored or run: weights are made in float32."""


def shape(one: Published) -> dict:
    config = copy.deepcopy(one.config)
    return {name: value for name, value in config.items() if name not in NOT_OF_THE_SHAPE}


@pytest.mark.parametrize("name", TEXT)
def test_a_published_configuration_gives_transformers_tokens(name: str, tmp_path: Path) -> None:
    one = READ[name]
    checkpoint = Checkpoint(tmp_path, one.config["model_type"], shape(one))
    # Kernels may be installed or not.
    checkpoint.config = {k: v for k, v in one.config.items() if k != "_attn_implementation"}
    checkpoint.mutate(Mutation({}, one.generation))
    theirs = checkpoint.their_tokens()
    assert checkpoint.our_tokens(False) == theirs
    assert len({token for row in theirs for token in row}) > 1  # no model that says one thing


@pytest.mark.parametrize("name", SPEECH)
def test_a_published_speech_configuration_gives_transformers_tokens(name: str, tmp_path) -> None:
    one = READ[name]
    model = WhisperForConditionalGeneration(WhisperConfig(**shape(one))).eval()
    maker("whisper")["randomize"](model, maker("whisper")["torch"].Generator().manual_seed(40))
    checkpoint = Speech(tmp_path, model, one.config["eos_token_id"])
    checkpoint.write(one.config, one.generation)
    theirs = checkpoint.their_rows()
    assert not isinstance(theirs, str), theirs
    assert same(theirs, *checkpoint.our_rows())
