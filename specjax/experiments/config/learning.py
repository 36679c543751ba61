"""Config schemas of training jobs: models, tables, tokenizers and policies."""

from __future__ import annotations

from typing import Any

from specjax.checks import TOKENS, Sizes, seed
from specjax.contracts.fields import (
    choice,
    flag,
    group,
    integer,
    is_number,
    is_positive,
    is_token,
    listing,
    mapping,
    names,
    number,
    text,
    whole,
)
from specjax.experiments.config.blocks import (
    Chat,
    Data,
    Examples,
    Generation,
    Mesh,
    Models,
    Placement,
    Speech,
    block,
    bucket_field,
    different_numbers,
    dtype_field,
    objective_field,
    strategies_field,
    topology_field,
)
from specjax.selection.fit import Fit
from specjax.selection.reward import Reward
from specjax.training.optimizer import Optimizer

HOTTEST = 2.0
"""Highest temperature at which acceptance is still informative."""


@block
class Online(Sizes, Models):
    """A stream of texts that one drafter learns from while it is decoded."""

    name: str = text(help="for reports")
    sources: dict[str, Any] = mapping(group(Examples), help="sources of texts: name -> fields")
    stream: tuple[str, ...] = names(help="the sources in the order in which they are decoded")
    strategies: dict[str, Any] = strategies_field("they take turns at every batch")
    learns: str = text(help="the strategy whose drafter learns between texts; empty: none")
    every: int = integer(8, help="texts between updates; an update learns from these")
    steps: int = integer(1, most=10**8, help="optimizer steps of an update")
    objective: dict[str, Any] = objective_field("distillation")
    optimizer: Optimizer = group(
        Optimizer,
        without=("steps",),
        learning_rate=5e-4,
        decay="constant",
        help="decay is to zero at the end of the stream",
    )
    bucket: int = bucket_field(32, "prompts and rows to learn are padded to multiples of it")
    blocks: int = integer(20, help="parts of the stream that plots show separately")


@block
class TrainedModel:
    """What is trained."""

    checkpoint: str = text(help="directory or hub id to start from; empty: `shape`, from scratch")
    decoder_layers: tuple[int, ...] = listing(
        "a list of numbers of layers, counted from 0",
        is_token,
        (),
        help="layers of the checkpoint to keep; empty: all",
    )
    encoder_layers: tuple[int, ...] = listing(
        "a list of numbers of layers, counted from 0", is_token, (), help="likewise"
    )
    shape: dict[str, Any] = mapping(help="in the fields of Hugging Face's config.json")
    frozen: tuple[str, ...] = names(help="parameters that are not trained, as embedding")
    tokenizer: str = text(help="directory or hub id; empty: the checkpoint's, or the target's")


def _share(default: float, help: str) -> Any:
    return number(default, bounds="[0, 1000000]", help=help)


@block
class Sequences:
    """Shares of training steps by kind of sequence."""

    data: float = _share(1.0, "outputs of the training data")
    target: float = _share(0.0, "the target's outputs for the training inputs")
    drafter: float = _share(0.0, "samples of the model in training, new at every step (on-policy)")


@block
class TargetOutputs:
    """How the target generates outputs to learn from."""

    temperature: float = number(0.0, bounds="[0, 1000]", help="0: greedy")
    batch_size: int = integer(64, most=2**20, help="rows of its decodes")


@block
class Evaluation:
    """How often and by which scores a model is evaluated."""

    every: int = integer(500, help="steps; each one leaves a checkpoint")
    keep: str = text("loss", help="the score that selects the best checkpoint: loss or another")
    batch_size: int = integer(32, most=2**20, help="rows of validation")
    decode: bool = flag(True, help="score decoded outputs by the metric of `validation`")
    acceptance: tuple[float, ...] = whole(
        f"a list of temperatures from 0 to {HOTTEST:g} that differ",
        different_numbers(HOTTEST),
        (0.0, 1.0),
        help="temperatures, with a target; empty: not measured",
    )


@block
class Log:
    """Where a run is logged in addition to TensorBoard."""

    wandb_project: str = text(help="project of Weights & Biases")


