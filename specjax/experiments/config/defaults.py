"""The fields of configs and their defaults; config files change what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config.file import read_config


def decode_config(**changes: Any) -> ConfigDict:
    """A decode experiment; every field can be set by a flag such as `--config.batch_size=4`."""
    config = ConfigDict()
    config.experiment = "decode"
    config.name = ""  # of the data, for tables and reports

    config.update(model_fields())
    config.heads = ""  # file of parallel heads, or folder or hub id of published ones; empty: none
    config.draft_tokens = 0  # ids of their vocabulary that speech drafters draft: the first ones,
    # with EOS, special tokens and times; 0: all
    config.prices = ConfigDict()  # of a call by model, for the standardised walltime improvement;
    # empty: numbers of parameters
    config.speech = speech_fields()
    config.topology = ""  # of --dry_run: TPU chips to compile for, as v4:2x2x1
    config.acceptance = ""  # that it predicts from: a number, NAME=NUMBER,..., or a results.json

    config.update(data_fields())
    config.examples = 200  # 0: all
    config.update(chat_fields())
    config.ngram_table = ""  # what `configs/ngram.py` wrote; empty: fitted from the next two
    config.ngram_file = ""  # text to fit n-grams from; empty: rows that are not decoded
    config.ngram_examples = 1000  # of a task, read beyond `examples` when a strategy needs them
    config.corpus_file = ""  # texts that suffix drafters search: lines, or JSON rows of the task
    config.corpus_split = ""  # of the task's source, as "train", instead; both empty: as ngram_file
    config.corpus_tokens = 1048576  # of these texts the last ones, as many as fit

    config.batch_size = 1  # texts that are decoded together
    config.max_new_tokens = 64  # of an output at most
    config.max_prompt_tokens = 512  # longer prompts are refused
    config.bucket = 0  # prompts are padded to multiples of it, and each width is compiled; 0: to
    # the few widths by which padding is at most a tenth of all positions
    config.invariant = False  # True: every call of the target feeds as many tokens, so that greedy
    # outputs agree in half precision too, and take longer (docs/how_to/half_precision.md)
    config.repeats = 3  # timed decodes of every batch by every strategy
    config.seed = 0  # of what is drawn at temperatures above 0
    config.profile_rounds = 0  # of every strategy, for TensorBoard or Perfetto; 0: no profile
    config.overwrite = False  # True: a workdir that holds results is decoded into again

    config.strategies = ConfigDict()  # what is compared: name -> drafter, rule, their fields
    config.only = ""  # some of them, commas between, beside the baseline; empty: all
    config.sweep = ConfigDict()  # of configs/sweep.py when it is given no grid: strategy -> fields
    for field, value in changes.items():
        config[field] = ConfigDict(value) if isinstance(value, dict) else value
    return config


def model_fields() -> ConfigDict:
    """The target and its drafters, how they lie on devices and what their texts are like."""
    config = ConfigDict()
    config.target = ""  # directory or hub id; :bfloat16, :int8 or :int4 behind it shrinks weights
    config.drafter = ""  # the same of the model called "drafter", if there is one; target:int8, as
    # an example, is the target's own checkpoint with small weights (docs/methods/small_weights.md)
    config.drafters = ConfigDict()  # more of them: name -> directory or hub id, as by the flag
    # --config.drafters.small=DIR
    config.dtype = "float32"  # bfloat16 on TPU and GPU
    config.mesh = ConfigDict({"data": 1, "model": 1})  # devices that split batch and weights
    config.drafter_ways = ConfigDict()  # by drafter: devices of mesh.model that share it; 1, where
    # none are given: every device holds it whole; 0: all, as the target
    config.pad_heads = False  # True: where heads do not divide by the devices that share a model,
    # heads of zeros are added: same tokens, and each device reads fewer weights
    config.update(generation_fields())
    config.source_language = ""  # of prompts, as eng_Latn, where the tokenizer has codes
    config.target_language = ""  # of texts, likewise, by their first token; empty: as they begin
    config.least_shared = 0.1  # the share of the target's tokens that a drafter with another
    # tokenizer must have
    return config


def generation_fields() -> ConfigDict:
    """What is made of a checkpoint's generation_config.json."""
    config = ConfigDict()
    config.ignore_generation_config = False  # True: decode as if it held special tokens only
    config.generation = ConfigDict()  # its fields otherwise, as min_length=5; None: off
    return config


def chat_fields() -> ConfigDict:
    """How prompts become messages of a chat."""
    config = ConfigDict()
    config.chat = False  # True: prompts are a user's messages in the model's chat template
    config.system = ""  # what a chat begins with; empty: nothing
    config.chat_template_kwargs = ConfigDict()  # variables of the template: enable_thinking=False
    return config


def engagement_config(**changes: Any) -> ConfigDict:
    """How seldom the target must step in: every drafter under an oracle, at several thresholds."""
    config = decode_config(repeats=1)
    del config.strategies, config.only, config.sweep  # it makes its own
    del config.topology, config.acceptance
    config.experiment = "engagement"
    # The target writes where it gives the drafter's token a probability below the threshold.
    config.thresholds = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.1)
    config.update(changes)
    return config


