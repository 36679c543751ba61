"""More bad inputs of the command line: names that nothing can have, and files that hold too little.

Rows as in `bad_inputs`.
"""

from __future__ import annotations

from collections.abc import Iterator

Row = tuple[str, tuple[str, ...], tuple[str, ...]]

LONG = "x" * 300

_IDS = (
    "a b",
    "a:b",
    "Müller/x",
    "org/",
    "-a",
    "a..b",
    "a--b",
    "a/b c",
    "名/模型",
    LONG,
    f"a/{LONG}",
)
"""Neither folders nor hub ids."""

_MODELS = {
    "decode": ("target", "drafter"),
    "train": ("model.checkpoint", "model.tokenizer"),
    "distill": ("target",),
    "ngram": ("target",),
    "select_data": ("target",),
    "beams": ("target", "drafter"),
    "engagement": ("drafter",),
    "tune": ("base.target",),
}

_LONG_FILES = {
    "decode": ("source_file", "reference_file", "ngram_file", "ngram_table"),
    "ngram": ("text_file",),
    "tokenizer": ("text_files",),
    "select": ("data",),
    "select_curve": ("data",),
}

_CORPUS = "--config.strategies={'a': {'drafter': 'suffix', 'length': 3, 'corpus': True}}"
_HEADS = "--config.strategies={'a': {'drafter': 'medusa', 'length': 2}}"
_BIGRAM = "--config.strategies={'a': {'drafter': 'bigram', 'length': 2}}"
_PLAN = "--dry_run"

_OTHERS: tuple[Row, ...] = (
    ("decode", (_HEADS, f"--config.heads={LONG}"), ("xxx",)),
    ("decode", (_HEADS, "--config.heads={bad}/fifo"), ("fifo", "pipe")),
    ("decode", (_BIGRAM, "--config.ngram_table={bad}/fifo"), ("fifo",)),
    ("decode", (_BIGRAM, "--config.ngram_file={bad}/empty.txt"), ("empty.txt", "no text")),
    ("decode", (_BIGRAM, "--config.ngram_file={bad}/blank.txt"), ("blank.txt", "no text")),
    ("decode", (_CORPUS, "--config.corpus_file={bad}/empty.txt"), ("corpus_file", "no text")),
    ("decode", (_CORPUS, "--config.corpus_file={bad}/blank.txt"), ("corpus_file", "no text")),
    ("decode", (_CORPUS, "--config.corpus_file={bad}/fifo"), ("corpus_file", "not a file")),
    ("decode", ("--config.target={bad}/pipe_model",), ("config.json", "pipe")),
    ("decode", ("--config.drafter={bad}/pipe_model",), ("config.json", "pipe")),
    ("decode", ("--config.target=~nobody-of-that-name/x",), ("nobody-of-that-name",)),
    (
        "decode",
        ("--config.source_file={bad}/blank.txt", "--config.reference_file={bad}/blank.txt"),
        ("config.source_file", "blank.txt", "example 1", "3 of 3"),
    ),
    (
        "decode",
        (
            "--config.source_file={bad}/long.txt",
            "--config.reference_file=",
            "--config.metric=none",
            "--config.only=autoregressive",
        ),
        ("prompt 0", "10,000,001 characters", "max_prompt_tokens"),
    ),
    ("compare", (f"--config.runs={LONG},{{pair}}",), ("config.runs", "not a folder")),
    ("bare", (f"--config={LONG}.py",), ("does not exist",)),
    ("bare", ("--flagfile={bad}/fifo",), ("fifo", "pipe")),
    ("bare", ("--flagfile", "{bad}/fifo"), ("fifo", "pipe")),
    ("ngram", ("--config.text_file={bad}/empty.txt",), ("text_file", "no text")),
    ("ngram", ("--config.text_file={bad}/blank.txt",), ("text_file", "no text")),
    ("tokenizer", ("--config.text_files={bad}/empty.txt",), ("text_files", "no text")),
    ("tokenizer", ("--config.text_files={bad}/blank.txt",), ("text_files", "no text")),
    ("sweep", ("--config.grid={'seed': (0, 0)}",), ("config.grid.seed", "differ")),
    ("sweep", ("--config.grid={'least_shared': (0, 0.0)}",), ("least_shared", "differ")),
    ("decode", (_PLAN, "--config.topology=v5e:1000x1000"), ("1,000,000 chips", "256")),
    ("decode", (_PLAN, "--config.topology=v6e:17x16"), ("272 chips", "256")),
    ("decode", (_PLAN, "--config.topology=v4:1000x1000x1000"), ("chips", "4,096")),
    ("decode", (_PLAN, "--config.topology=v5p:9999x9999x9999"), ("chips", "8,960")),
)


def _names() -> Iterator[Row]:
    for experiment, fields in _MODELS.items():
        for field in fields:
            for name in _IDS:
                yield experiment, (f"--config.{field}={name}",), (name[:20], "hub id")
    for experiment, fields in _LONG_FILES.items():
        for field in fields:
            own = (_BIGRAM,) if field.startswith("ngram_") else ()
            yield experiment, (*own, f"--config.{field}={LONG}"), (LONG[:20],)


ROWS: tuple[Row, ...] = (*_names(), *_OTHERS)
