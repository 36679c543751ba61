"""The fields of a training config and their defaults."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from specjax.core.fields import side_by_side
from specjax.core.registry import OBJECTIVES
from specjax.experiments.config.defaults import (
    changed,
    chat_fields,
    data_fields,
    generation_fields,
    speech_fields,
)


def train_config(**changes: Any) -> ConfigDict:
    """A training run; fields of groups are changed as `optimizer={"steps": 100}`."""
    config = ConfigDict()
    config.experiment = "train"
    config.name = ""  # for progress bars and reports
    _add_model(config)
    _add_training_data(config)
    _add_steps(config)
    config.evaluation = ConfigDict(
        {
            "every": 500,  # steps; each one leaves a checkpoint
            "keep": "loss",  # what makes a checkpoint the best: loss, or a name of the others
            "batch_size": 32,
            "decode": True,  # score decoded outputs by the metric of `validation`
            "acceptance": (0.0, 1.0),  # temperatures, with a target; empty: not measured
        }
    )
    config.log = ConfigDict({"wandb_project": ""})  # of Weights & Biases, beside TensorBoard
    return changed(config, changes)


def _add_model(config: ConfigDict) -> None:
    """What is trained, what it looks at, and where."""
    config.model = ConfigDict(
        {
            "checkpoint": "",  # directory or hub id to start from; empty: `shape`, from scratch
            "decoder_layers": (),  # of the checkpoint, counted from 0; empty: all
            "encoder_layers": (),
            "shape": {},  # in the words of Hugging Face's config.json
            "frozen": (),  # names of its parameters that stay as they are, as embedding
            "tokenizer": "",  # directory or hub id; empty: the checkpoint's, or the target's
        }
    )
    # Directory or hub id: whose outputs, distributions or acceptance are looked at.
    config.target = ""
    config.update(generation_fields())
    config.speech = speech_fields()
    config.dtype = "float32"  # of the arithmetic; parameters are float32
    config.remat = False  # True: recompute layers in the backward pass, to save memory
    config.mesh = ConfigDict({"data": 1, "model": 1})  # devices that split batch and weights
    config.fully_sharded = True  # weights, gradients and the optimiser's state are split over
    # mesh.data too; False: whole there, which talks less where they fit
    config.topology = ""  # of --dry_run: TPU chips to compile for, as v4:2x2x1


def _add_training_data(config: ConfigDict) -> None:
    """What a model is trained and judged on."""
    config.train = data_fields()
    config.train.data.split = "train"
    config.validation = data_fields(examples=200)  # without a source: the last training rows
    config.validation.data.split = "validation"
    config.update(chat_fields())
    config.sequences = ConfigDict(  # shares of the steps
        {
            "data": 1.0,  # outputs of the training data
            "target": 0.0,  # what the target says to its inputs
            "drafter": 0.0,  # samples of the model in training, drawn anew (on-policy)
        }
    )
    config.target_outputs = ConfigDict({"temperature": 0.0, "batch_size": 64})


def _add_steps(config: ConfigDict) -> None:
    """What a step of training does."""
    config.objective = ConfigDict(  # the fields of all objectives; a run reads those of its own
        objective_fields("cross_entropy")
    )
    config.optimizer = ConfigDict(
        {
            "name": "adamw",  # adafactor, relative_adam
            "steps": 1000,
            "learning_rate": 1e-3,
            "warmup": 100,
            "decay": "linear",  # constant, cosine
            "weight_decay": 0.0,
            "clip": 1.0,  # global norm of the gradient; 0: none
        }
    )
    config.batch_size = 64
    config.accumulate = 1  # micro-batches that a batch is cut into
    config.bucket = 8  # rows are padded to multiples of it; each width compiles once
    config.dropout = 0.0
    config.learn_prompt = False  # decoder-only: True learns the prompts too (language modelling)
    config.max_prompt_tokens = 512
    config.max_output_tokens = 128
    config.seed = 0


def objective_fields(name: str) -> dict[str, Any]:
    """The fields of all objectives, the one called `name` chosen."""
    return {"name": name, **side_by_side(entry.cls for entry in OBJECTIVES.values())}
