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


SHOWN = 3
"""Differing pieces that a refusal shows."""


def check_same_vocabulary(name: str, drafter: Any, target: Any) -> None:
    """Refuses a drafter whose ids do not mean what the target's mean.

    Widths may differ: they are padded to round numbers (`models.narrowed` cuts what is not common).

    Raises:
      UserError: when a piece has another id, or a vocabulary is too small for the tokenizer.
    """
    if drafter.tokenizer is None or target.tokenizer is None:
        _check_widths(name, drafter, target)
        return
    ours, theirs = drafter.tokenizer.get_vocab(), target.tokenizer.get_vocab()
    differing = sorted((theirs[p], p) for p in theirs if ours.get(p) != theirs[p])
    if differing:
        shown = "; ".join(
            f"{piece!r} is id {token} for the target and {ours.get(piece, 'absent')} for the"
            " drafter"
            for token, piece in differing[:SHOWN]
        )
        raise UserError(
            f"drafter {name!r} has another tokenizer than the target, {len(differing)} of"
            f" {len(theirs)} pieces differ: {shown}"
        )
    if drafter.model.vocab_size <= max(theirs.values()):
        raise UserError(
            f"drafter {name!r} has a vocabulary of {drafter.model.vocab_size}, too small for the"
            f" ids up to {max(theirs.values())} of its target's tokenizer"
        )


def _check_widths(name: str, drafter: Any, target: Any) -> None:
    """Without tokenizers only equal widths are a sign of the same vocabulary."""
    if drafter.model.vocab_size != target.model.vocab_size:
        raise UserError(
            f"drafter {name!r} has a vocabulary of {drafter.model.vocab_size}, the target of"
            f" {target.model.vocab_size}; without tokenizers to compare they must be the same"
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
