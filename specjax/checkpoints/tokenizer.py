"""Tokenizers of checkpoints, and whether a drafter speaks its target's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer
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


PAD, EOS, UNKNOWN = "<pad>", "</s>", "<unk>"
"""Special tokens of a tokenizer trained here: ids 0, 1 and 2, as T5 has them."""


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-pair tokenizer of at most `vocab_size` pieces that appends EOS, as T5's does."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.NFKC()
    # Punctuation apart, or every word would be learnt again with a full stop behind it.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = BpeTrainer(
        vocab_size=vocab_size, special_tokens=[PAD, EOS, UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", special_tokens=[(EOS, tokenizer.token_to_id(EOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN
    )
