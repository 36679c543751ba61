"""What `same_tokens.py` runs: the configs that decode here, with their models and texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EDITED = Path(__file__).resolve().parent / "edited_config.py"

CHECKPOINTS = {
    "t5-target": "t5-ende-target",
    "t5-drafter": "t5-ende-drafter",
    "t5-other": "t5-deen-drafter",
    "llama-target": "llama-gsm8k-target",
    "llama-drafter": "llama-gsm8k-drafter",
}
"""Names of models in the inputs, and of their directories in `--models`."""

TRAINING = {
    "training.examples": 2000,
    "training.vocab_size": 600,
    "training.test_examples": 100,
    "training.target.steps": 40,
    "training.target.deep_layers": 4,
    "training.target.deep_steps": 2,
    "training.drafter.steps": 30,
}
"""Of the quickstart: a pair that is not quite random, in a minute."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of `specjax.main`."""

    name: str
    config: str
    flags: dict[str, Any]
    left_out: tuple[str, ...] = ()  # strategies whose tokens depend on measured time
    decodes: bool = True  # False: offline data, whose fields are others
    trained: bool = False  # True: needs the quickstart's models in its workdir


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Where both sides find what they read."""

    folder: Path

    @property
    def models(self) -> Path:
        return self.folder / "models"

    @property
    def quickstart(self) -> Path:
        return self.folder / "quickstart"

    @property
    def heads(self) -> Path:
        return self.folder / "heads.safetensors"

    @property
    def ngrams(self) -> Path:
        return self.folder / "ngram" / "ngram.safetensors"

    @property
    def policy(self) -> Path:
        return self.folder / "select" / "policy"

    def file(self, name: str) -> Path:
        """A text, or a file of config fields."""
        return self.folder / name

    def edits(self) -> dict[str, dict[str, Any]]:
        """Fields by file for `edited_config.py`: strategies that no config file holds."""
        both = {**PLAIN, **CHOOSING}
        return {
            "extras_t5.json": {"strategies": {**both, **ENCODER_DECODER}},
            "extras_llama.json": {"strategies": both},
        }

    def offline(self) -> tuple[str, dict[str, Any]]:
        """Config and flags of offline data for the policy's arms."""
        config = f"configs/selection/data.py:none,ende={self._drafter},deen={self._other}"
        queries = {"task": "", "source_file": self.file("queries.jsonl"), "source_field": "text"}
        fields = {f"tasks.queries.{field}": value for field, value in queries.items()}
        return config, {"target": self._target, "bucket": 64, **fields}

    def translation(self) -> dict[str, Any]:
        """Flags of a decode of sentences by the T5 target, without drafters."""
        return {
            **ANYWHERE,
            "target": self._target,
            "task": "",
            "source_file": self.file("test.en"),
            "reference_file": self.file("test.de"),
            "prefix": "translate English to German: ",
            "metric": "bleu",
            "bucket": 64,
        }

    def questions(self) -> dict[str, Any]:
        """Flags of a decode of questions by the Llama target, without drafters."""
        return {
            **ANYWHERE,
            "target": self.models / "llama-target",
            "task": "gsm8k_qa",
            "data.path": self.file("questions.jsonl"),
            "ngram_file": self.file("train.de"),
            "bucket": 128,
        }

    def queries(self, name: str) -> dict[str, Any]:
        """Flags of a decode of the queries in a JSONL file."""
        return {
            "target": self._target,
            "drafters.ende": self._drafter,
            "drafters.deen": self._other,
            "source_file": self.file(name),
            "bucket": 64,
        }

    @property
    def _target(self) -> Path:
        return self.models / "t5-target"

    @property
    def _drafter(self) -> Path:
        return self.models / "t5-drafter"

    @property
    def _other(self) -> Path:
        return self.models / "t5-other"


ANYWHERE = {"dtype": "float32", "mesh.model": 1}
"""Of configs that were written for accelerators."""


def neural(length: int, **fields: Any) -> dict[str, Any]:
    return {"drafter": "neural", "model": "drafter", "length": length, **fields}


