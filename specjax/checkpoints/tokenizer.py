"""Tokenizers of checkpoints, and whether a drafter speaks its target's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from specjax.errors import UserError

FILE = "tokenizer.json"


def load_tokenizer(path: Path) -> Any:
    """The tokenizer in a checkpoint directory, None when it has no tokenizer files."""
    if not any(path.glob("tokenizer*")) and not any(path.glob("*.model")):
        return None
    try:
        return AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        if (path / FILE).exists():
            return PreTrainedTokenizerFast(tokenizer_file=str(path / FILE))
        raise UserError(f"tokenizer of {str(path)!r} cannot be read: {error}") from None


def check_same_vocabulary(name: str, drafter: Any, target: Any) -> None:
    """Refuses a drafter whose ids do not mean what the target's mean.

    Raises:
      UserError: when vocabulary sizes differ, or a piece has another id.
    """
    if drafter.model.vocab_size != target.model.vocab_size:
        raise UserError(
            f"drafter {name!r} has a vocabulary of {drafter.model.vocab_size}, "
            f"the target of {target.model.vocab_size}; they must be the same"
        )
    if drafter.tokenizer is None or target.tokenizer is None:
        return
    ours, theirs = drafter.tokenizer.get_vocab(), target.tokenizer.get_vocab()
    differing = sorted((theirs[p], p) for p in theirs if ours.get(p) != theirs[p])
    if differing:
        token, piece = differing[0]
        raise UserError(
            f"drafter {name!r} has another tokenizer than the target: piece {piece!r} is id"
            f" {token} for the target and {ours.get(piece, 'absent')} for the drafter"
        )
