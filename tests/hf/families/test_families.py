"""A new model family: one file in `hf/families/`, and its checkpoints can be loaded."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import TARGETS

from specjax.contracts import reference
from specjax.contracts.registry import FAMILIES
from specjax.hf import families
from specjax.hf.families import dflash
from specjax.hf.families.eagle import layers_read
from specjax.hf.huggingface import load, parse_config, save
from specjax.models.t5 import T5, T5Config
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[2] / "golden" / "llama"

FILE = '''
from specjax.contracts.registry import FAMILIES
from specjax.hf.families.llama import Llama
from specjax.hf.families.schema import flag


@FAMILIES.register("alpaca")
class Alpaca(Llama):
    """Llama whose output layer is tied unless its configuration says otherwise."""

    schema = Llama.schema.derive(tie_word_embeddings=flag(True))
'''


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The golden Llama under another family's name."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(GOLDEN, folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "alpaca"}), "utf-8")
    return folder


@pytest.fixture
def newcomer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The file in the package, which nobody has asked for a name yet."""
    assert "alpaca" not in FAMILIES
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "alpaca.py").write_text(FILE)
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path / "package")])
    monkeypatch.setattr(FAMILIES, "_entries", dict(FAMILIES._entries))
    monkeypatch.setattr(FAMILIES, "_complete", False)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("specjax.hf.families.alpaca", None)


def test_a_family_that_has_no_file_is_refused_by_name(checkpoint: Path) -> None:
    with pytest.raises(UserError, match="'alpaca'; supported are bamba, bart, ") as caught:
        load(checkpoint)
    models, drafters = str(caught.value).split("; formats of drafters are ")
    assert models.endswith(" umt5, vision-encoder-decoder, whisper") and "eagle" not in models
    assert drafters.startswith("assistant_llama, ") and ", llama," not in drafters
    assert "eagle3" in drafters


def test_a_file_is_enough_to_load_and_to_export(newcomer, checkpoint: Path, tmp_path: Path) -> None:
    loaded, llama = load(checkpoint), load(GOLDEN)
    assert loaded.model.config.family == "alpaca"
    jax.tree.map(np.testing.assert_array_equal, loaded.params, llama.params)
    save(tmp_path / "export", loaded.model, loaded.params)
    assert load(tmp_path / "export").model == loaded.model


def test_a_file_is_enough_for_help_and_the_table(newcomer) -> None:
    assert "alpaca: Llama whose output layer is tied unless" in reference.format_help(FAMILIES)
    assert "| `alpaca` | Llama whose output layer is tied unless" in reference.format_table(
        FAMILIES
    )


@pytest.mark.parametrize("name", ["eagle_t5", "dflash_t5"])
def test_a_feature_drafter_says_which_layers_it_reads(name) -> None:
    family = FAMILIES[name].cls()
    target = T5(T5Config(20, 8, 4, 16, 2, 2, 2, eos=(1,)))
    words = {**family.get_target_fields(target), "model_type": name, "eos_token_id": 1}
    _, config = parse_config("it", words, None, jnp.float32)
    assert config.features == tuple(layers_read(2)) and config.cross == 2
    with pytest.raises(UserError, match="target_layers"):
        parse_config("it", words | {"target_layers": []}, None, jnp.float32)
    del words["target_layers"]
    with pytest.raises(UserError, match="'target_layers' is missing"):
        parse_config("it", words, None, jnp.float32)


def test_a_parallel_drafter_reads_layers_at_equal_distances() -> None:
    """As published: from the second to the last but two; of 36 layers, and of 28."""
    assert dflash.layers_read(36) == [2, 10, 18, 26, 34]
    assert dflash.layers_read(28) == [2, 8, 14, 20, 26]
    assert dflash.layers_read(6) == layers_read(6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, own",
    [
        ("t5", {"d_model": 12, "relative_attention_max_distance": 128}),
        ("llama", {"hidden_size": 12, "use_qk_norm": True}),
    ],
)
def test_a_parallel_drafter_is_saved_and_loaded(kind, own, tmp_path) -> None:
    name = f"dflash_{kind}"
    words = FAMILIES[name].cls().get_target_fields(TARGETS[kind])
    words |= {"model_type": name, "block_size": 5, "draft_vocab_size": 7, **own}
    family, shape = parse_config("it", words, None, jnp.float32)
    assert (shape.block_size, shape.draft_vocab, shape.layers) == (5, 7, 2)
    model = family.model(shape)
    params = jax.jit(model.init)(jax.random.key(0))
    save(tmp_path, model, params)
    loaded = load(tmp_path)
    assert loaded.model == model
    jax.tree.map(np.testing.assert_array_equal, loaded.params, params)
