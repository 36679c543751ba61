"""SmolLM2-135M-Instruct answers MT-Bench in chats, drafted for by copies and trained drafters.

    python -m specjax.main --config=configs/smollm2.py --workdir=runs/smollm2 \
      --config.data.path=question.jsonl
    python -m specjax.main --workdir=runs/smollm2 --config.data.path=question.jsonl \
      --config=configs/smollm2.py:eagle=runs/smollm2_eagle/model,dflash=runs/smollm2_dflash/model

After the colon are drafters of `configs/training/smollm2.py`: `eagle`, `dflash`, or both. A local
copy of the model is named by `--config.target=DIR`. Both turns of each conversation are decoded,
the second after the model's own answer to the first. Other prompts: `--config.task=spec_bench`,
`humaneval_chat` or `alpaca` with `--config.data.path` of their file. Time and results:
docs/lab_book/published.md.
"""

from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config
from specjax.runtime.errors import UserError

TRAINED: dict[str, dict[str, dict[str, Any]]] = {
    "eagle": {
        "eagle_2": {"drafter": "eagle", "model": "eagle", "length": 2},
        "eagle_4": {"drafter": "eagle", "model": "eagle", "length": 4},
        "eagle_tree": {"drafter": "eagle", "model": "eagle", "nodes": 8, "widths": (3, 3, 2)},
        "eagle_copies": {
            "drafter": "eagle",
            "model": "eagle",
            "nodes": 8,
            "widths": (3, 3, 2),
            "copy_length": 8,
        },
    },
    "dflash": {"dflash_5": {"drafter": "dflash", "model": "dflash", "length": 5}},
}
"""Strategies with the drafters that a run may be given."""


def get_config(drafters: str = "") -> ConfigDict:
    """The experiment with drafters `eagle=DIR,dflash=DIR`; every field can be set by a flag."""
    config = decode_config(
        task="mt_bench",
        target="HuggingFaceTB/SmolLM2-135M-Instruct",
        chat=True,
        examples=40,
        max_prompt_tokens=1024,
        max_new_tokens=128,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 4},
            "suffix": {"drafter": "suffix", "length": 4},
        },
    )
    for part in filter(None, drafters.split(",")):
        name, _, place = part.partition("=")
        if name not in TRAINED or not place:
            raise UserError(
                f"--config=...:{drafters!r} has {part!r}; drafters are name=directory, with a name"
                f" of {', '.join(TRAINED)}"
            )
        config.drafters[name] = place
        config.strategies.update(TRAINED[name])
    return config
