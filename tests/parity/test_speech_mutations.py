"""As `test_config_mutations.py`, of a model that listens, whose texts begin with several tokens.

What these are is said by the generation file, so that its fields change here, too.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from mutations import GONE, Mutation, apply_fault, check_alike, each

pytest.importorskip("torch")

from speech_checkpoint import Speech, same  # noqa: E402
from torch_models import make_model, maker  # noqa: E402

pytestmark = pytest.mark.slow

WHISPER = maker("whisper")
EOS = WHISPER["EOS"]
EN, DE, FR = WHISPER["LANGUAGES"].values()
TRANSLATE, TRANSCRIBE = WHISPER["TASKS"].values()
SILENT = WHISPER["NO_TIMESTAMPS"]
FILE = WHISPER["GENERATION"]


def list_mutations(field: str, *values: Any, **also: Any) -> list[Mutation]:
    """The field of the generation file at each of the values, with others changed `also`."""
    return [Mutation({}, {field: value, **also}) for value in values]


def list_failures(why: str, *values: Mutation) -> list[Mutation]:
    """The same, with the reason why Hugging Face decodes nothing."""
    return [dataclasses.replace(value, fails_there=why) for value in values]


CONFIG: list[Mutation] = [
    *each("activation_function", "relu", "gelu_new", "no_such", None, GONE),
    *each("scale_embedding", True, None, GONE),
    *each("tie_word_embeddings", True, False, None, GONE),
    *each("num_mel_bins", 8, 0, "6", GONE),
    *each("max_source_positions", 40, 0, GONE),
    *each("max_target_positions", 16, 0, "32", GONE),
    *each("encoder_layers", 1, 0, "2"),
    *each("decoder_layers", 1, 2, -1),
    *each("encoder_attention_heads", 2, 3, 0),
    *each("decoder_attention_heads", 1, 3),
    *each("encoder_ffn_dim", 12),
    *each("d_model", 12),
    *each("vocab_size", 90, 97, GONE),
    *each("suppress_tokens", [64, 93], None),
    *each("begin_suppress_tokens", [64, 93], GONE),
    *each("forced_decoder_ids", [[1, DE]], None),
    *each("decoder_start_token_id", 3),
    *each("eos_token_id", 64, None),
    *each("pad_token_id", 64, None),
    *list_failures("its class's default is no token of so few", *each("pad_token_id", GONE)),
    *each("is_encoder_decoder", False),
    *each("use_weighted_layer_sum", True),
    *each("apply_spec_augment", True),
    *each("mask_time_prob", 0.9),
    *each("median_filter_width", 3),
    *each("classifier_proj_size", 8),
    *each("dropout", 0.5),
    *each("decoder_layerdrop", 0.5),
    *each("layer_norm_eps", 1e-2),
    *each("normalize_before", True),
    *each("no_such_field", 1),
]
SAID: list[Mutation] = [
    *list_mutations("is_multilingual", False, None, GONE),
    *list_mutations("lang_to_id", {"<|de|>": DE}, {}, GONE, {"<|en|>": 96}),
    *list_failures("it looks for the languages of null", *list_mutations("lang_to_id", None)),
    *list_mutations("task_to_id", {"transcribe": TRANSCRIBE}, {}, None, GONE),
    *list_mutations("language", "fr", "german", "<|en|>", "xx", None),
    *list_mutations("task", "translate", "transcribe", "sing"),
    *list_mutations("task", "translate", language="de"),
    *list_mutations("language", "de", forced_decoder_ids=GONE),
    *list_mutations(
        "forced_decoder_ids", GONE, None, [[1, DE], [2, TRANSLATE]], [[1, None]], [[2, EN]]
    ),
    *list_mutations("forced_decoder_ids", [[1, FR], [2, TRANSCRIBE], [3, SILENT]], [[1, 96]], "no"),
    *list_mutations("no_timestamps_token_id", GONE, 88, 96),
    *list_failures("it counts on from null", *list_mutations("no_timestamps_token_id", None)),
    *list_mutations("return_timestamps", True, GONE, None),
    *list_mutations("return_timestamps", True, language="fr", task="translate"),
    *(
        change
        for field, values in (
            ("max_initial_timestamp_index", (0, 1, None, GONE, 50, -1)),
            ("suppress_tokens", ([92, 64],)),
            ("begin_suppress_tokens", ([91, 92],)),
            ("no_repeat_ngram_size", (2,)),
        )
        for change in list_mutations(field, *values, return_timestamps=True, language="fr")
    ),
    *list_mutations("suppress_tokens", [64, 93], [], [-1], [96]),
    *list_failures("it wants a list", *list_mutations("suppress_tokens", 64)),
    *list_mutations("begin_suppress_tokens", [64, 93, EOS], [], None, [FR]),
    *list_mutations("decoder_start_token_id", 3),
    *list_failures(
        "its Whisper has no other start", *list_mutations("decoder_start_token_id", GONE, None)
    ),
    *list_mutations("eos_token_id", 64, [EOS, 64], GONE),
    *list_mutations("pad_token_id", 64, GONE),
    *list_mutations("bos_token_id", 3, GONE),
    *list_mutations("repetition_penalty", 1.7),
    *list_mutations("no_repeat_ngram_size", 2),
    *list_mutations("min_length", 9),
    *list_mutations("min_new_tokens", 6),
    *list_mutations("bad_words_ids", [[93], [64, 64]]),
    *list_mutations("forced_bos_token_id", 9),
    *list_mutations("forced_eos_token_id", EOS),
    *list_mutations("encoder_no_repeat_ngram_size", 1, 2),
    *list_mutations("encoder_repetition_penalty", 8.0),
    *list_mutations("sequence_bias", [[[93], -4.0], [[64], 2.0]]),
    *list_mutations("exponential_decay_length_penalty", [3, 1.4]),
    *list_mutations("prev_sot_token_id", 87),
    *list_mutations("alignment_heads", [[0, 0]]),
    *list_mutations("median_filter_width", 3),
    *list_mutations("no_speech_threshold", 0.6),
    *list_mutations("logprob_threshold", -1.0),
    *list_mutations("compression_ratio_threshold", 1.35),
    *list_mutations("condition_on_prev_tokens", False),
    *list_mutations("num_beams", 3),
    *list_mutations("max_length", 448),
    *list_mutations("no_such_setting", 4),
]
CASES = {f"{index}-{change}": change for index, change in enumerate(CONFIG + SAID)}


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Speech:
    return Speech(tmp_path_factory.mktemp("speech"), make_model("whisper", 40), EOS)


def mutate(speech: Speech, mutation: Mutation) -> None:
    said = apply_fault(FILE, Mutation(mutation.generation or {}))
    speech.write(apply_fault(speech.config, mutation), said)


@pytest.mark.parametrize("case", CASES)
def test_a_changed_field_gives_hugging_faces_tokens_or_one_sentence(
    case: str, speech: Speech
) -> None:
    mutation = CASES[case]
    mutate(speech, mutation)
    ours = speech.our_rows()
    check_alike(mutation, ours, speech.their_rows, lambda theirs, ours: same(theirs, *ours))


def test_an_unchanged_configuration_decodes(speech: Speech) -> None:
    """Or every mutation could pass by a refusal."""
    mutate(speech, Mutation({}))
    ours, head = speech.our_rows()
    assert same(speech.their_rows(), ours, head)
    assert len(head) == 4 and len({t for row in ours for t in row}) > 3