def beams_config(**changes: Any) -> ConfigDict:
    """Beam searches side by side; those that draft are compared with the first that does not."""
    config = decode_config()
    for field in (
        "acceptance", "corpus_file", "corpus_split", "corpus_tokens", "draft_tokens",
        "drafter_ways", "heads",
        "invariant", "least_shared", "mesh", "only", "pad_heads", "prices", "profile_rounds",
        "seed", "speech", "sweep", "topology",
    ):  # fmt: skip
        del config[field]
    config.experiment = "beams"
    config.bucket = 8  # prompts are padded to multiples of it; each width compiles once
    config.update(changes)
    return config


def speech_fields() -> ConfigDict:
    """What a speech model is asked for."""
    config = ConfigDict()
    config.language = ""  # as en or english; empty: its checkpoint's, or detected for each text
    config.task = ""  # transcribe, or translate: into English; empty: the checkpoint's
    config.timestamps = False  # True: tokens that say when words were said stand between them
    return config


def data_fields(**changes: Any) -> ConfigDict:
    """Where examples with a metric come from; `experiments.data.load_data` reads them."""
    config = example_fields()
    config.metric = ""  # empty: the task's, or none
    config.update(changes)
    return config


def example_fields() -> ConfigDict:
    """Where examples come from; `experiments.data.stream` reads them."""
    config = ConfigDict()
    # Data: a task with its prompts, references and metric, read from its own or another source ...
    config.task = ""  # its name; empty: plain files
    config.data = ConfigDict(
        {
            "kind": "",  # hub, parquet, tfds, json, tsv, text, grammar; empty: the task's source
            "path": "",
            "reference_path": "",
            "subset": "",
            "split": "",
            "data_dir": "",
        }
    )
    # ... or plain files: text with one segment per line, or JSONL; gzip by the ending.
    config.source_file = ""  # what models read
    config.reference_file = ""  # what outputs are scored by
    config.source_field = "source"  # of JSONL
    config.reference_field = "reference"
    config.group_field = ""  # by which decodes tell their figures apart; empty: by none
    config.prefix = ""  # put before every source

    config.examples = 0  # how many; 0: all
    return config


def ngram_config(**changes: Any) -> ConfigDict:
    """Tables of n-grams from what a target decodes: a text file, or outputs of examples."""
    config = ConfigDict()
    config.experiment = "ngram"
    config.target = ""  # directory or hub id; its tokenizer and vocabulary, not its weights
    config.text_file = ""  # text lines, or generated outputs as JSONL; instead of the next fields
    config.update(example_fields())
    config.successors = 64  # kept of each token
    config.smoothing = 1e-3  # added to every count
    config.heldout = 1000  # rows, drawn at random, that perplexity and accuracy are measured on
    config.seed = 0  # of that draw
    config.update(changes)
    return config


def select_data_config(tasks: Mapping[str, Mapping[str, Any]], **changes: Any) -> ConfigDict:
    """Offline data for choosing a drafter; `tasks` give fields of `example_fields` by name."""
    config = ConfigDict()
    config.experiment = "select_data"
    config.update(model_fields())
    config.tasks = ConfigDict()  # sets of queries
    for name, fields in tasks.items():
        config.tasks[name] = example_fields()
        config.tasks[name].data.split = "train"
        config.tasks[name].update(fields)
    config.strategies = ConfigDict()  # the arms
    config.batch_size = 64  # of generation
    config.repeats = 0  # timed decodes of every query by every arm; 0: nothing is timed
    config.max_new_tokens = 64
    config.max_prompt_tokens = 512  # longer prompts are left out
    config.bucket = 8  # prompts are padded to multiples of it; each width compiles once
    config.seed = 0
    for field, value in changes.items():
        config[field] = ConfigDict(value) if isinstance(value, dict) else value
    return config


def select_config(**changes: Any) -> ConfigDict:
    """A policy that chooses a drafter; fields of groups are changed as `fit={"epochs": 10}`."""
    config = ConfigDict()
    config.experiment = "select"
    config.data = ""  # folder that select_data has made
    config.test = ""  # another one, to judge by; empty: a share of `data`
    config.heldout = 0.1  # that share
    config.arms = ()  # of the data, in the policy's order; empty: all
    config.hidden = 512  # units of each hidden layer
    config.reward = ConfigDict(
        {
            "kind": "alignment",  # with the target, and cheapness; or speedup, as it was measured
            "measure": "rouge_l",  # of alignment; or token_lcs
            "align_weight": 0.5,  # of alignment against cheapness
            "unit": 1e9,  # parameters that cheapness counts in
        }
    )
    config.fit = ConfigDict(
        {
            "objective": "exact",  # or reinforce
            "baseline": False,  # of reinforce
            "epochs": 3,
            "batch_size": 64,
            "learning_rate": 1e-3,
            "weight_decay": 1e-2,
            "b1": 0.9,
            "b2": 0.99,
            "eps": 1e-8,
        }
    )
    config.seed = 0
    return changed(config, changes)


