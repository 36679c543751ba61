"""Do two checkouts decode the same tokens, with every strategy of every config that runs here?

    python benchmarks/same_tokens.py inputs --repo=OLD --out=inputs --models=DIR --data=DIR
    python benchmarks/same_tokens.py record --repo=OLD --inputs=inputs --out=old.json
    python benchmarks/same_tokens.py record --repo=NEW --inputs=inputs --out=new.json
    python benchmarks/same_tokens.py compare old.json new.json

`inputs` makes what both sides read: models, prompts, parallel heads, n-grams, a policy. `--models`
has the five small checkpoints under the names of `CHECKPOINTS`, `--data` Multi30k and GSM8K;
without them tiny models are trained for a moment on the built-in grammar. `record` runs the jobs
of `same_tokens_jobs.py` by `python -m specjax.main` in the checkout and keeps the tokens of their
outputs.
`compare` lists what differs and exits with 1 if anything does. A checkout is only touched through
its configs, its flags and the files that it leaves.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fnmatch
import gzip
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from same_tokens_jobs import CHECKPOINTS, EDITED, TRAINING, Inputs, Job, jobs

Tokens = dict[str, dict[str, list[int]]]
"""Generated ids by `job/strategy` and example."""

RESULTS = shutil.ignore_patterns("outputs.jsonl", "results.*")
"""What a decode leaves in the workdir of its models."""

UNTIMED = Path(__file__).resolve().parent / "untimed_main.py"

ENGLISH, GERMAN = "translate English to German: ", "translate German to English: "
TEXT = 1000
"""Lines that n-grams are counted in."""

LONGEST = 300
"""Characters of a question: all fit one padded width."""

LLAMA = {
    "model_type": "llama",
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "max_position_embeddings": 1024,
}


def main() -> int:
    args = parse()
    return args.command(args)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(required=True)
    made = commands.add_parser("inputs", help="make what both sides read")
    made.set_defaults(command=make_inputs)
    made.add_argument("--models", type=Path, help="folder of checkpoints; none: tiny ones")
    made.add_argument("--data", type=Path, help="folder with multi30k/ and gsm8k/")
    recorded = commands.add_parser("record", help="decode with a checkout")
    recorded.set_defaults(command=record)
    recorded.add_argument("--inputs", type=Path, required=True, help="what `inputs` made")
    recorded.add_argument("--only", default="*", help="patterns of jobs, with commas between")
    recorded.add_argument("--new_tokens", type=int, default=24)
    recorded.add_argument("--batch_size", type=int, default=25)
    recorded.add_argument("--seed", type=int, default=17)
    recorded.add_argument("--workers", type=int, default=1, help="jobs at the same time")
    for command in (made, recorded):
        command.add_argument("--repo", type=Path, required=True, help="checkout that is run")
        command.add_argument("--out", type=Path, required=True)
        command.add_argument("--prompts", type=int, default=50)
    compared = commands.add_parser("compare", help="list what differs")
    compared.set_defaults(command=compare)
    compared.add_argument("before", type=Path)
    compared.add_argument("after", type=Path)
    return parser.parse_args()


def run_main(repo: Path, config: str, workdir: Path, flags: Mapping[str, Any]) -> None:
    """Runs a checkout's `specjax.main`, untimed; what it prints goes to `log.txt` in the workdir.

    Raises:
      RuntimeError: with its last line when it fails.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(UNTIMED), f"--config={config}", f"--workdir={workdir}"]
    command += [f"--config.{field}={value}" for field, value in flags.items()]
    log = workdir / "log.txt"
    with log.open("w", encoding="utf-8") as lines:
        done = subprocess.run(
            command, cwd=repo, env=environment(repo), stdout=lines, stderr=subprocess.STDOUT
        )
    if done.returncode:
        last = (log.read_text("utf-8").strip() or "no output").splitlines()[-1]
        raise RuntimeError(f"{last} (exit code {done.returncode}, {log})")


def environment(repo: Path) -> dict[str, str]:
    """The checkout comes before any installed specjax."""
    return os.environ | {"PYTHONPATH": str(repo)}


def make_inputs(args: argparse.Namespace) -> int:
    """Models and texts, then what is fitted to them."""
    repo, inputs = args.repo.resolve(), Inputs(args.out.resolve())
    inputs.models.mkdir(parents=True)
    edit = inputs.file("moment.json")
    edit.write_text(json.dumps({"strategies": {"autoregressive": {"drafter": "none"}}}), "utf-8")
    moment = {**TRAINING, "examples": 1, "max_new_tokens": 2, "repeats": 1}
    run_main(repo, f"{EDITED}:{edit}@configs/quickstart.py", inputs.quickstart, moment)
    if args.models:
        for name, directory in CHECKPOINTS.items():
            (inputs.models / name).symlink_to((args.models / directory).resolve())
    write_texts(inputs, *read_texts(inputs, args))
    if not args.models:
        make_models(repo, inputs)
    fit_inputs(repo, inputs)
    print(f"inputs in {inputs.folder}")
    return 0


