"""A small model from scratch that shares a target's tokenizer.

    python -m specjax.main --config=configs/training/scratch.py --workdir=runs/scratch \
      --config.target=TARGET \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

`model.shape` is any shape in the words of Hugging Face's config.json; its vocabulary is the
target's. Without a target give `--config.model.tokenizer=DIR_OR_HUB_ID`. Layers of the target
instead: `model.checkpoint=TARGET model.decoder_layers=(0,)` in configs/training/finetune.py.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config
from specjax.experiments.recipes.common import MULTI30K


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    config = train_config(
        name="scratch",
        objective={"smoothing": 0.1},
        optimizer={
            "name": "relative_adam",
            "steps": 1200,
            "learning_rate": 2e-2,
            "warmup": 100,
        },
        evaluation={"every": 400},
        **MULTI30K,
    )
    config.model.shape = ConfigDict(
        {
            "model_type": "t5",
            "d_model": 160,
            "d_kv": 32,
            "d_ff": 512,
            "num_heads": 5,
            "num_layers": 2,
            "num_decoder_layers": 1,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": True,
            "scale_decoder_outputs": True,
        }
    )
    return config