Specs = dict[str, dict[str, Any]]
"""Strategies by name, as configs spell them."""

PLAIN: Specs = {
    "autoregressive": {"drafter": "none"},
    "alone": {"drafter": "none"},
    "speculative": neural(4),
    "confident": neural(6, confidence=0.5),
    "confident_drafted": neural(6, confidence=0.5, reader="fitted"),
    "acceptance": neural(5, adapt="acceptance", cost=0.1, reader="fitted"),
    "break_even": neural(5, adapt="break_even", cost=0.1),
    "truncated": neural(4, temperature=0.7, top_k=20, top_p=0.9),
    "lenient": neural(4, rule="lenient", lenience=0.3),
    "exit": {"drafter": "early_exit", "exit": 1, "length": 3},
    "exit_confident": {"drafter": "early_exit", "exit": 1, "length": 4, "confidence": 0.4},
    "prompt_lookup": {"drafter": "prompt_lookup", "length": 4, "shortest": 1, "longest": 2},
    "max_gram": {"drafter": "max_gram", "length": 4, "longest": 3},
    "unigram": {"drafter": "unigram", "length": 2},
    "bigram": {"drafter": "bigram", "length": 3},
    "uniform": {"drafter": "uniform", "length": 2},
    "bild": {"drafter": "bild", "fallback": 0.4, "rollback": 2.0},
    "bild_drafted": {
        "drafter": "bild",
        "fallback": 0.4,
        "rollback": 2.0,
        "length": 6,
        "reader": "fitted",
        "verify_eos": True,
    },
    "bild_official": {"drafter": "bild", "fallback": 0.5, "rollback": 2.0, "compat": "official"},
    "bild_exit": {"drafter": "bild", "exit": 1, "fallback": 0.4, "rollback": 1.0},
    "reviewed": {
        "drafter": "cascade",
        "drafters": ("drafter", "max_gram"),
        "matrix": ((2, 2), (0, 2)),
        "reviewers": "greedy",
    },
    "reviewed_leniently": {
        "drafter": "cascade",
        "drafters": ("drafter", "max_gram"),
        "matrix": ((2, 0), (0, 3)),
        "lenience": 0.5,
    },
}

CHOOSING: Specs = {
    "chance": {"drafter": "selected", "arms": ("alone", "speculative", "exit"), "mode": "random"},
    "given": {
        "drafter": "selected",
        "arms": ("alone", "speculative", "exit"),
        "mode": "fixed",
        "choices": "exit",
    },
    "ucb": {
        "drafter": "switched",
        "arms": ("alone", "speculative", "exit"),
        "costs": (0.0, 0.1, 0.2),
    },
    "thompson": {
        "drafter": "switched",
        "arms": ("alone", "speculative", "max_gram"),
        "costs": (0.0, 0.1, 0.0),
        "bandit": "thompson",
        "lengths": (1, 4),
    },
}

ENCODER_DECODER: Specs = {
    "blockwise": {"drafter": "medusa", "length": 4},
    "blockwise_3": {"drafter": "medusa", "length": 3},
    "calm": {"drafter": "calm", "threshold": 0.6, "tau": 4.0},
    "calm_softmax": {"drafter": "calm", "threshold": 0.3, "measure": "softmax"},
}
"""Parallel heads are trained for the T5 drafter only."""


def jobs(inputs: Inputs) -> Iterator[Job]:
    """All jobs."""
    yield from translation_jobs(inputs)
    yield from cascade_jobs(inputs)
    yield from question_jobs(inputs)
    yield from selection_jobs(inputs)
    yield Job("quickstart", "configs/quickstart.py", TRAINING, trained=True)