def read_texts(
    inputs: Inputs, args: argparse.Namespace
) -> tuple[list[str], list[str], list[str], list[dict[str, str]]]:
    """English and German sentences, German text to count n-grams in, and questions."""
    if not args.data:
        english, german, text = (
            read_lines(inputs.quickstart / name, count)
            for name, count in (
                ("test.en", args.prompts),
                ("test.de", args.prompts),
                ("train.de", TEXT),
            )
        )
        pairs = zip(english, german, strict=True)
        asked = [{"question": one, "answer": f"{other}\n#### 1"} for one, other in pairs]
        return english, german, text, asked
    folder = args.data / "multi30k"
    english, german = (
        read_lines(folder / f"test_2016_flickr.{side}.gz", args.prompts) for side in ("en", "de")
    )
    questions = map(json.loads, read_lines(args.data / "gsm8k" / "test.jsonl.gz"))
    short = (row for row in questions if len(row["question"]) <= LONGEST)
    asked = list(itertools.islice(short, args.prompts))
    return english, german, read_lines(folder / "train.de.gz", TEXT), asked


def read_lines(file: Path, count: int | None = None) -> list[str]:
    """The first lines of a file, plain or gzip; all without a count."""
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n") for line in itertools.islice(lines, count)]


def write_texts(
    inputs: Inputs,
    english: Sequence[str],
    german: Sequence[str],
    text: Sequence[str],
    questions: Sequence[Mapping[str, str]],
) -> None:
    """The texts of every job, and strategies that no config file holds."""
    for name, lines in (("test.en", english), ("test.de", german), ("train.de", text)):
        inputs.file(name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    write_rows(inputs.file("questions.jsonl"), questions)
    pairs = list(zip(english, german, strict=True))
    queries = [
        {"text": ENGLISH + one, "task": "ende"} if place % 2 else
        {"text": GERMAN + other, "task": "deen"}
        for place, (one, other) in enumerate(pairs)
    ]  # fmt: skip
    write_rows(inputs.file("queries.jsonl"), queries)
    turned = [*pairs[1:], *pairs[:1]]  # no sentence stands beside its own translation
    mixed = [ENGLISH + f"{one} {other}" for (one, _), (_, other) in zip(pairs, turned, strict=True)]
    write_rows(inputs.file("mixed.jsonl"), [{"text": each} for each in mixed])
    arms = itertools.islice(itertools.cycle(("deen", "none", "ende")), len(pairs))
    inputs.file("oracle.json").write_text(json.dumps(list(arms)), "utf-8")
    for name, fields in inputs.edits().items():
        inputs.file(name).write_text(json.dumps(fields), "utf-8")


def write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def make_models(repo: Path, inputs: Inputs) -> None:
    """The quickstart's pair, another drafter, and a decoder-only pair with its tokenizer."""
    for name in ("target", "drafter"):
        (inputs.models / f"t5-{name}").symlink_to(inputs.quickstart / name)
    scratch = "configs/training/scratch.py"
    target = {"target": inputs.models / "t5-target"}
    train(repo, inputs, scratch, "t5-other", target)
    files = {"text_files": f"{inputs.file('test.en')},{inputs.file('train.de')}"}
    folder = inputs.folder / "tokenizer"
    size = {"kind": "byte_bpe", "vocab_size": 400, "heldout": 10}
    run_main(repo, "configs/tokenizer.py", folder, files | size)
    for name, width, layers in (("target", 48, 3), ("drafter", 32, 1)):
        shape = LLAMA | {"hidden_size": width, "num_hidden_layers": layers}
        edit = inputs.file(f"llama-{name}.json")
        edit.write_text(json.dumps({"model.shape": shape}), "utf-8")
        made = {"model.tokenizer": folder / "tokenizer"}
        train(repo, inputs, f"{EDITED}:{edit}@{scratch}", f"llama-{name}", made)


def train(repo: Path, inputs: Inputs, config: str, name: str, flags: Mapping[str, Any]) -> Path:
    """Trains on the texts for a few steps; returns the workdir, its model is linked in `models`."""
    workdir = inputs.folder / "training" / name
    steps = {"optimizer.steps": 20, "optimizer.warmup": 2, "evaluation.every": 20}
    decoded = {"evaluation.decode": False, "evaluation.acceptance": "()", "batch_size": 4}
    texts = {
        f"{side}.{field}": value
        for side in ("train", "validation")
        for field, value in {
            "task": "",
            "source_file": inputs.file("test.en"),
            "reference_file": inputs.file("test.de"),
            "prefix": ENGLISH,
        }.items()
    }
    run_main(repo, config, workdir, {**texts, **steps, **decoded, **flags})
    if (workdir / "model").is_dir():
        (inputs.models / name).symlink_to(workdir / "model")
    return workdir


def fit_inputs(repo: Path, inputs: Inputs) -> None:
    """Parallel heads, a table of n-grams, and a policy with its offline data."""
    trunk = {"model.checkpoint": inputs.models / "t5-drafter"}
    heads = train(repo, inputs, "configs/training/blockwise.py", "heads", trunk)
    shutil.copy(heads / "heads.safetensors", inputs.heads)
    text = {"target": inputs.models / "t5-target", "text_file": inputs.file("train.de")}
    run_main(repo, "configs/ngram.py", inputs.ngrams.parent, {**text, "heldout": 10})
    config, flags = inputs.offline()
    data = inputs.folder / "select_data"
    run_main(repo, config, data, {**flags, "max_new_tokens": 16})
    run_main(repo, "configs/selection/policy.py", inputs.policy.parent, {"data": data})


def record(args: argparse.Namespace) -> int:
    """Runs the jobs and writes their tokens; 1 if one of them failed."""
    inputs = Inputs(args.inputs.resolve())
    patterns = args.only.split(",")
    chosen = [job for job in jobs(inputs) if any(fnmatch.fnmatch(job.name, p) for p in patterns)]
    with concurrent.futures.ThreadPoolExecutor(args.workers) as pool:
        parts = list(pool.map(lambda job: run_job(args, inputs, job), chosen))
    tokens = {name: rows for part in parts for name, rows in (part or {}).items()}
    args.out.write_text(json.dumps(tokens), "utf-8")
    print(f"{len(tokens)} strategies of {len(chosen)} jobs in {args.out}")
    return int(None in parts)


def run_job(args: argparse.Namespace, inputs: Inputs, job: Job) -> Tokens | None:
    """The tokens of a job by strategy; None when it failed."""
    workdir = args.out.resolve().with_suffix("") / job.name
    shutil.rmtree(workdir, ignore_errors=True)
    if job.trained:
        shutil.copytree(inputs.quickstart, workdir, ignore=RESULTS)
    flags = {
        "batch_size": args.batch_size,
        "max_new_tokens": args.new_tokens,
        "seed": args.seed,
        **({"examples": args.prompts, "repeats": 1} if job.decodes else {}),
        **job.flags,
    }
    start = time.perf_counter()
    try:
        run_main(args.repo.resolve(), job.config, workdir, flags)
    except RuntimeError as error:
        print(f"{job.name}: {error}", flush=True)
        return None
    found = tokens_of(job, workdir)
    took = time.perf_counter() - start
    print(f"{job.name}: {len(found)} strategies in {took:.0f} s", flush=True)
    return found


def tokens_of(job: Job, workdir: Path) -> Tokens:
    """What a job's workdir holds: a decode's outputs, or those of every writer."""
    found: Tokens = {}
    for file in (workdir / "outputs.jsonl", *sorted((workdir / "outputs").glob("*.jsonl"))):
        for line in read_lines(file) if file.exists() else ():
            row = json.loads(line)
            strategy = row.get("strategy", file.stem)
            if strategy not in job.left_out:
                example = row.get("example", row.get("index"))
                found.setdefault(f"{job.name}/{strategy}", {})[str(example)] = row["tokens"]
    return found


def compare(args: argparse.Namespace) -> int:
    """Prints what differs; 1 if anything does."""
    before, after = (json.loads(file.read_text("utf-8")) for file in (args.before, args.after))
    lines = [
        line
        for name in dict.fromkeys([*before, *after])
        for line in differences(name, before.get(name, {}), after.get(name, {}))
    ]
    print(*lines, sep="\n", end="\n" if lines else "")
    rows = sum(map(len, before.values()))
    total = sum(len(row) for each in before.values() for row in each.values())
    print(f"{len(before)} strategies, {rows} outputs, {total} tokens: {len(lines)} differ")
    return int(bool(lines) or not before)


def differences(
    name: str, before: Mapping[str, list[int]], after: Mapping[str, list[int]]
) -> Iterable[str]:
    """A line for a strategy whose outputs are not the same on both sides."""
    changed = [key for key in dict.fromkeys([*before, *after]) if before.get(key) != after.get(key)]
    if not before or not after:
        yield f"{name}: only {'after' if after else 'before'}"
    elif changed:
        first = changed[0]
        old, new = before.get(first, []), after.get(first, [])
        pairs = itertools.zip_longest(old, new)
        place = next((i for i, (a, b) in enumerate(pairs) if a != b), 0)
        yield (
            f"{name}: {len(changed)} of {len(before)} outputs; the first is {first}, from token"
            f" {place} on: {old[place : place + 5]} before, {new[place : place + 5]} after"
        )


if __name__ == "__main__":
    sys.exit(main())
