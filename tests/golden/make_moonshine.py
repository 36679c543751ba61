"""Writes the golden Moonshine checkpoint and its expected outputs, computed by PyTorch.

    python tests/golden/make_moonshine.py

Needs torch and transformers; the tests that read the files need neither. The directory holds a tiny
random model and `expected.safetensors`: waveforms of several lengths one after another,
teacher-forced float32 logits of each on its own, and greedy continuations by `generate`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import MoonshineConfig, MoonshineForConditionalGeneration

FOLDER = Path(__file__).parent / "moonshine"
VOCABULARY, START, EOS, NEW_TOKENS = 96, 1, 2, 20
LENGTHS = 895, 2943, 5000, 7103
"""Samples: the fewest that make a state, the most of three states, and two between frames."""

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 40, "intermediate_size": 28,
    "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 3,
    "encoder_num_attention_heads": 2, "decoder_num_attention_heads": 2,
    "max_position_embeddings": 64, "bos_token_id": START, "eos_token_id": EOS, "pad_token_id": EOS,
    "decoder_start_token_id": START,
}  # fmt: skip


def build(seed: int, **changes: Any) -> MoonshineForConditionalGeneration:
    """A random model, with `changes` to its configuration."""
    model = MoonshineForConditionalGeneration(MoonshineConfig(**SHAPE | changes)).eval()
    randomize(model, torch.Generator().manual_seed(seed))
    return model


@torch.no_grad()
def randomize(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Weights of a scale at which every part of the model moves the logits, themselves O(1)."""
    for name, weight in model.named_parameters():
        if "norm" in name and name.endswith("weight"):
            weight.uniform_(0.5, 1.5, generator=generator)
        elif name.endswith("bias"):
            weight.normal_(0.0, 0.3, generator=generator)
        elif "embed" in name:
            weight.normal_(0.0, 0.25, generator=generator)
        else:
            weight.normal_(0.0, 2.5 * weight[0].numel() ** -0.5, generator=generator)


def save(model: MoonshineForConditionalGeneration, folder: Path) -> None:
    """Writes the checkpoint with the configuration files that published ones have."""
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    rotation = config.pop("rope_parameters")
    config |= {"rope_theta": rotation["rope_theta"], "rope_scaling": None}
    config |= {"partial_rotary_factor": rotation["partial_rotary_factor"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def heard(seed: int, lengths: tuple[int, ...] = LENGTHS) -> list[np.ndarray]:
    """Random waveforms, each a chord with noise, or attention would find its states much alike."""
    rng = np.random.default_rng(seed)
    made = []
    for length in lengths:
        waves = rng.uniform(1e-3, 0.3, (3, 1)) * np.arange(length) ** rng.uniform(0.9, 1.1)
        made.append((0.2 * np.sin(waves).sum(0) + 0.1 * rng.normal(size=length)).astype(np.float32))
    return made


@torch.no_grad()
def logits(model: torch.nn.Module, audio: list[np.ndarray], target: np.ndarray) -> np.ndarray:
    """Teacher-forced logits [B, T, V], of each row on its own: a norm is over what is padded."""
    rows = []
    for waveform, tokens in zip(audio, target, strict=True):
        given = {"decoder_input_ids": torch.tensor(tokens[None], dtype=torch.long)}
        rows.append(model(input_values=torch.tensor(waveform[None]), **given).logits.numpy()[0])
    return np.stack(rows)


def greedy(model: Any, audio: list[np.ndarray], new_tokens: int = NEW_TOKENS) -> list[list[int]]:
    """Texts of `generate` up to and with their EOS, without the start token."""
    settings = {"max_new_tokens": new_tokens, "do_sample": False, "num_beams": 1}
    made = [
        model.generate(input_values=torch.tensor(waveform[None]), **settings)[0, 1:].tolist()
        for waveform in audio
    ]
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in made]


def main() -> None:
    model = build(6)
    save(model, FOLDER)
    audio = heard(5)
    target = np.random.default_rng(6).integers(3, VOCABULARY, (len(audio), 12))
    target[:, 0] = START
    found = greedy(model, audio)
    texts = np.full((len(audio), NEW_TOKENS), EOS, np.int32)
    for row, text in enumerate(found):
        texts[row, : len(text)] = text
    expected = {
        "heard": np.concatenate(audio),
        "samples": np.array([len(waveform) for waveform in audio], np.int32),
        "target": target.astype(np.int32),
        "logits": logits(model, audio, target),
        "texts": texts,
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in expected.items()}
    save_file(arrays, FOLDER / "expected.safetensors")
    print(found, np.abs(expected["logits"]).max())


if __name__ == "__main__":
    main()
