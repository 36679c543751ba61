"""A folder with a random model that listens, read by transformers and by specjax."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch_models import maker, save, with_more_ends
from transformers import WhisperForConditionalGeneration, logging

import specjax

NEW_TOKENS, ROWS = 12, 3


class Speech:
    """A folder with a random model, whose JSON is written anew for every configuration."""

    def __init__(self, folder: Path, model: Any, end: int) -> None:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        save("whisper", with_more_ends(model, end), folder)
        self.folder = folder
        self.config = json.loads((folder / "config.json").read_text("utf-8"))
        self.heard = maker("whisper")["heard"](3, ROWS)

    def write(self, config: dict[str, Any], generation: dict[str, Any]) -> None:
        written = {"config": config, "generation_config": generation}
        for name, content in written.items():
            (self.folder / f"{name}.json").write_text(json.dumps(content), "utf-8")

    def their_rows(self) -> list[list[int]] | str:
        """Hugging Face's greedy rows with what they begin with, or why it has none."""
        try:
            model = WhisperForConditionalGeneration.from_pretrained(
                self.folder, dtype=torch.float32
            ).eval()
            return [self._row(model, one) for one in self.heard]
        except Exception as error:  # whatever it is, it decodes nothing
            return f"{type(error).__name__}: {error}"

    def _row(self, model: Any, heard: Any) -> list[int]:
        """In one call: else it would look for timestamps and go on behind them."""
        return model.generate(
            input_features=torch.tensor(heard[None]), do_sample=False, num_beams=1,
            max_new_tokens=NEW_TOKENS, force_unique_generate_call=True,
        )[0].tolist()  # fmt: skip

    def our_rows(self) -> tuple[list[list[int]], tuple[Any, ...]] | str:
        """Our greedy texts and what stands before them, or the sentence of the refusal."""
        try:
            target = specjax.load(self.folder)
            decode = specjax.Generator(target, max_new_tokens=NEW_TOKENS)
            head = target.model.info.start_token, *target.model.info.forced
            return decode(list(self.heard)).tokens, head
        except specjax.UserError as error:
            return str(error)


def same(theirs: list[list[int]], ours: list[list[int]], head: tuple[Any, ...]) -> bool:
    """Whether rows begin with the tokens of a head, or one of several, and go on alike."""
    for row in theirs:
        for token, forced in zip(row, head, strict=False):
            if token not in (forced if isinstance(forced, tuple) else (forced,)):
                return False
    return [row[len(head) :] for row in theirs] == ours
