"""The tokenizer and chat template in a GGUF file's metadata, by transformers' conversion.

`AutoTokenizer` with `gguf_file` needs PyTorch, to read the same metadata; the conversion does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from specjax.hf.families.schema import format_value, is_int
from specjax.hf.gguf.header import ARCHITECTURE, Texts, read_header
from specjax.runtime.errors import UserError

MODEL = "tokenizer.ggml.model"
WITHOUT = ("none", "no_vocab")
"""The key's value in files without a tokenizer."""
SENTENCEPIECE = "llama"

SPECIAL = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
"""Special tokens, and the keys after `tokenizer.ggml.` that have their ids."""


def read_tokenizer(path: Path) -> Any:
    """The tokenizer in a GGUF file; None where it has none.

    Raises:
      UserError: when it cannot be read.
    """
    metadata = read_header(path).metadata
    if metadata.get(MODEL) in (None, *WITHOUT):
        return None
    mapping, convert = _conversion()
    fields, described = (
        {name: _read(metadata[f"tokenizer.{key}"]) for key, name in names.items()
         if f"tokenizer.{key}" in metadata}
        for names in (mapping["tokenizer"], mapping["tokenizer_config"])
    )  # fmt: skip
    if fields["tokenizer_type"] == SENTENCEPIECE:
        described.setdefault("add_bos_token", True)  # the default of older files
    described |= _special_tokens(path, metadata, fields.get("tokens"))
    # Incomplete vocabularies raise various exceptions.
    try:
        backend, more = convert(metadata[ARCHITECTURE], fields)
        return PreTrainedTokenizerFast(tokenizer_object=backend, **described, **more)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN_OF_REASON]
        raise UserError(f"tokenizer of {str(path)!r} cannot be read: {reason}") from None


SHOWN_OF_REASON = 200
"""Most characters of another library's message in an error."""


def _read(value: Any) -> Any:
    return value.read() if isinstance(value, Texts) else value


def _special_tokens(path: Path, metadata: Mapping[str, Any], tokens: Any) -> dict[str, Any]:
    """The special tokens by their names; None where the file has no id."""
    special = {}
    for name, key in SPECIAL.items():
        token = metadata.get(f"tokenizer.ggml.{key}")
        count = len(tokens) if isinstance(tokens, list) else 0
        if token is not None and not (is_int(token) and 0 <= token < count):
            raise UserError(
                f"tokenizer of {str(path)!r} cannot be read: tokenizer.ggml.{key} is"
                f" {format_value(token)}, which is no token of tokenizer.ggml.tokens"
            )
        special[name] = None if token is None else tokens[token]
    return special


def _conversion() -> tuple[Any, Any]:
    """The table of keys and the conversion of transformers."""
    try:
        from transformers.integrations.gguf.gguf_tokenizer_mapping import (
            GGUF_TOKENIZER_MAPPING,
            convert_gguf_tokenizer,
        )
    except ImportError:
        raise UserError(
            "tokenizers of GGUF files need transformers 5.24 or newer: pip install 'specjax[gguf]'"
        ) from None
    return GGUF_TOKENIZER_MAPPING, convert_gguf_tokenizer
