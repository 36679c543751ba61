"""Drafters of targets whose audio or images have any length, trained on padded encoder states."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image
from standins import WORDS, write_speech
from training_configs import get_config

import specjax
from specjax.data.pipeline import Batches
from specjax.experiments.train import job as train
from specjax.experiments.train.stored_prompts import StoredPrompts
from specjax.experiments.train.with_input import encode_padded, extract_decoder
from specjax.hf.tokenizer import train_tokenizer
from specjax.models.with_input import compute_encoder_states, select_encoder

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden"
FILES, NEW_TOKENS = 6, 8
CONFIGS = {"moonshine": "whisper", "canary": "whisper", "pix2struct": "trocr"}


def write_file(family: str, folder: Path, number: int) -> str:
    """A file of a size of its own."""
    if family == "pix2struct":
        shade = np.random.default_rng(number).integers(0, 255, (30 + 12 * number, 90), np.uint8)
        Image.fromarray(shade).save(folder / f"{number}.png")
        return f"{number}.png"
    write_speech(folder / f"{number}.wav", 220 + 40 * number, 0.3 + 0.15 * number)
    return f"{number}.wav"


@pytest.fixture(scope="module", params=CONFIGS)
def family(request: Any) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, files of several lengths, and their manifest."""
    made, target = tmp_path_factory.mktemp(family), specjax.load(GOLDEN / family)
    if target.tokenizer is None:
        target = dataclasses.replace(target, tokenizer=train_tokenizer([WORDS], 80))
    target.save(made / "target")
    field = "image" if family == "pix2struct" else "audio"
    rows = [
        json.dumps({field: write_file(family, made, number), "text": "two dogs"})
        for number in range(FILES)
    ]
    (made / "files.jsonl").write_text("\n".join(rows), "utf-8")
    return made


@pytest.fixture(scope="module")
def target(folder: Path, family: str) -> Any:
    loaded = specjax.load(folder / "target")
    return specjax.in_language(loaded, "en") if family == "canary" else loaded


@pytest.fixture(scope="module")
def files(folder: Path) -> list[str]:
    return [str(file) for file in sorted(folder.glob("?.*"))]


@pytest.fixture(scope="module")
def states(target: Any, files: list[str]) -> list[np.ndarray]:
    """The encoder's states of each file, which is not padded."""
    given = [target.extractor("prompt", file) for file in files]
    compute = [compute_encoder_states(target.model, target.params, one[None]) for one in given]
    return [np.asarray(one[0]) for one in compute]


def make_config(name: str, folder: Path, family: str) -> Any:
    """A config of configs/training on what lies in the folder, for four steps."""
    config = get_config(name)
    config.target = str(folder / "target")
    config.train.task = "read_image" if family == "pix2struct" else "transcribe"
    config.train.data.path, config.train.data.split = str(folder / "files.jsonl"), ""
    if family == "moonshine":
        config.speech.task = ""
    if family == "canary":
        config.speech.update(language="en", task="transcribe")
    config.validation.update(examples=2, task="")
    config.optimizer.update(steps=4, warmup=1, learning_rate=1e-2)
    config.evaluation.update(every=2, batch_size=2)
    config.target_outputs.batch_size = 2
    config.update(batch_size=2, bucket=16, max_output_tokens=NEW_TOKENS)
    return config


def test_states_of_padded_prompts_are_those_of_the_prompts(target, files, states):
    assert len({len(one) for one in states}) > 2
    for file, expected in zip(files, states, strict=True):
        found = encode_padded(target.model, target.params, target.extractor("prompt", file))
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_decoder_learns_of_padded_states_what_its_model_learns_of_the_file(target, files, states):
    info, decoder = target.model.info, extract_decoder(target)
    outputs = [[*info.forced, *range(4, 9)]] * FILES
    batches = Batches(
        list(zip(states, outputs, strict=True)), batch_size=FILES, bucket=8, seed=0,
        start_token=info.start_token, pad=info.pad, forced=len(info.forced),
    )  # fmt: skip
    batch = batches[0]
    assert batch["prompt"].shape[1] == max(map(len, states))
    (found,) = decoder.model.teach(decoder.params, batch)
    given = [target.extractor("prompt", file) for file in files]
    for row, size in enumerate(batch["prompt_length"]):
        read = batch["prompt"][row, :size]
        (at,) = (i for i, one in enumerate(states) if np.array_equal(one, read))
        alone = {name: array[row : row + 1] for name, array in batch.items()}
        length = np.array([len(given[at])], np.int32)
        alone |= {"prompt": given[at][None], "prompt_length": length}
        (expected,) = target.model.teach(target.params, alone)
        np.testing.assert_allclose(found[row], expected[0], atol=2e-5)


def test_batches_of_states_have_few_widths():
    sizes = np.random.default_rng(0).integers(40, 400, 300)
    pairs = [(np.ones((size, 2), np.float16), [4, 5]) for size in sizes]
    made = Batches(pairs, batch_size=4, bucket=8, seed=0, start_token=0, pad=0)
    shapes = [made[step]["prompt"].shape for step in range(made.per_epoch)]
    assert len(set(shapes)) <= 8
    for step in range(0, made.per_epoch, 9):
        batch = made[step]
        assert batch["prompt"].sum() == 2 * batch["prompt_length"].sum()
        share = made.part(step, np.array([1, 2]))
        assert np.array_equal(share["prompt"], batch["prompt"][1:3])


def test_a_job_trains_a_drafter_that_borrows_the_encoder(
    family, folder, target, files, states, tmp_path
):
    config = make_config(CONFIGS[family], folder, family)
    config.model.update(checkpoint=config.target, decoder_layers=(0, 2))
    results = train.run(config, tmp_path)
    losses = [row["loss"] for row in results["evaluations"]]
    assert losses[-1] < losses[0]
    drafter = specjax.load(tmp_path / "model")
    assert drafter.model.info.depth == 2
    ours, theirs = (select_encoder(one.params) for one in (drafter, target))
    assert jax.tree.all(jax.tree.map(np.array_equal, ours, theirs))
    store = StoredPrompts(tmp_path, config.target, states[0].shape[1])
    for found, expected in zip(store(files, pytest.fail), states, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-3, rtol=1e-3)  # half precision
    given, strategy = {"drafter": drafter}, specjax.speculative(length=3)
    pair = specjax.Generator(target, given, strategy, max_new_tokens=NEW_TOKENS)
    assert pair.decoder.models[1][1].info.borrows_encoder
    plain = specjax.Generator(target, max_new_tokens=NEW_TOKENS)(files)
    assert pair(files).tokens == plain.tokens
    rows = map(json.loads, (tmp_path / "target_outputs.jsonl").read_text("utf-8").splitlines())
    learned = {row["source"]: row["tokens"] for row in rows}
    assert [learned[file] for file in files[: FILES - 2]] == plain.tokens[: FILES - 2]


def test_a_job_trains_a_drafter_on_the_targets_states(family, folder, target, files, tmp_path):
    config = make_config("eagle", folder, family)
    config.model.shape.update(draft_vocab_size=40, d_model=12, d_ff=24)
    config.optimizer.steps, config.evaluation.every = 20, 10
    results = train.run(config, tmp_path)
    losses = [row["loss"] for row in results["evaluations"]]
    assert losses[-1] < losses[0]
    drafters = {"drafter": specjax.load(tmp_path / "model")}
    strategy = specjax.strategy(drafter="eagle", length=3)
    found = specjax.Generator(target, drafters, strategy, max_new_tokens=NEW_TOKENS)(files)
    assert found.tokens == specjax.Generator(target, max_new_tokens=NEW_TOKENS)(files).tokens
