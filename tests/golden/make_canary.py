"""Writes the golden Canary checkpoint and its expected outputs, computed by PyTorch.

    python tests/golden/make_canary.py

Needs torch and transformers; the tests that read the files need neither. The directory holds a tiny
random model with the files of its processor and `expected.safetensors`: waveforms of several
lengths one after another and the frames of each, teacher-forced float32 logits of a padded batch,
prompts of the processor, and greedy continuations by `generate`.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CanaryConfig,
    CanaryForConditionalGeneration,
    CanaryProcessor,
    ParakeetFeatureExtractor,
    PreTrainedTokenizerFast,
)

MOONSHINE = runpy.run_path(str(Path(__file__).with_name("make_moonshine.py")))
heard = MOONSHINE["heard"]
FOLDER = Path(__file__).parent / "canary"
VOCABULARY, START, EOS, PAD, MELS, NEW_TOKENS = 61, 7, 3, 2, 20, 20
LENGTHS = 320, 2943, 5000, 7103
"""Samples, the fewest that have frames with a deviation."""

SPECIAL = [
    "<unk>", "<|nospeech|>", "<pad>", "<|endoftext|>", "<|startoftranscript|>", "<|pnc|>",
    "<|nopnc|>", "<|startofcontext|>", "<|itn|>", "<|noitn|>", "<|timestamp|>", "<|notimestamp|>",
    "<|diarize|>", "<|nodiarize|>", "<|emo:undefined|>", "<|en|>", "<|de|>", "<|fr|>",
]  # fmt: skip
TEMPLATE = (
    "{% for part in messages[0]['content'] if part['type'] == 'text' %}"
    "<|startofcontext|><|startoftranscript|><|emo:undefined|><|{{ part['source_language'] }}|>"
    "<|{{ part['target_language'] }}|>{{ '<|pnc|>' if part['punctuation'] else '<|nopnc|>' }}"
    "<|noitn|><|notimestamp|><|nodiarize|>{% endfor %}"
)
"""The prompt of Canary-1B-v2."""

ENCODER: dict[str, Any] = {
    "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 3,
    "subsampling_conv_channels": 5, "num_mel_bins": MELS, "conv_kernel_size": 5,
    "subsampling_factor": 4, "scale_input": False, "max_position_embeddings": 200,
}  # fmt: skip
DECODER: dict[str, Any] = {
    "hidden_size": 24, "intermediate_size": 18, "num_hidden_layers": 3, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 7, "max_position_embeddings": 160,
    "vocab_size": VOCABULARY,
}  # fmt: skip


def build(
    seed: int,
    encoder: dict[str, Any] | None = None,
    decoder: dict[str, Any] | None = None,
    **changes: Any,
) -> CanaryForConditionalGeneration:
    """A random model, with changes to the configurations of its sides."""
    text = DECODER | (decoder or {})
    sides = {"encoder_config": ENCODER | (encoder or {}), "decoder_config": text}
    config = CanaryConfig(vocab_size=text["vocab_size"], **sides, **changes)
    model = CanaryForConditionalGeneration(config).eval()
    generator = torch.Generator().manual_seed(seed)
    MOONSHINE["randomize"](model, generator)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0.0, 0.3, generator=generator)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 2.0, generator=generator)
    vary(model)
    return model


@torch.no_grad()
def vary(model: CanaryForConditionalGeneration) -> None:
    """Scales the decoder's weights until texts are not of one token, which finds itself again."""
    model.proj_out.bias.mul_(0.3)
    for layer in model.model.decoder.layers:
        for attention in (layer.self_attn, layer.encoder_attn):
            attention.q_proj.weight.mul_(3.0)
        layer.self_attn.o_proj.weight.mul_(3.0)
        layer.encoder_attn.o_proj.weight.mul_(0.5)
        layer.mlp.fc2.weight.mul_(3.0)


def processor(**changes: Any) -> CanaryProcessor:
    """The processor, with `changes` to its feature extractor."""
    words = [f"w{number}" for number in range(VOCABULARY - len(SPECIAL))]
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(SPECIAL)
    return CanaryProcessor(
        ParakeetFeatureExtractor(**{"feature_size": MELS} | changes),
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            bos_token="<|startoftranscript|>",
            eos_token="<|endoftext|>",
            pad_token="<pad>",
            unk_token="<unk>",
        ),
        TEMPLATE,
    )


def request(audio: list[np.ndarray], *languages: str, mels: int = MELS) -> dict[str, torch.Tensor]:
    """What the processor makes of audio, and of the languages of it and of its text."""
    made = processor(feature_size=mels).apply_transcription_request(audio, *languages)
    return {name: value for name, value in made.items() if isinstance(value, torch.Tensor)}


@torch.no_grad()
def logits(model: Any, audio: list[np.ndarray], target: np.ndarray) -> np.ndarray:
    """Teacher-forced logits [B, T, V] of a padded batch."""
    given = request(audio, mels=model.config.encoder_config.num_mel_bins)
    given["decoder_input_ids"] = torch.tensor(target, dtype=torch.long)
    return model(**given).logits.numpy()


def greedy(
    model: Any, given: dict[str, torch.Tensor], new_tokens: int = NEW_TOKENS
) -> list[list[int]]:
    """Texts of `generate` up to and with their EOS, without the prompt."""
    begin = given["decoder_input_ids"].shape[1]
    settings = {"max_new_tokens": new_tokens, "do_sample": False, "num_beams": 1}
    made = model.generate(**given, **settings)[:, begin:].tolist()
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in made]


def main() -> None:
    model, audio = build(14), heard(5, LENGTHS)
    model.save_pretrained(FOLDER)
    processor().save_pretrained(FOLDER)
    target = np.random.default_rng(6).integers(len(SPECIAL), VOCABULARY, (len(audio), 12))
    target[:, 0] = START
    given, german = request(audio), request(audio, "de", "fr")
    expected: dict[str, Any] = {
        "heard": np.concatenate(audio),
        "samples": np.array([len(waveform) for waveform in audio], np.int32),
        "frames": given["input_features"].numpy(),
        "lengths": given["attention_mask"].sum(-1).numpy().astype(np.int32),
        "target": target.astype(np.int32),
        "logits": logits(model, audio, target),
        "prompt": given["decoder_input_ids"][0].numpy().astype(np.int32),
        "german": german["decoder_input_ids"][0].numpy().astype(np.int32),
    }
    for name, asked in (("texts", given), ("translations", german)):
        found = greedy(model, asked)
        expected[name] = np.full((len(audio), NEW_TOKENS), EOS, np.int32)
        for row, text in enumerate(found):
            expected[name][row, : len(text)] = text
        print(found)
    arrays = {name: np.ascontiguousarray(array) for name, array in expected.items()}
    save_file(arrays, FOLDER / "expected.safetensors")
    print(np.abs(expected["logits"]).max(), expected["prompt"], expected["german"])


if __name__ == "__main__":
    main()