def select_curve_config(**changes: Any) -> ConfigDict:
    """What training queries and the weight of alignment are worth; no fields beyond these."""
    config = select_config()
    config.experiment = "select_curve"
    config.sizes = ()  # training queries; empty: 10, 30, 100, ... and all
    config.seeds = 5  # of the choice of queries and of training
    config.align_weights = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    config.update(changes)
    return config


def tokenizer_config(**changes: Any) -> ConfigDict:
    """A tokenizer from text files, or from sources and references of examples."""
    config = ConfigDict()
    config.experiment = "tokenizer"
    config.kind = "bpe"  # as T5's; byte_bpe: for decoder-only models
    config.vocab_size = 8000
    config.text_files = ""  # one segment per line, commas between; instead of the next fields
    config.update(example_fields())
    config.heldout = 1000  # texts, drawn at random, that the fit is measured on
    config.seed = 0  # of that draw
    config.update(changes)
    return config


def changed(config: ConfigDict, changes: Mapping[str, Any]) -> ConfigDict:
    """The config with fields changed; of a group those that a dictionary names."""
    for field, value in changes.items():
        if isinstance(value, dict):
            config[field].update(value)
        else:
            config[field] = value
    return config


def compare_config(**changes: Any) -> ConfigDict:
    """Finished decode runs side by side."""
    config = ConfigDict()
    config.experiment = "compare"
    config.runs = ""  # their workdirs, commas between; the others are compared with the first
    config.seed = 0  # of the examples that are drawn for the intervals
    config.update(changes)
    return config


def sweep_config(
    base: str | ConfigDict, grid: Mapping[str, Sequence[Any]], **changes: Any
) -> ConfigDict:
    """Runs of a decode config, or of a file's (`FILE` or `FILE:WORDS`), over a grid.

    The grid gives values by dotted field; flags set it as `--config.grid.seed='(0, 1)'`.
    """
    config = ConfigDict()
    config.experiment = "sweep"
    config.base = read_config(base) if isinstance(base, str) else base
    nested: dict[str, Any] = {}
    for field, values in grid.items():
        *path, last = field.split(".")
        node = nested
        for part in path:
            node = node.setdefault(part, {})
        node[last] = tuple(values)
    config.grid = ConfigDict(nested)
    config.strategies = ()  # of the base, decoded beside its baselines; empty: all
    config.apart = False  # True: fields of different strategies are not crossed, each runs alone
    config.update(changes)
    return config


def tune_config(
    base: str | ConfigDict, space: Mapping[str, Sequence[Any]], **changes: Any
) -> ConfigDict:
    """A search for the best setting of a strategy of a decode config, or of a file's.

    The space gives values by field of the strategy; empty: its draft length and, where it has one,
    its confidence stop. Beside draft lengths the shapes of trees may be searched (`tree_nodes`).
    """
    config = ConfigDict()
    config.experiment = "tune"
    config.base = read_config(base) if isinstance(base, str) else base
    config.strategy = ""  # of the base; empty: the first with a neural drafter
    config.space = ConfigDict({field: tuple(values) for field, values in space.items()})
    config.tree_nodes = 0  # most nodes of trees that are searched beside chains; 0: no trees
    config.objective = "time"  # or "swi": the price of all calls, for all candidates
    config.budget_seconds = 300.0  # of the whole search, loading and compiling included
    config.probe_examples = 32  # decoded to predict candidates of all draft lengths
    config.margin = 0.2  # candidates predicted to be slower than the best by more are not run
    config.contenders = 6  # candidates that are run at most
    config.first_examples = 16  # of the first round; each later one has twice as many
    config.quality_loss = 0.5  # allowed points of the metric, where outputs change
    config.quality_examples = 50  # of the first round at least, where outputs change
    config.update(changes)
    return config


def neural(model: str, length: int, temperature: float = 0.0, **fields: Any) -> dict[str, Any]:
    """A strategy that drafts `length` tokens with `model`, under a lossless rule by default."""
    drawn = {"temperature": temperature} if temperature else {}
    return {"drafter": "neural", "model": model, "length": length, **fields, **drawn}


def bild(fallback: float, rollback: float | str, **fields: Any) -> dict[str, Any]:
    """A strategy of the Big Little Decoder; `rollback` "inf" drops nothing."""
    return {"drafter": "bild", "fallback": fallback, "rollback": rollback, **fields}


def cascade(
    drafters: Sequence[str], matrix: Sequence[Sequence[int]], **fields: Any
) -> dict[str, Any]:
    """A strategy whose drafters review each other, the largest first, by a matrix K."""
    rows = tuple(map(tuple, matrix))  # tuples: flags set no lists
    return {"drafter": "cascade", "drafters": tuple(drafters), "matrix": rows, **fields}


AUTOREGRESSIVE = {"drafter": "none"}
SAMPLED = {"drafter": "none", "temperature": 1.0}