@block
class Train(Chat, Generation):
    """A training run; fields of groups are changed as `optimizer={"steps": 100}`."""

    name: str = text(help="for progress bars and reports")
    model: TrainedModel = group(TrainedModel)
    target: str = text(help="model for outputs, distributions or acceptance: directory or hub id")
    speech: Speech = group(Speech)
    dtype: str = dtype_field("of the arithmetic; parameters are float32")
    remat: bool = flag(help="recompute layers in the backward pass, to save memory")
    mesh: Mesh = group(Mesh, partial=True, help="devices that split batch and weights")
    fully_sharded: bool = flag(
        True,
        help="weights, gradients and the optimizer's state are split over mesh.data too",
    )
    topology: str = topology_field()
    train: Data = group(Data, data={"split": "train"})
    validation: Data = group(
        Data,
        examples=200,
        data={"split": "validation"},
        help="without a source: the last training rows",
    )
    sequences: Sequences = group(Sequences, help="shares of the steps")
    target_outputs: TargetOutputs = group(TargetOutputs)
    objective: dict[str, Any] = objective_field("cross_entropy")
    optimizer: Optimizer = group(Optimizer, warmup=100)
    batch_size: int = integer(64, most=2**20, help="rows of a step")
    accumulate: int = integer(1, help="micro-batches that a batch is cut into")
    bucket: int = bucket_field(8, "rows are padded to multiples of it; each width compiles once")
    dropout: float = number(0.0, bounds="[0, 0.99]", help="rate, for states and attention")
    learn_prompt: bool = flag(help="decoder-only: True learns the prompts too (language modeling)")
    max_prompt_tokens: int = integer(512, most=TOKENS, help="longer rows are left out")
    max_output_tokens: int = integer(128, most=TOKENS, help="likewise")
    seed: int = seed(help="seed of batches, dropout and samples")
    evaluation: Evaluation = group(Evaluation)
    log: Log = group(Log)


@block
class HeldOut:
    """Rows that figures are measured on."""

    heldout: int = integer(1000, help="rows, drawn at random, that the fit is measured on")
    seed: int = seed(help="seed of that draw")


@block
class Ngram(HeldOut, Examples):
    """N-gram tables from texts in the target's output format: a file or outputs of examples."""

    target: str = text(help="directory or hub id; its tokenizer and vocabulary, not its weights")
    text_file: str = text(
        help="text lines, or generated outputs as JSONL; instead of task, data and files"
    )
    successors: int = integer(64, help="successors kept of each token")
    smoothing: float = number(1e-3, bounds="[1e-12, 1000]", help="added to every count")


@block
class Tokenizer(HeldOut, Examples):
    """A tokenizer from text files, or from sources and references of examples."""

    kind: str = choice(
        ("bpe", "byte_bpe"), "bpe", help="as T5's; byte_bpe: for decoder-only models"
    )
    vocab_size: int = integer(8000, least=16, most=10**7, help="pieces at most")
    text_files: str = text(
        help="one segment per line, commas between; instead of task, data and files"
    )


@block
class SelectData(Sizes, Placement):
    """Offline data for choosing a drafter: outputs and times of every arm on every query."""

    tasks: dict[str, Any] = mapping(
        group(Examples, data={"split": "train"}), help="sets of queries"
    )
    strategies: dict[str, Any] = strategies_field("the arms")
    batch_size: int = integer(64, most=2**20, help="rows that generate together")
    repeats: int = integer(
        0, least=0, most=10**4, help="timed decodes of every query by every arm; 0: none"
    )
    bucket: int = bucket_field(8)
    max_prompt_tokens: int = integer(512, most=TOKENS, help="longer prompts are left out")


@block
class Select:
    """A policy that chooses a drafter; fields of groups are changed as `fit={"epochs": 10}`."""

    data: str = text(help="folder written by select_data")
    test: str = text(help="another such folder, for evaluation; empty: a share of `data`")
    heldout: float = number(0.1, bounds="[0.01, 0.9]", help="that share")
    arms: tuple[str, ...] = names(help="arms of the data, in the policy's order; empty: all")
    hidden: int = integer(512, help="units of each hidden layer")
    reward: Reward = group(Reward, help="the reward of a policy")
    fit: Fit = group(Fit, help="how a policy is trained")
    seed: int = seed(help="seed of the share and of training")


@block
class SelectCurve(Select):
    """Learning curves: number of training queries, and weight of alignment."""

    sizes: tuple[int, ...] = listing(
        "a list of integers of at least 1",
        is_positive,
        (),
        help="training queries; empty: 10, 30, 100, ... and all",
    )
    seeds: int = integer(5, most=10**4, help="seeds of the choice of queries and of training")
    align_weights: tuple[float, ...] = listing(
        "a list of numbers from 0 to 1",
        lambda x: is_number(x) and x <= 1,
        (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        help="weights of alignment against cost",
    )
