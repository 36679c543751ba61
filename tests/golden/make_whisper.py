"""Writes the golden Whisper checkpoint and its expected outputs, computed by PyTorch.

    python tests/golden/make_whisper.py

Needs torch and transformers; the tests that read the files need neither. The directory holds a tiny
random model and `expected.safetensors`: what it hears, teacher-forced float32 logits, and greedy
continuations by `generate`: of a given language, of those that it detects, with timestamps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

FOLDER = Path(__file__).parent / "whisper"
VOCABULARY, EOS, START, NO_TIMESTAMPS = 96, 80, 81, 90
LANGUAGES = {"<|en|>": 82, "<|de|>": 83, "<|fr|>": 84}
TASKS = {"translate": 85, "transcribe": 86}
ROWS, FRAMES, MELS, NEW_TOKENS = 3, 100, 6, 16
HEAD = 4
"""Tokens that a text begins with."""
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "num_mel_bins": MELS, "d_model": 16,
    "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 28,
    "max_source_positions": FRAMES // 2, "max_target_positions": 32,
    "bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": EOS, "decoder_start_token_id": START,
    "suppress_tokens": None, "begin_suppress_tokens": None,
}  # fmt: skip
GENERATION: dict[str, Any] = {
    "bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": EOS, "decoder_start_token_id": START,
    "is_multilingual": True, "lang_to_id": LANGUAGES, "task_to_id": TASKS,
    "no_timestamps_token_id": NO_TIMESTAMPS, "return_timestamps": False,
    "max_initial_timestamp_index": 2,
    "forced_decoder_ids": [[1, None], [2, TASKS["transcribe"]]],
}  # fmt: skip


def build(seed: int, **changes: Any) -> WhisperForConditionalGeneration:
    """A random model, with `changes` to its configuration."""
    model = WhisperForConditionalGeneration(WhisperConfig(**SHAPE | changes)).eval()
    randomize(model, torch.Generator().manual_seed(seed))
    model.generation_config = GenerationConfig(**GENERATION)
    return model


@torch.no_grad()
def randomize(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Weights of a scale at which every part of the model moves the logits, themselves O(1)."""
    for name, weight in model.named_parameters():
        if name.endswith("encoder.embed_positions.weight"):
            continue  # waves
        if "norm" in name and name.endswith("weight"):
            weight.uniform_(0.5, 1.5, generator=generator)
        elif name.endswith("bias"):
            weight.normal_(0.0, 0.3, generator=generator)
        elif "embed" in name:
            weight.normal_(0.0, 0.7, generator=generator)
        else:
            weight.normal_(0.0, 1.5 * weight[0].numel() ** -0.5, generator=generator)


def save(model: WhisperForConditionalGeneration, folder: Path) -> None:
    """Writes the checkpoint with the configuration files that published ones have."""
    model.save_pretrained(folder)
    shape = {"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"]}
    written = (*SHAPE, "activation_function", "scale_embedding")
    shape |= {name: getattr(model.config, name) for name in written}
    for name, content in (("config", shape), ("generation_config", GENERATION)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def heard(seed: int, rows: int = ROWS, mels: int = MELS, frames: int = FRAMES) -> np.ndarray:
    """Random log-mel features [B, M, P], as the feature extractor lays them out.

    Each row has a spectrum of its own, or attention over all frames would find them much alike.
    """
    rng = np.random.default_rng(seed)
    spectrum = 2.0 * rng.normal(size=(rows, mels, 1))
    return (spectrum + rng.normal(size=(rows, mels, frames))).astype(np.float32)


@torch.no_grad()
def logits(model: torch.nn.Module, features: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Teacher-forced logits [B, T, V]."""
    tokens = torch.tensor(target, dtype=torch.long)
    given = {"input_features": torch.tensor(features), "decoder_input_ids": tokens}
    return model(**given, use_cache=False).logits.numpy()


def languages(model: Any, features: np.ndarray) -> list[int]:
    """The token of the language of each row, as it is detected."""
    return model.detect_language(torch.tensor(features)).tolist()


def greedy(model: Any, features: np.ndarray, new_tokens: int = NEW_TOKENS, **options: Any) -> Any:
    """Rows [B, N] of `generate`, filled up with EOS, without what they begin with.

    In one call: else it would look for timestamps and go on behind them.
    """
    made = model.generate(
        input_features=torch.tensor(features),
        max_new_tokens=new_tokens,
        num_beams=1,
        force_unique_generate_call=True,
        **options,
    ).numpy()
    head = HEAD - bool(options.get("return_timestamps"))
    made = made[:, head:] if made[0, 0] == START else made
    return np.pad(made, ((0, 0), (0, new_tokens - made.shape[1])), constant_values=EOS)


def main() -> None:
    features = heard(5)
    made = (build(seed) for seed in range(500))
    model = next(model for model in made if len(set(languages(model, features))) > 1)
    save(model, FOLDER)
    target = np.random.default_rng(6).integers(0, VOCABULARY, (ROWS, 12))
    target[:, 0] = START
    expected = {
        "heard": features,
        "target": target.astype(np.int32),
        "logits": logits(model, features, target),
        "german": greedy(model, features, language="de", task="translate").astype(np.int32),
        "detected": greedy(model, features).astype(np.int32),
        "timed": greedy(model, features, language="fr", return_timestamps=True).astype(np.int32),
        "languages": np.array(languages(model, features), np.int32),
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in expected.items()}
    save_file(arrays, FOLDER / "expected.safetensors")
    print({name: expected[name].tolist() for name in ("german", "detected", "languages")})
    print(np.abs(expected["logits"]).max())


if __name__ == "__main__":
    main()