def translation_jobs(inputs: Inputs) -> Iterator[Job]:
    """One drafter or two on translation."""
    drafter, other = inputs.models / "t5-drafter", inputs.models / "t5-other"
    baseline = inputs.translation()
    common = {**baseline, "drafter": drafter, "ngram_file": inputs.file("train.de")}
    yield Job("translate", "configs/translate.py", common)
    yield Job("drafters", f"configs/drafters.py:ende={drafter},deen={other}", baseline)
    yield Job("draft_length", "configs/draft_length.py:0", common)
    yield Job("draft_length_sampled", "configs/draft_length.py:1", common)
    yield Job("bild", f"configs/bild_multi30k.py:{other}", common)
    yield Job("bild_side_by_side", f"configs/bild_side_by_side.py:{other};reviewed", common)
    yield Job("bild_early_exit", "configs/bild_early_exit_multi30k.py", baseline)
    yield Job("calm", "configs/bild_early_exit_multi30k.py:calm", baseline)
    yield Job("engagement", "configs/engagement.py", common)
    extras = {**common, "heads": inputs.heads}
    edited = f"{inputs.file('extras_t5.json')}@configs/pair.py"
    yield Job("extras_t5", f"{EDITED}:{edited}", extras)
    yield Job("extras_t5_sampled", f"{EDITED}:sampled@{edited}", extras)


def cascade_jobs(inputs: Inputs) -> Iterator[Job]:
    """Cascades of two drafters on translation."""
    names = inputs.models / "t5-drafter", inputs.models / "t5-other"
    baseline = inputs.translation()
    base, small = dict(zip(("drafters.base", "drafters.small"), names, strict=True)), names[1]
    table = {**baseline, **base, "ngram_table": inputs.ngrams}
    yield Job("cascade_gsm8k", "configs/cascade_gsm8k.py", table)
    yield Job("cascade_mmlu", "configs/cascade_mmlu.py:pw", table)
    text = {**baseline, "drafters.small": small, "ngram_file": inputs.file("train.de")}
    middle = {**text, "drafters.middle": names[0]}
    config = "configs/cascade_multi30k.py"
    yield Job("cascade_multi30k", config, middle)
    yield Job("cascade_multi30k_sampled", f"{EDITED}:sampled@{config}", middle)


def question_jobs(inputs: Inputs) -> Iterator[Job]:
    """The decoder-only pair on questions."""
    drafter, baseline = inputs.models / "llama-drafter", inputs.questions()
    pair = {**baseline, "drafter": drafter}
    yield Job("pair", "configs/pair.py", pair)
    edited = f"{inputs.file('extras_llama.json')}@configs/pair.py"
    yield Job("extras_llama", f"{EDITED}:{edited}", pair)
    yield Job("extras_llama_sampled", f"{EDITED}:sampled@{edited}", pair)
    small = {**baseline, "drafters.small": drafter}
    config = "configs/cascade_pair.py"
    yield Job("cascade_pair", config, small)
    yield Job("cascade_pair_sampled", f"{EDITED}:sampled@{config}", small)
    yield Job("cascade_llama", "configs/cascade_llama.py", {**small, "drafters.base": drafter})


def selection_jobs(inputs: Inputs) -> Iterator[Job]:
    """Choices by text and by round, and the offline data behind policies."""
    config, flags = inputs.offline()
    yield Job("select_data", config, flags, decodes=False)
    words = f"policy={inputs.policy},oracle={inputs.file('oracle.json')}"
    queries, mixed = inputs.queries("queries.jsonl"), inputs.queries("mixed.jsonl")
    sampled = f"{words},temperature=1"
    timed = ("online",)  # it learns from seconds, and under sampling tokens depend on the arm
    here = "configs/selection"
    yield Job("selected", f"{here}/multi30k.py:{words}", queries)
    yield Job("selected_sampled", f"{here}/multi30k.py:{sampled}", queries, timed)
    yield Job("selected_alone", f"{here}/multi30k.py:{words}", {**queries, "batch_size": 1})
    yield Job("mixed", f"{here}/mixed.py:policy={inputs.policy}", mixed)
    yield Job("mixed_sampled", f"{here}/mixed.py:temperature=1", mixed, timed)
    arms = f"none,small={inputs.models / 't5-drafter'},exit=1"
    target = {name: queries[name] for name in ("target", "source_file", "bucket")}
    yield Job("choose", f"{here}/choose.py:{arms};length=4", target)
