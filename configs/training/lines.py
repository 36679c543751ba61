"""A small model that reads lines of text in images, from scratch: ViT before a BART decoder.

    python benchmarks/rendered_lines.py --text=train.en.gz --out=lines --count=20000
    python -m specjax.main --config=configs/tokenizer.py --workdir=runs/tokenizer \
      --config.text_files=train.en.gz --config.vocab_size=1000
    python -m specjax.main --config=configs/training/lines.py --workdir=runs/lines \
      --config.model.tokenizer=runs/tokenizer/tokenizer --config.train.data.path=lines/train.jsonl
    python -m specjax.main --config=configs/training/lines.py --dry_run

Rows have `image`, the path of a file, and `text`. The encoder is trained too, because its weights
are random; a drafter on it is made by configs/training/trocr.py. Patches of each file are computed
once and lie in the workdir (18 KB a line).

Resources: two CPU cores and 0.1 GB. Not run here: 4,000 steps of 32 rows taught a smaller model the
words of its lines, not yet their letters: 15% of those of held-out lines were right, and 20% after
2,000 steps where lines began as their sentences do.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    config = train_config(
        name="lines",
        train={"task": "read_image"},
        validation={"examples": 200},  # the last rows
        optimizer={"steps": 1500, "learning_rate": 1e-3, "warmup": 100},
        evaluation={"every": 500, "batch_size": 50, "keep": "character_accuracy"},
        batch_size=64,
        bucket=16,
        max_output_tokens=32,
    )
    config.model.shape = ConfigDict(
        {
            "model_type": "vision-encoder-decoder",
            "vocab_size": 1000,
            "encoder": {
                "model_type": "vit",
                "hidden_size": 128,
                "intermediate_size": 512,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "image_size": (16, 192),
                "patch_size": (16, 8),
                "num_channels": 3,
            },
            "decoder": {
                "model_type": "trocr",
                "d_model": 128,
                "decoder_layers": 4,
                "decoder_attention_heads": 4,
                "decoder_ffn_dim": 512,
                "max_position_embeddings": 64,
                "dropout": 0.0,
                "cross_attention_hidden_size": 128,
            },
        }
    )
    return config
