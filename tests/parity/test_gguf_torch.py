"""GGUF files against transformers' own loading of the same files, in PyTorch."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf_files import TEXTS, write_gguf

torch = pytest.importorskip("torch")

from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

import specjax  # noqa: E402
from specjax.hf import huggingface  # noqa: E402

pytestmark = pytest.mark.slow

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_causal.py"))
VOCABULARY, PROMPTS, NEW_TOKENS = 320, 6, 24
Q = gguf.GGMLQuantizationType

WIDE = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 128,
}  # fmt: skip
UNSAID = {"query_pre_attn_scalar": 256, "attn_logit_softcapping": None}
"""What transformers takes where GGUF files of Gemma say nothing."""
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": False},
    "mistral": {"sliding_window": None},
    "qwen2": {"head_dim": None, "tie_word_embeddings": True},
    "qwen3": {"head_dim": 128, "tie_word_embeddings": True},
    "gemma2": {"sliding_window": 9, "query_pre_attn_scalar": 256},
    "gemma3_text": {"sliding_window": 9, "query_pre_attn_scalar": 256, "num_hidden_layers": 6},
    "phi3": {"sliding_window": None},
}
LEFT_OUT = ("attn_logit_softcapping", "final_logit_softcapping", "rope.freq_base_swa")
"""Keys of which transformers takes the family's defaults: ours are the same here."""


def file_of(folder: Path, family: str, kind: Any, **more: Any) -> Path:
    """A random model of a family as a GGUF file."""
    shape = WIDE | SHAPES[family]
    shape = {name: value for name, value in shape.items() if value is not None}
    if family in ("phi3", "mistral"):
        shape["sliding_window"] = None
    model = GOLDEN["build"](family, shape, seed=3)
    model.save_pretrained(folder / "folder")
    return write_gguf(folder / "m.gguf", folder / "folder", kind, without=LEFT_OUT, **more)


def theirs(file: Path) -> Any:
    """transformers' model of a file."""
    return AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    ).eval()


@torch.no_grad()
def generate_in_torch(model: Any, prompt: list[int], new: int) -> list[int]:
    """Greedy tokens of transformers, by the settings that it finds in the file."""
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False
    )
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize(
    "family,kind", [*((name, Q.F32) for name in SHAPES), ("llama", Q.Q8_0), ("phi3", Q.Q4_1)]
)
def test_tokens_of_a_file_are_those_of_transformers(tmp_path: Path, family: str, kind: Any) -> None:
    file = file_of(tmp_path, family, kind)
    model, loaded = theirs(file), specjax.load(file)
    prompts = GOLDEN["rows"](VOCABULARY, (12,) * PROMPTS, seed=1)[0].tolist()
    generator = specjax.Generator(loaded, {}, specjax.autoregressive(), max_new_tokens=NEW_TOKENS)
    found = generator(prompts).tokens
    assert found == [generate_in_torch(model, prompt, NEW_TOKENS) for prompt in prompts]
    assert len({token for row in found for token in row}) > NEW_TOKENS // 2
    tokens = np.array([prompts[0] + found[0]])
    made = loaded.model.teach(
        loaded.params, {"inputs": tokens, "length": np.array([tokens.shape[1]])}
    )[0]
    expected = GOLDEN["logits"](model, tokens)
    assert np.abs(np.asarray(made) - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(
    "family,kind",
    [("llama", "gpt2"), ("llama", "llama"), ("qwen2", "gpt2"), ("gemma3_text", "llama"),
     ("phi3", "llama"), ("phi3", "gpt2")],
)  # fmt: skip
def test_tokenizers_are_those_of_transformers(tmp_path: Path, family: str, kind: str) -> None:
    file = file_of(tmp_path, family, Q.F32, tokenizer=kind)
    expected = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    found = specjax.load(file).tokenizer
    assert found.get_vocab() == expected.get_vocab()
    assert found.chat_template == expected.chat_template
    for text in (*TEXTS, "", "  two", "a <s> b</s>", "<|endoftext|>日本語 🙂"):
        ids = found(text).input_ids
        assert ids == expected(text).input_ids
        for skip in (False, True):
            assert found.decode(ids, skip_special_tokens=skip) == expected.decode(
                ids, skip_special_tokens=skip
            )
    for name in ("bos_token_id", "eos_token_id", "unk_token_id", "pad_token_id"):
        assert getattr(found, name) == getattr(expected, name)


@pytest.mark.parametrize("rope_type", ["llama3", "linear"])
def test_a_scaled_rotation_is_that_of_the_model_that_the_file_was_made_of(
    tmp_path: Path, rope_type: str
) -> None:
    """Their loading of GGUF files leaves `rope_freqs.weight` and `rope.scaling` out."""
    rope = {"rope_type": rope_type, "rope_theta": 500.0, "factor": 4.0}
    rope = GOLDEN["STRETCHED"] if rope_type == "llama3" else rope
    model = GOLDEN["build"]("llama", WIDE | {"rope_parameters": rope}, seed=3)
    model.save_pretrained(tmp_path / "folder")
    loaded = huggingface.load(write_gguf(tmp_path / "m.gguf", tmp_path / "folder"))
    tokens, _ = GOLDEN["rows"](VOCABULARY, (90, 90), seed=2)
    made = loaded.model.teach(loaded.params, {"inputs": tokens, "length": np.array([90, 90])})[0]
    expected = GOLDEN["logits"](model, tokens)
    assert np.abs(np.asarray(made) - expected).max() < 1e-4 * np.abs(expected).max()
