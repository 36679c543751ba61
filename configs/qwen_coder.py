"""Qwen2.5-Coder-0.5B-Instruct completes HumanEval's functions, drafted for without training.

    python -m specjax.main --config=configs/qwen_coder.py --workdir=runs/qwen_coder \
      --config.data.path=HumanEval.jsonl

Copies of the prompt, suffixes of all that was written, SmolLM2-135M-Instruct as a drafter with
another vocabulary, and the model itself with int8 weights. Local copies of the models are named by
`--config.target=DIR` and `--config.drafters.smollm2=DIR`. Time and results:
docs/lab_book/published.md.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="humaneval_chat",
        target="Qwen/Qwen2.5-Coder-0.5B-Instruct",
        drafters={"smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct", "int8": "target:int8"},
        chat=True,
        examples=40,
        max_prompt_tokens=768,
        max_new_tokens=256,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 6},
            "suffix": {"drafter": "suffix", "length": 6},
            "smollm2": neural_spec("smollm2", 3),
            "int8": neural_spec("int8", 3),
        },
    )
