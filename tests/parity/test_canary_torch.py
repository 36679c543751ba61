"""Canary against transformers' PyTorch class on fresh random models."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from input_parity import (
    check_beams,
    check_exports,
    check_logits,
    check_refusal,
    each_strategy,
    write_texts,
)

torch = pytest.importorskip("torch")

import specjax  # noqa: E402
from specjax.hf import huggingface  # noqa: E402
from specjax.loading import load  # noqa: E402
from specjax.models.with_input import compute_encoder_states  # noqa: E402

pytestmark = pytest.mark.slow

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_canary.py"))
NEW_TOKENS, EOS = 40, 3
LENGTHS = 333, 1471, 3007, 4800, 9999
SHAPES: dict[str, dict[str, Any]] = {
    "even": {"seed": 14},
    "narrow heads, no biases": {
        "seed": 31,
        "encoder": {"hidden_size": 10, "num_attention_heads": 5, "attention_bias": False,
                    "convolution_bias": False, "num_mel_bins": 18, "conv_kernel_size": 1,
                    "subsampling_factor": 2, "subsampling_conv_channels": 3, "scale_input": True},
        "decoder": {"hidden_size": 10, "num_attention_heads": 5, "num_key_value_heads": 5,
                    "head_dim": 3, "attention_bias": False, "num_hidden_layers": 1,
                    "vocab_size": 67},
    },
    "four convolutions of three": {
        "seed": 32,
        "encoder": {"hidden_size": 22, "num_attention_heads": 1, "num_mel_bins": 48,
                    "subsampling_factor": 16, "hidden_act": "gelu", "conv_kernel_size": 9,
                    "intermediate_size": 7},
        "decoder": {"hidden_size": 22, "num_attention_heads": 1, "num_key_value_heads": 1,
                    "head_dim": 22, "hidden_act": "silu", "intermediate_size": 31},
        "tie_word_embeddings": False,
    },
    "other kernels": {
        "seed": 33,
        "encoder": {"hidden_size": 12, "num_attention_heads": 2, "num_mel_bins": 27,
                    "subsampling_conv_kernel_size": 5, "subsampling_conv_stride": 3,
                    "num_hidden_layers": 1, "intermediate_size": 33},
        "decoder": {"hidden_size": 12, "num_attention_heads": 4, "num_key_value_heads": 4,
                    "head_dim": 5, "num_hidden_layers": 2, "vocab_size": 97},
    },
    "one layer, the usual factor": {
        "seed": 35,
        "encoder": {"hidden_size": 36, "num_attention_heads": 4, "num_mel_bins": 80,
                    "num_hidden_layers": 1, "subsampling_factor": 8, "hidden_act": "relu"},
        "decoder": {"hidden_size": 36, "num_attention_heads": 3, "num_key_value_heads": 3,
                    "hidden_act": "gelu"},
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: Any, tmp_path_factory: Any) -> Any:
    """A random PyTorch model and the same one loaded here."""
    theirs = GOLDEN["build"](**SHAPES[request.param])
    folder = tmp_path_factory.mktemp("canary")
    theirs.save_pretrained(folder)
    mels = theirs.config.encoder_config.num_mel_bins
    GOLDEN["processor"](feature_size=mels).save_pretrained(folder)
    return theirs, load(folder)


def transcribe_in_torch(theirs: Any, audio: list[np.ndarray], *languages: str) -> dict[str, Any]:
    mels = theirs.config.encoder_config.num_mel_bins
    return GOLDEN["request"](audio, *languages, mels=mels)


def test_encoder_states_equal_pytorch(pair):
    """Of a padded batch where there is audio, and of each alone."""
    theirs, ours = pair
    audio = GOLDEN["heard"](1, LENGTHS)
    given = transcribe_in_torch(theirs, audio)
    with torch.no_grad():
        made = theirs.model.encoder(given["input_features"], given["attention_mask"])
    counts = made.attention_mask.sum(-1).tolist()
    for row, waveform in enumerate(audio):
        frames = ours.extractor("audio", waveform)
        found = np.asarray(compute_encoder_states(ours.model, ours.params, frames[None]))[0]
        assert len(found) == counts[row] == ours.model.info.input.count_states(len(frames))
        expected = made.last_hidden_state[row, : counts[row]].numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_logits_of_random_models_equal_pytorch(pair):
    theirs, ours = pair
    audio = GOLDEN["heard"](1, LENGTHS)
    target = np.random.default_rng(2).integers(2, ours.model.info.vocab_size, (len(audio), 30))
    check_logits(ours, audio, target, GOLDEN["logits"](theirs, audio, target))


def test_logits_of_long_audio_equal_pytorch(pair, monkeypatch):
    """Whose attention is computed in blocks of queries, the last of them not full."""
    from specjax.models import attention

    monkeypatch.setattr(attention, "WHOLE_SCORES", 1)
    monkeypatch.setattr(attention, "QUERIES", 5)
    test_logits_of_random_models_equal_pytorch(pair)


@each_strategy
def test_texts_equal_those_of_generate(pair, strategy):
    theirs, ours = pair
    audio = GOLDEN["heard"](3, LENGTHS)
    expected = GOLDEN["greedy"](theirs, transcribe_in_torch(theirs, audio), NEW_TOKENS)
    assert write_texts(ours, audio, strategy, NEW_TOKENS) == expected


@pytest.mark.parametrize("drafter", ["none", "neural"])
def test_beams_equal_those_of_generate(pair, drafter):
    theirs, ours = pair
    given = transcribe_in_torch(theirs, audio := GOLDEN["heard"](4, LENGTHS[:3]), "fr")
    begin = given["decoder_input_ids"].shape[1]
    made = theirs.generate(
        **given, max_new_tokens=12, num_beams=3, do_sample=False, return_dict_in_generate=True,
        output_scores=True,
    )  # fmt: skip
    rows = made.sequences[:, begin:].tolist()
    texts = [row[: row.index(EOS) + 1] if EOS in row else row for row in rows]
    french = specjax.in_language(ours, "french")
    check_beams(french, audio, drafter, texts, made.sequences_scores.tolist())


def test_an_exported_model_loads_in_transformers_unchanged(pair, tmp_path):
    """But for the prompt, which is in the files of the tokenizer."""
    theirs, ours = pair
    ours = dataclasses.replace(ours, model=huggingface.load(ours.name).model)
    audio, target = GOLDEN["heard"](5, LENGTHS[:2]), np.full((2, 9), 5, np.int64)
    check_exports(theirs, ours, tmp_path, lambda model: GOLDEN["logits"](model, audio, target))


@pytest.mark.parametrize(
    "changes",
    [{}, {"hop_length": 100, "n_fft": 511, "win_length": 301}, {"preemphasis": None}, {"mels": 80}],
    ids=str,
)
def test_frames_are_those_of_transformers_for_audio_of_any_length(changes):
    from specjax.hf.spectrograms import SpectrogramProcessor

    fields = {"feature_size": 20, "hop_length": 160, "n_fft": 512, "win_length": 400}
    fields |= {"preemphasis": 0.97} | changes
    fields["feature_size"] = fields.pop("mels", fields["feature_size"])
    ours = SpectrogramProcessor(*fields.values(), stored={})
    theirs = GOLDEN["processor"](**fields).feature_extractor
    lengths = np.random.default_rng(8).integers(400, 20_000, 10)
    for waveform in GOLDEN["heard"](9, tuple(map(int, lengths))):
        made = theirs(waveform, sampling_rate=16_000, return_tensors="np")
        count = int(made["attention_mask"].sum())
        found = ours(waveform)
        assert len(found) == count
        np.testing.assert_allclose(found, made["input_features"][0, :count], rtol=0, atol=1e-4)


SPECIAL_TOKENS = [
    ({}, {}, (4, 7, 3, 2)),
    ({}, {"eos_token_id": 5, "bos_token_id": 6}, (4, 7, 3, 2)),
    ({"eos_token_id": None, "pad_token_id": None}, {"eos_token_id": 5}, (4, 7, 5, 2)),
    ({"eos_token_id": 9, "decoder_start_token_id": 8}, {"eos_token_id": 5}, (4, 8, 9, 2)),
]


@pytest.mark.parametrize(("whole", "decoder", "expected"), SPECIAL_TOKENS)
def test_special_tokens_without_a_generation_file_are_those_of_transformers(
    whole, decoder, expected, tmp_path
):
    from transformers import CanaryConfig, GenerationConfig

    from specjax.hf.huggingface import parse_config

    names = "bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id"
    text = GOLDEN["DECODER"] | decoder
    written = {"encoder_config": GOLDEN["ENCODER"], "decoder_config": text, "vocab_size": 61}
    written |= whole
    theirs = GenerationConfig.from_model_config(CanaryConfig(**written))
    assert tuple(getattr(theirs, name) for name in names) == expected
    _, ours = parse_config("config.json", {"model_type": "canary"} | written, None, np.float32)
    assert (ours.bos, ours.start_token, *ours.eos, ours.pad) == expected


REFUSED = [
    ({"encoder_config": {"hidden_size": 30}}, "hidden_size is 24; it must be that of encoder_c"),
    ({"decoder_config": {"vocab_size": 60}}, "vocab_size is 60; .* of the whole model, 61"),
    ({"decoder_config": {"model_type": "canary_ngpt"}}, "decoder_config: model_type is 'canary_n"),
    ({"encoder_config": {"model_type": "whisper"}}, "model_type is 'whisper'; it must be 'parak"),
    ({"decoder_config": {"num_key_value_heads": 1}}, "num_key_value_heads is 1; it must be 2"),
    ({"decoder_config": {"num_attention_heads": 5, "num_key_value_heads": 5}},
     "decoder_config: hidden_size is 24; it must be divisible by"),
    ({"encoder_config": {"head_dim": 5}}, "head_dim is 5; it must be 8, hidden_size over"),
    ({"encoder_config": {"conv_kernel_size": 4}}, "conv_kernel_size is 4; it must be an odd inte"),
    ({"encoder_config": {"num_mel_bins": 21}}, "num_mel_bins is 21; the convolutions must leave 5"),
    ({"encoder_config": {"subsampling_factor": 1}}, "subsampling_factor is 1; it must be an integ"),
    ({"decoder_config": {"hidden_act": "maxout"}}, "hidden_act is 'maxout'; it must be one of"),
    ({"encoder_config": {"scale_input": 1}}, "scale_input is 1; it must be true or false"),
    ({"decoder_config": {"sliding_window": 3}}, "sliding_window is 3; it must be null"),
    ({"decoder_config": {"repetition_penalty": 2.0}}, "repetition_penalty is 2.0"),
    ({"encoder_config": None}, "encoder_config is None; it must be an object"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), REFUSED)
def test_fields_that_change_what_is_computed_are_obeyed_or_refused(change, said, tmp_path):
    check_refusal(Path(GOLDEN["FOLDER"]), change, said, tmp_path)
