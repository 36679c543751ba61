"""Bad inputs of the command line, by experiment: what is given, and words of the refusal.

`{pair}` is a folder with two tiny models and their text, `{bad}` one of files that cannot be used
(`bad_files`), `{workdir}` one with results that must stay.
"""

from __future__ import annotations

from collections.abc import Iterator

Row = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Experiment, flags beyond its base, words."""

_PAIR = ("--config.target={pair}/target", "--config.drafter={pair}/drafter")
_FILES = ("source_file={pair}/source.txt", "reference_file={pair}/reference.txt")
_TRANSLATE = "configs/translate.py"
_TRAIN = (
    "--config=configs/training/finetune.py",
    "--config.model.checkpoint={pair}/drafter",
    "--config.train.task=",
    *(f"--config.train.{each}" for each in _FILES),
    "--config.train.metric=bleu",
    "--config.validation.task=",
    "--config.validation.examples=10",
    "--config.batch_size=8",
    "--config.evaluation.batch_size=8",
)

BASES: dict[str, tuple[str, ...]] = {
    "decode": (
        f"--config={_TRANSLATE}",
        *_PAIR,
        *(f"--config.{each}" for each in _FILES),
        "--config.examples=3",
        "--config.max_new_tokens=6",
        "--config.repeats=1",
        "--config.bucket=64",
    ),
    "train": _TRAIN,
    "distill": (
        *_TRAIN,
        "--config.target={pair}/target",
        "--config.objective.name=distillation",
        "--config.objective.smoothing=0",
    ),
    "ngram": (
        "--config=configs/ngram.py",
        "--config.target={pair}/target",
        "--config.text_file={pair}/reference.txt",
    ),
    "tokenizer": ("--config=configs/tokenizer.py", "--config.text_files={pair}/source.txt"),
    "tune": (
        f"--config=configs/tune.py:{_TRANSLATE}",
        "--config.base.target={pair}/target",
        "--config.base.drafter={pair}/drafter",
        *(f"--config.base.{each}" for each in _FILES),
    ),
    "sweep": (
        f"--config=configs/sweep.py:{_TRANSLATE};seed=0,1",
        "--config.base.target={pair}/target",
        "--config.base.drafter={pair}/drafter",
        *(f"--config.base.{each}" for each in _FILES),
    ),
    "select": ("--config=configs/selection/policy.py",),
    "select_curve": ("--config=configs/selection/curve.py",),
    "select_data": (
        "--config=configs/selection/data.py:none,small={pair}/drafter",
        "--config.target={pair}/target",
        *(f"--config.tasks.queries.{each}" for each in _FILES),
    ),
    "no_tasks": (
        "--config=configs/selection/data.py:none,small={pair}/drafter",
        "--config.target={pair}/target",
    ),
    "engagement": (
        "--config=configs/engagement.py",
        *_PAIR,
        *(f"--config.{each}" for each in _FILES),
    ),
    "beams": (
        "--config=configs/beams.py",
        *_PAIR,
        *(f"--config.{each}" for each in _FILES),
    ),
    "quickstart": ("--config=configs/quickstart.py",),
    "compare": ("--config=configs/compare.py",),
    "bare": (),
}

HUGE = "1000000000000"
_NO_INTEGER = ("many", "1.5")

INTEGERS: dict[str, dict[str, int]] = {
    "decode": {
        "batch_size": 1,
        "max_new_tokens": 1,
        "max_prompt_tokens": 1,
        "bucket": 0,
        "repeats": 1,
        "profile_rounds": 0,
        "examples": 0,
        "ngram_examples": 0,
        "corpus_tokens": 16,
        "seed": 0,
        "mesh.data": 1,
        "mesh.model": 1,
    },
    "train": {
        "batch_size": 1,
        "accumulate": 1,
        "bucket": 1,
        "max_prompt_tokens": 1,
        "max_output_tokens": 1,
        "seed": 0,
        "optimizer.steps": 1,
        "optimizer.warmup": 0,
        "evaluation.every": 1,
        "evaluation.batch_size": 1,
        "target_outputs.batch_size": 1,
        "objective.heads": 1,
        "objective.head_width": 0,
    },
    "ngram": {"successors": 1, "heldout": 1, "examples": 0, "seed": 0},
    "tokenizer": {"vocab_size": 16, "heldout": 1, "examples": 0, "seed": 0},
    "tune": {
        "tree_nodes": 0,
        "probe_examples": 1,
        "contenders": 1,
        "first_examples": 1,
        "quality_examples": 1,
    },
    "select": {"hidden": 1, "seed": 0, "fit.epochs": 1, "fit.batch_size": 1},
    "select_curve": {"seeds": 1},
    "select_data": {
        "batch_size": 1,
        "max_new_tokens": 1,
        "max_prompt_tokens": 1,
        "bucket": 1,
        "repeats": 0,
        "seed": 0,
        "tasks.queries.examples": 0,
    },
    "beams": {
        "batch_size": 1,
        "max_new_tokens": 1,
        "repeats": 1,
        "strategies.beams.beams": 1,
        "strategies.beams.sequences": 1,
        "strategies.speculative_1.length": 1,
        "strategies.speculative_1.width": 0,
    },
    "quickstart": {
        "training.examples": 1,
        "training.test_examples": 1,
        "training.vocab_size": 16,
        "training.target.d_model": 1,
        "training.target.steps": 1,
        "training.most_tokens": 1,
        "training.drafter.warmup": 0,
    },
}
"""Fields and the least that they may be: less, a huge number, and no integers are refused."""


def _integers() -> Iterator[Row]:
    for experiment, fields in INTEGERS.items():
        for field, least in fields.items():
            for value in (str(least - 1), HUGE):
                yield experiment, (f"--config.{field}={value}",), (field.partition(".")[0],)
        for value in _NO_INTEGER:
            yield experiment, (f"--config.{next(iter(fields))}={value}",), (value,)


_NUMBERS: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {
        "dropout": ("-0.1", "1", "nan"),
        "optimizer.learning_rate": ("0", "-1", "inf", "fast"),
        "optimizer.clip": ("-1",),
        "optimizer.weight_decay": ("-5", "nan", "1e9"),
        "target_outputs.temperature": ("-1", "nan"),
        "sequences.data": ("-1", "nan"),
        "sequences.target": ("-1",),
        "sequences.drafter": ("inf",),
        "objective.smoothing": ("-0.1", "1"),
        "objective.label_weight": ("2",),
        "objective.temperature": ("0", "nan"),
    },
    "ngram": {"smoothing": ("0", "-1", "nan")},
    "tune": {
        "budget_seconds": ("0", "-1", "nan", "inf"),
        "margin": ("-1", "2", "nan"),
        "quality_loss": ("-1", "nan", "200"),
    },
    "select": {
        "heldout": ("0", "1", "nan"),
        "reward.align_weight": ("-1", "2", "nan"),
        "reward.unit": ("0", "inf"),
        "fit.learning_rate": ("0", "nan"),
        "fit.weight_decay": ("-5",),
        "fit.b1": ("1",),
        "fit.eps": ("0",),
    },
}

_CHOICES: dict[str, tuple[str, ...]] = {
    "decode": ("dtype", "metric", "task"),
    "train": (
        "dtype",
        "objective.name",
        "objective.exits",
        "objective.exit_weights",
        "objective.divergence",
        "objective.trunk",
        "optimizer.name",
        "optimizer.decay",
    ),
    "ngram": ("task",),
    "tokenizer": ("kind", "task"),
    "tune": ("objective", "strategy", "base.metric"),
    "select": ("reward.kind", "reward.measure", "fit.objective"),
    "select_data": ("dtype", "tasks.queries.task"),
    "bare": ("experiment",),
}


def _words() -> Iterator[Row]:
    for experiment, fields in _NUMBERS.items():
        for field, values in fields.items():
            for value in values:
                yield experiment, (f"--config.{field}={value}",), (field.rpartition(".")[2],)
    for experiment, fields in _CHOICES.items():
        for field in fields:
            yield experiment, (f"--config.{field}=foo",), (field.rpartition(".")[2], "foo")


_STRATEGIES: dict[str, tuple[str, ...]] = {
    "speculative_3.length=0": ("speculative_3.length", "at least 1"),
    "speculative_3.length=-1": ("speculative_3.length",),
    f"speculative_3.length={HUGE}": ("speculative_3.length", "at most 1,000"),
    "speculative_3.length=2000": ("speculative_3.length", "2000"),
    "speculative_3.length=x": ("speculative_3.length", "x"),
    "speculative_3.model=other": ("speculative_3", "'other'", "target, drafter"),
    "speculative_3.model=": ("speculative_3.model",),
    "speculative_3.drafter=foo": ("speculative_3.drafter", "foo", "neural"),
    "speculative_3.lenience=0.5": ("lenience",),
    "lenient.lenience=1.5": ("lenient.lenience",),
    "lenient.lenience=0": ("lenient.lenience",),
    "lenient.lenience=nan": ("lenient.lenience",),
    "lenient.rule=strict": ("lenient.rule", "strict"),
    "sampled.temperature=-1": ("sampled.temperature",),
    "sampled.temperature=nan": ("sampled.temperature",),
    "sampled.temperature=inf": ("sampled.temperature",),
    "autoregressive.drafter=uniform": ("autoregressive",),
    "max_gram.length=0": ("max_gram.length",),
    "bigram.length=-3": ("bigram.length",),
    f"bigram.length={HUGE}": ("bigram.length", "at most 1,000"),
}

_SPECS: dict[str, tuple[str, ...]] = {
    "{}": ("strategies is empty",),
    "{'a': 3}": ("strategies.a is 3", "group"),
    "{'a': None}": ("strategies.a is None",),
    "{'a': 'neural'}": ("strategies.a is 'neural'",),
    "{'a': {'drafter': 3}}": ("strategies.a.drafter", "3"),
    "{'a': {'drafter': 'neural'}}": ("strategies.a: length is missing",),
    "{'a': {'drafter': 'neural', 'length': 3, 'top_k': -1}}": ("strategies.a.top_k",),
    "{'a': {'drafter': 'neural', 'length': 3, 'top_p': 0.0}}": ("strategies.a.top_p",),
    "{'a': {'drafter': 'neural', 'length': 3, 'min_p': 1.5}}": ("strategies.a.min_p", "[0, 1]"),
    "{'a': {'drafter': 'neural', 'length': 3, 'eta_cutoff': 1}}": ("strategies.a.eta_cutoff",),
    "{'a': {'drafter': 'neural', 'length': True}}": ("strategies.a.length", "True"),
    "{'a': {'drafter': 'neural', 'length': 3.0}}": ("strategies.a.length", "3.0"),
    "{'a': {'drafter': 'neural', 'length': [3]}}": ("strategies.a.length",),
    "{'a': {'drafter': 'bigram', 'length': 3, 'table': 'target'}}": ("'target'", "model"),
    "{'a': {'drafter': 'bigram', 'length': 3, 'table': 'drafter'}}": ("'drafter'", "model"),
    "{'a': {'drafter': 'bigram', 'length': 3, 'table': 'heads'}}": ("strategies.a.table",),
    "{'a': {'drafter': 'bigram', 'length': 3, 'table': 'corpus'}}": ("strategies.a.table",),
    "{'a': {'drafter': 'suffix', 'length': 3, 'floor': 2.0}}": ("strategies.a.floor",),
    "{'a': {'drafter': 'suffix', 'length': 3, 'factor': 0.0}}": ("strategies.a.factor",),
    "{'a': {'drafter': 'suffix', 'length': 3, 'longest': 31}}": ("strategies.a.longest", "at most"),
    "{'a': {'drafter': 'bigram', 'length': 3, 'table': ''}}": ("strategies.a.table",),
    "{'a': {'drafter': 'bild', 'fallback': 0.5}}": ("strategies.a.rollback is missing",),
    "{'a': {'drafter': 'bild', 'fallback': -1.0, 'rollback': 2.0}}": ("strategies.a.fallback",),
    "{'a': {'reader': 'calm', 'threshold': 2.0}}": ("strategies.a.threshold",),
    "{'a': {'drafter': 'neural', 'length': 3, 'reader': 'calm', 'threshold': 0.9}}": (
        "strategies.a: reader is 'calm'",
        "drafter must be 'none'",
        "3 tokens",
    ),
    "{'a': {'drafter': 'neural', 'length': 1, 'rule': 'oracle', 'engage': -0.5}}": (
        "strategies.a.engage",
    ),
    "{'a': {'drafter': 'early_exit', 'length': 2, 'exit': 0}}": ("strategies.a.exit",),
    "{'a': {'drafter': 'early_exit', 'length': 2, 'exit': 9999999}}": ("exit",),
    "{'a': {'drafter': 'medusa', 'length': 2}}": ("config.heads",),
    "{'a': {'drafter': 'cascade', 'drafters': 'drafter', 'matrix': ((3,),)}}": ("a.drafters",),
    "{'a': {'drafter': 'cascade', 'drafters': (3,), 'matrix': ((3,),)}}": ("a.drafters",),
    "{'a': {'drafter': 'cascade', 'drafters': ('drafter',), 'matrix': 3}}": ("a.matrix",),
    "{'a': {'drafter': 'cascade', 'drafters': ('drafter',), 'matrix': (3,)}}": ("a.matrix",),
    "{'a': {'drafter': 'cascade', 'drafters': ('drafter',), 'matrix': ((1.5,),)}}": ("matrix",),
    "{'a': {'drafter': 'cascade', 'drafters': ('drafter',), 'matrix': ((0,),)}}": ("matrix",),
    "{'a': {'drafter': 'cascade', 'drafters': ('drafter',), 'matrix': ((10000,),)}}": (
        "10000",
        "from 0 to 1000",
    ),
    "{'a': {'drafter': 'cascade', 'drafters': ('other',), 'matrix': ((3,),)}}": ("'other'",),
    "{'a': {'drafter': 'selected', 'arms': ('x', 'y'), 'mode': 'random'}}": ("'x'",),
    "{'a': {'drafter': 'selected', 'policy': '{bad}/empty', 'mode': 'greedy'}}": ("policy",),
    "{'a': {'length': 3}}": ("strategies.a.length",),
    "{'a': {'drafters': ('x',)}}": ("strategies.a.drafters",),
    "3": ("strategies",),
    "{'a': ": ("strategies",),
}

_FIELDS: dict[str, tuple[str, ...]] = {
    "exampels=3": ("exampels", "examples"),
    "no.such.field=3": ("'no'",),
    "strategies.speculativ_3.length=3": ("speculativ_3", "speculative_3"),
    "data.pfad=x": ("data.pfad",),
    "mesh.rows=2": ("mesh.rows",),
    "corpus_split=train": ("config.corpus_split is 'train'", "without config.task"),
    "target=": ("config.target is empty",),
    "target=./nowhere": ("nowhere",),
    "target={pair}/source.txt": ("source.txt",),
    "target={bad}": ("config.json",),
    "drafter=./nowhere": ("nowhere",),
    "drafters={'drafter': '{pair}/drafter'}": ("config.drafters.drafter",),
    "drafters={'target': '{pair}/drafter'}": ("config.drafters.target",),
    "drafters={'x': 3}": ("config.drafters.x is 3",),
    "drafters={'x': ''}": ("config.drafters.x",),
    "drafters={'x': {'y': 'z'}}": ("config.drafters.x",),
    "drafters=5": ("drafters",),
    "drafter=target:int3": ("'target:int3'", "'int3'", "int8, int4"),
    "target={pair}/target:int4:7": ("'int4:7'", "inputs", "groups of 7"),
    "drafters=x": ("drafters",),
    "prices={'target': 1.0}": ("config.prices",),
    "prices={'target': 0, 'drafter': 1}": ("config.prices.target",),
    "prices={'target': 'dear', 'drafter': 1}": ("config.prices.target",),
    "prices={'target': True, 'drafter': 1}": ("config.prices.target",),
    "mesh={'data': 2.5, 'model': 1}": ("config.mesh.data",),
    "mesh={'rows': 2}": ("config.mesh",),
    "mesh.model=64": ("config.mesh", "devices"),
    "mesh.data=7": ("config.batch_size", "config.mesh.data"),
    "drafter_ways={'drafter': 3}": ("config.drafter_ways.drafter is 3", "model axis: 1"),
    "drafter_ways={'drafter': 'split'}": ("config.drafter_ways.drafter is 'split'",),
    "drafter_ways={'target': 1}": ("config.drafter_ways has 'target'", "drafter"),
    "batch_size=": ("batch_size",),
    "batch_size=1000000": ("do not fit", "config.batch_size 1,000,000", "GiB"),
    "only=speculativ_3": ("config.only", "'speculativ_3'", "speculative_3"),
    "only=speculative_3,,lenient": ("config.only", "''"),
    "only= , ": ("config.only",),
    "experiment=train": ("experiment", "train"),
    "experiment=sweep": ("experiment", "sweep"),
    "experiment=../decode": ("experiment", "../decode"),
    "experiment=": ("experiment", "''"),
}

_SOURCES: dict[str, tuple[str, ...]] = {
    "source_file=": ("config.source_file",),
    "task=gsm8k_qa": ("config.source_file", "with config.task 'gsm8k_qa'"),
    "source_file=nowhere.txt": ("nowhere.txt",),
    "source_file={bad}": ("cannot be read",),
    "source_file={bad}/empty.txt": ("empty.txt", "empty"),
    "source_file={bad}/latin1.txt": ("latin1.txt", "utf-8"),
    "source_file={bad}/short.txt": ("short.txt", "line by line"),
    "source_file={bad}/cut.txt.gz": ("cut.txt.gz",),
    "source_file={bad}/no.txt.gz": ("no.txt.gz",),
    "source_file={bad}/fifo": ("fifo", "not a file"),
    "source_file=/dev/zero": ("/dev/zero", "not a file"),
    "source_file=/dev/null": ("/dev/null", "not a file"),
    "source_file={bad}/a\0b": ("null byte",),
    "source_file={bad}/" + "x" * 300: ("too long",),
    "source_file={bad}/surrogate.jsonl": ("surrogate.jsonl", "line 2", "surrogate"),
    "source_file={bad}/deep.jsonl": ("deep.jsonl", "line 1", "deeply"),
    "source_file={bad}/digits.jsonl": ("digits.jsonl", "line 1", "digits"),
    "source_file={bad}/broken.jsonl": ("broken.jsonl", "line 2", "not JSON"),
    "source_file={bad}/list.jsonl": ("list.jsonl", "object"),
    "source_file={bad}/other.jsonl": ("other.jsonl", "'source'"),
    "source_file={bad}/number.json": ("number.json", "object"),
    "reference_file=nowhere.txt": ("nowhere.txt",),
    "reference_file={bad}/fifo": ("fifo", "not a file"),
    "reference_file=": ("config.metric", "reference"),
    "ngram_file={bad}/fifo": ("ngram_file", "not a file"),
    "ngram_file=nowhere.txt": ("ngram_file", "nowhere.txt"),
    "ngram_table=nowhere.safetensors": ("nowhere.safetensors",),
    "ngram_table={bad}/broken.jsonl": ("broken.jsonl",),
    "max_prompt_tokens=4": ("max_prompt_tokens",),
}

_TASKS: dict[str, tuple[str, ...]] = {
    "data.path=nowhere.jsonl": ("nowhere.jsonl",),
    "data.path={bad}/fifo": ("ending", "config.data.kind"),
    "data.path={bad}/surrogate.jsonl": ("surrogate",),
    "data.path={bad}/other.jsonl": ("other.jsonl", "fields"),
    "data.path={bad}/ragged.tsv": ("ragged.tsv", "line 2"),
    "data.path={bad}/fifo.parquet": ("fifo.parquet",),
    "data.path={bad}/no.parquet": ("no.parquet",),
    "data.kind=grammar": ("at least 1",),
    "data.kind=foo": ("kind", "foo"),
}

_TRAINING: dict[str, tuple[str, ...]] = {
    "optimizer.warmup=601": ("optimizer.warmup", "optimizer.steps"),
    "evaluation.acceptance=(5.0,)": ("evaluation.acceptance", "5.0"),
    "evaluation.acceptance=(-1.0,)": ("evaluation.acceptance", "-1.0"),
    "evaluation.acceptance=('a',)": ("evaluation.acceptance", "'a'"),
    "evaluation.acceptance=(0.0, 0.0)": ("evaluation.acceptance", "differ"),
    "evaluation.acceptance=(True,)": ("evaluation.acceptance", "True"),
    "accumulate=3": ("batch_size", "accumulate"),
    "sequences.data=0": ("config.sequences",),
    "sequences.target=1": ("config.target", "sequences.target"),
    "objective.name=distillation": ("config.objective.smoothing", "distillation"),
    "sequences.drafter=1": ("sequences.drafter", "distillation"),
    "model.checkpoint=": ("model.checkpoint",),
    "model.checkpoint=./nowhere": ("nowhere",),
    "model.shape={'model_type': 't5'}": ("model.checkpoint", "model.shape"),
    "model.decoder_layers=(99,)": ("decoder_layers", "99"),
    "model.decoder_layers=(-1,)": ("decoder_layers", "-1"),
    "model.decoder_layers=('a',)": ("decoder_layers", "'a'"),
    "model.encoder_layers=(0.5,)": ("encoder_layers", "0.5"),
    "target=./nowhere": ("nowhere",),
    "optimizer.stepps=3": ("optimizer.stepps", "steps"),
    "batch_size=1048576": ("batch_size", "training rows"),
    "batch_size=512": ("batch_size", "training rows"),
    "mesh.data=3": ("batch_size", "mesh.data"),
    "experiment=decode": ("experiment", "decode"),
    "evaluation.keep=beauty": ("evaluation.keep", "beauty"),
    "train.source_file={bad}/fifo": ("not a file",),
    "train.source_file=nowhere.txt": ("nowhere.txt",),
    "validation.examples=0": ("validation.examples",),
    "validation.examples=60": ("validation.examples",),
    "train.task=foo": ("task", "foo"),
    "train.task=wmt14_ende": ("config.train.source_file", "config.train.task 'wmt14_ende'"),
    "train.metric=foo": ("metric", "foo"),
}

_OTHERS: dict[str, dict[str, tuple[str, ...]]] = {
    "compare": {
        "runs=": ("config.runs is ''", "two or more"),
        "runs={pair}": ("config.runs", "two or more"),
        "runs={pair},{pair}": ("config.runs", "each once"),
        "runs={pair},": ("config.runs", "commas"),
        "runs=./nowhere,{pair}": ("config.runs names './nowhere'", "not a folder"),
        "runs={pair},{bad}": ("config.runs", "has no results.json"),
        "runs=3": ("config.runs",),
        "seed=-1": ("config.seed", "-1"),
        "seed=many": ("seed",),
    },
    "ngram": {
        "target=": ("config.target",),
        "text_file=": ("config.text_file",),
        "text_file=nowhere.txt": ("nowhere.txt",),
        "text_file={bad}/fifo": ("not a file",),
        "text_file={bad}/surrogate.jsonl": ("surrogate.jsonl",),
        "source_file={pair}/source.txt": ("config.source_file", "text_file"),
        "heldout=1000000": ("config.heldout",),
    },
    "tokenizer": {
        "text_files=": ("config.text_files",),
        "text_files=nowhere.txt": ("nowhere.txt",),
        "text_files={bad}/other.jsonl": ("text_files", "JSONL"),
        "text_files=/dev/zero": ("not a file",),
        "heldout=1000000": ("config.heldout",),
    },
    "tune": {
        "strategy=sampled": ("config.strategy", "sampled"),
        "space={'length': (0, 1)}": ("config.space", "length"),
        "space={'length': 3}": ("config.space.length",),
        "space={'length': (2, 2)}": ("config.space.length", "differ"),
        "space={'color': (1, 2)}": ("config.space", "color"),
        f"space={{'length': (1, {HUGE})}}": ("config.space", "at most 1,000"),
        "base.batch_size=0": ("batch_size",),
        "base.experiment=train": ("config.base.experiment",),
        "base.only=foo": ("config.only", "foo"),
        "base.target=": ("config.target",),
        "strategies=3": ("strategies",),
    },
    "sweep": {
        "grid={}": ("config.grid is empty",),
        "grid={'seed': 3}": ("config.grid.seed",),
        "grid={'seed': ('a',)}": ("config.grid.seed", "'a'"),
        "grid={'seed': (-1,)}": ("seed", "-1"),
        "grid={'color': (1, 2)}": ("config.grid.color",),
        "grid={'mesh': (1, 2)}": ("config.grid.mesh", "group"),
        f"grid={{'batch_size': (1, {HUGE})}}": ("batch_size",),
        "strategies=('foo',)": ("config.strategies", "foo"),
        "base.only=foo": ("config.only", "foo"),
        "base.experiment=train": ("config.base.experiment",),
        "apart=perhaps": ("apart",),
    },
    "select": {
        "data=": ("config.data",),
        "data=nowhere": ("nowhere",),
        "data={bad}": ("data.json",),
        "arms=('a',)": ("config.data",),
        "fit.baseline=True": ("baseline",),
    },
    "select_curve": {
        "align_weights=(2.0,)": ("align_weights", "2.0"),
        "align_weights=('a',)": ("align_weights", "'a'"),
        "data=nowhere": ("nowhere",),
    },
    "select_data": {
        "tasks.queries.task=xsum": ("config.tasks.queries",),
        "tasks.queries.source_file=": ("config.tasks.queries",),
        "target=": ("config.target",),
        "strategies={'a': {'drafter': 'none'}}": ("config.strategies", "two"),
        "only=a": ("only",),
    },
    "no_tasks": {
        "tasks={}": ("config.tasks",),
        "tasks={'all': {}}": ("config.tasks", "all"),
        "tasks={'a': 3}": ("config.tasks.a is 3",),
        "tasks={'a': {'task': 'xsum'}}": ("config.tasks.a",),
    },
    "engagement": {
        "thresholds=()": ("config.thresholds",),
        "thresholds=(0.1, 0.1)": ("config.thresholds",),
        "thresholds=('a',)": ("config.thresholds", "'a'"),
        "thresholds=(-1.0,)": ("config.thresholds", "-1.0"),
        "drafter=": ("config.drafter",),
        "only=a": ("only",),
    },
    "beams": {
        "batching=filled": ("config.batching", "'filled'", "'static' for beams"),
        "strategies.beams.early_stopping=soon": ("early_stopping", "soon"),
        "strategies.beams.length_penalty=11": ("length_penalty", "11"),
        "strategies.beams.sequences=5": ("strategies.beams", "sequences", "beams, 4"),
        "strategies.beams.drafter=medusa": ("drafter", "'medusa'"),
        "strategies.speculative_1.width=3": ("strategies.speculative_1", "width"),
        "strategies.speculative_1.model=foo": ("speculative_1", "foo"),
        "strategies={}": ("config.strategies",),
        "only=a": ("only",),
        "target=": ("config.target",),
    },
    "quickstart": {
        "target=google/flan-t5-large": ("config.target", "configs/translate.py"),
        "source_file=mine.txt": ("config.source_file", "configs/translate.py"),
        "training.target.deep_layers=1": ("deep_layers",),
        "training.drafter.num_decoder_layers=3": ("drafter.num_decoder_layers", "at most"),
        "training.examples=2000000": ("training.examples", "at most"),
        "only=foo": ("config.only", "foo"),
        "strategies.speculative_3.model=foo": ("speculative_3", "foo"),
        "batch_size=1048576": ("do not fit", "GiB"),
        "training.target.learning_rate=-1": ("learning_rate",),
    },
}


def _fields() -> Iterator[Row]:
    for field, words in _STRATEGIES.items():
        yield "decode", (f"--config.strategies.{field}",), words
    for spec, words in _SPECS.items():
        yield "decode", (f"--config.strategies={spec}",), words
    for table in (_FIELDS, _SOURCES):
        for field, words in table.items():
            yield "decode", (f"--config.{field}",), words
    for field, words in _TASKS.items():
        flags = ("--config.source_file=", "--config.reference_file=", "--config.task=wmt14_ende")
        zero = ("--config.examples=0",) if "grammar" in field else ()
        yield "decode", (*flags, *zero, f"--config.{field}"), words
    for field, words in _TRAINING.items():
        yield "train", (f"--config.{field}",), words
    for experiment, table in _OTHERS.items():
        for field, words in table.items():
            yield experiment, (f"--config.{field}",), words


_CONFIGS: dict[str, tuple[str, ...]] = {
    "nowhere.py": ("nowhere.py", "does not exist"),
    "{bad}": ("is not a file",),
    "/dev/null": ("/dev/null", "is not a file"),
    "{bad}/fifo": ("is not a file",),
    "{bad}/a\0b.py": ("does not exist",),
    "{bad}/empty.py": ("empty.py", "get_config"),
    "{bad}/syntax.py": ("syntax.py", "line 2", "SyntaxError"),
    "{bad}/null.py": ("null.py", "null"),
    "{bad}/latin1.txt": ("latin1.txt",),
    "{bad}/raises.py": ("raises.py", "line 3", "ZeroDivisionError"),
    "{bad}/key.py": ("key.py", "line 2", "KeyError"),
    "{bad}/exits.py": ("exits.py", "line 2", "SystemExit"),
    "{bad}/deep.py": ("deep.py", "RecursionError"),
    "{bad}/imports.py": ("imports.py", "line 1", "no_such_module"),
    "{bad}/no_function.py": ("no_function.py", "get_config"),
    "{bad}/returns_none.py": ("returns_none.py", "ConfigDict"),
    "{bad}/returns_dict.py": ("returns_dict.py", "dict", "ConfigDict"),
    "{bad}/unknown_field.py": ("config.batchsize", "batch_size"),
    "{bad}/missing_field.py": ("config.target is missing",),
    "{bad}/text_for_integer.py": ("config.batch_size is '4'", "integer"),
    "{bad}/number_for_text.py": ("config.target is 3", "text"),
    "{bad}/number_for_group.py": ("config.mesh is 3", "group"),
    "{bad}/list_for_group.py": ("config.strategies", "group"),
    "{bad}/no_experiment.py": ("config.experiment is None",),
    "{bad}/number_experiment.py": ("config.experiment is 7",),
    "configs/translate.py:words": ("translate.py", "TypeError"),
    "configs/bild_early_exit.py:luck": ("luck",),
    "configs/tune.py:nowhere.py": ("nowhere.py",),
    "configs/tune.py:configs/translate.py;length": ("length", "field=value"),
    "configs/tune.py:configs/training/finetune.py": ("config.base.experiment", "decode"),
    "configs/sweep.py:configs/translate.py;seed=": ("seed", "field=value"),
    "configs/sweep.py:configs/translate.py;color=1": ("color",),
}

_FLAGS: tuple[Row, ...] = (
    (
        "decode",
        ("--config.batch_size=65536", "--config.bucket=1048576"),
        ("do not fit", "config.bucket 1,048,576", "attention"),
    ),
    (
        "train",
        ("--config.batch_size=64", "--config.bucket=1048576"),
        ("do not fit", "config.bucket 1,048,576", "attention"),
    ),
    ("bare", ("--confg=x",), ("confg",)),
    ("bare", ("--config",), ("config",)),
    ("bare", ("--dry_run=perhaps",), ("dry_run",)),
    ("bare", ("--workdir",), ("workdir",)),
    ("bare", ("--flagfile={bad}/nowhere",), ("nowhere",)),
    ("decode", ("stray",), ("stray",)),
    ("decode", ("--config.batch_size",), ("batch_size",)),
    ("decode", ("--config.=3",), ("config",)),
    ("decode", ("--config.strategies.=3",), ("strategies",)),
    ("decode", ("--config.batch_size.x=3",), ("batch_size",)),
    ("decode", ("--no_such_flag",), ("no_such_flag",)),
)

_WORKDIRS: dict[str, tuple[str, ...]] = {
    "{bad}/latin1.txt": ("latin1.txt",),
    "{bad}/latin1.txt/inside": ("latin1.txt",),
    "/proc/specjax": ("/proc/specjax",),
    "/proc/self/specjax/deeper": ("/proc",),
    "/sys/specjax": ("/sys/specjax",),
    "/dev/null": ("/dev/null",),
    "{bad}/fifo": ("fifo",),
    "{bad}/" + "x" * 300: ("too long",),
    "{bad}/" + "x/" * 3000: ("too long",),
    "{bad}/a\0b": ("null byte",),
}


def _places() -> Iterator[Row]:
    for place, words in _CONFIGS.items():
        yield "bare", (f"--config={place}",), words
    for place, words in _WORKDIRS.items():
        yield "decode", (f"--workdir={place}",), ("--workdir", *words)


ROWS: tuple[Row, ...] = (
    *_integers(),
    *_words(),
    *_fields(),
    *_places(),
    *_FLAGS,
)
