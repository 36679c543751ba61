"""Drafters of one target, trained for equal time on the same texts: tokens per call and speed.

    python benchmarks/drafters_2026.py --target=t5-ende-target --small=t5-ende-drafter \\
      --train=train.en.gz,train.de.gz --validation=val.en.gz,val.de.gz \\
      --test=test.en.gz,test.de.gz --seconds=240 --workdir=runs/study

For a decoder-only target `--kind=llama --task=gsm8k`; for a chat model see
docs/lab_book/drafters_2026.md. Each contestant is trained by its config of
configs/training/ on what the target writes; a short run gives the time of a step, and the number of
steps is what `--seconds` hold, whatever compiling and evaluating take. Ablations exchange the loss
without the head, the head without the loss, and the divergence. Then each drafts the test prompts:
a chain, trees of the most probable nodes (of a suffix: continuations of several matches), and a
chain of sampled tokens. What the workdir has is not done again. Two tables are printed: what was
measured, and the speed that the measured tokens per call would give on chips at most, from the
shapes of the models (rounds_on_chips.py). All figures are in `study.json`. `--only=eagle,dflash`
picks contestants; on a busy machine pin the whole to a core of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import shutil
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict
from rounds_on_chips import PRICED, price_rounds
from tensorboardX.proto.event_pb2 import Event

import specjax
from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import write_json

CHAIN = 4
"""Drafted tokens of every chain."""

PREDICTED_ON = ("v5e", "v6e", "h100")
"""Chips of the predicted speeds."""

OUTPUTS = "target_outputs.jsonl"


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A drafter, its training if it has any, and its trees.

    A drafter whose places know nothing of each other has the most probable nodes of all trees of so
    many levels, another one those of a tree of `widths`. Copies are as many as the nodes hold.
    """

    config: str  # of configs/training, with the kind of target if it takes one; empty: no training
    drafter: str
    levels: int = 0
    widths: tuple[int, ...] = ()
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of its config


def find_contestants(kind: str) -> dict[str, Contestant]:
    """The contestants by name, on a kind of target."""
    deep: dict[str, Any] = {"widths": (6, 3, 2, 1, 1, 1, 1)}
    layer: dict[str, Any] = {"widths": (6, 3, 2, 1, 1)}
    eagle, dflash, dspark = f"eagle:{kind}", f"dflash:{kind}", f"dspark:{kind}"
    lk_lambda = {"objective.divergence": "lk_lambda"}
    total_variation = {"objective.divergence": "tv_ce"}
    forward_kl = {"objective.divergence": "forward_kl"}
    return {
        "small": Contestant("distill", "neural", **layer),
        "eagle": Contestant(eagle, "eagle", **layer),
        "eagle_lk": Contestant(eagle, "eagle", changes=lk_lambda, **layer),
        "assistant": Contestant(f"assistant:{kind}", "assistant", **layer),
        "dflash": Contestant(dflash, "dflash", 7),
        "dflash_tv": Contestant(dflash, "dflash", 7, changes=total_variation),
        "jetspec": Contestant(f"jetspec:{kind}", "dflash", 7),
        "dspark": Contestant(dspark, "dspark", **deep),
        "dspark_kl": Contestant(dspark, "dspark", changes=forward_kl, **deep),
        "dflash2": Contestant(f"dflash2:{kind}", "dspark", **deep),
        "p_eagle": Contestant(f"p_eagle:{kind}", "p_eagle", 5),
        "medusa": Contestant("medusa:medusa", "medusa", 4),
        "hydra": Contestant("medusa:hydra", "hydra", widths=(8, 4, 2, 1)),
        "suffix": Contestant("", "suffix"),
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", required=True, help="directory or hub id")
    parser.add_argument("--small", default="", help="small model that is distilled further")
    parser.add_argument("--kind", default="t5", choices=("t5", "llama"), help="of the target")
    for name in ("train", "validation", "test"):
        parser.add_argument(f"--{name}", required=True, help="file, or source and reference files")
    parser.add_argument("--task", default="multi30k_ende", help="of the files; empty: plain ones")
    parser.add_argument("--test_task", help="of the test file, where it is another")
    parser.add_argument("--examples", type=int, default=12_000, help="texts to train on")
    parser.add_argument("--test_examples", type=int, default=60)
    parser.add_argument("--max_new_tokens", type=int, default=64)
    parser.add_argument("--nodes", type=int, nargs="*", default=(16, 64, 128), help="of trees")
    parser.add_argument("--seconds", type=float, default=600.0, help="of training steps, each")
    parser.add_argument(
        "--probe_steps",
        type=int,
        default=60,
        help="of the run that times a step; the fastest twenty count, as in others shapes compile",
    )
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--only", default="", help="names of contestants, with commas")
    for name in ("settings", "training", "decoding"):
        parser.add_argument(
            f"--{name}",
            type=json.loads,
            default={},
            help=f"JSON of config fields of {'all runs' if name == 'settings' else name}",
        )
    return parser.parse_args()


def list_strategies(args: argparse.Namespace) -> list[str]:
    """What is drafted, beside autoregressive decoding of the same kind."""
    return ["chain", *(f"tree_{nodes}" for nodes in args.nodes), "chain_sampled"]


class Study:
    """Trains and measures contestants in folders of a workdir."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args

    def train(self, name: str, contestant: Contestant) -> dict[str, Any]:
        """Trains for the seconds asked for; returns steps, their seconds and the evaluation."""
        if not contestant.config:
            return {"steps": 0, "seconds": 0.0}
        folder = self.args.workdir / name
        results = folder / "train" / "results.json"
        if not results.exists():
            probe = self.run_training(folder / "probe", contestant, self.args.probe_steps)
            rate = max(rate for _, rate in rates(probe))
            self.run_training(folder / "train", contestant, round(self.args.seconds * rate))
        known = json.loads(results.read_text("utf-8"))
        passed, seconds = 0, 0.0
        for step, rate in rates(folder / "train"):
            seconds += (step - passed) / rate
            passed = step
        return {
            "steps": passed,
            "seconds": seconds,
            "parameters": known["parameters"],
            **known["evaluations"][-1],
        }

    def run_training(self, folder: Path, contestant: Contestant, steps: int) -> Path:
        """Runs a training config for some steps in a folder."""
        args = self.args
        config = load_config("training/" + contestant.config)
        changes = {
            "target": args.target,
            "sequences.data": 0.0,
            "sequences.target": 1.0,
            "batch_size": 16,
            "max_output_tokens": args.max_new_tokens,
            "optimizer.steps": steps,
            "optimizer.warmup": min(50, steps // 4),
            "optimizer.decay": "cosine",
            "evaluation.every": steps,
            "evaluation.decode": False,
            "train.task": args.task,
            "validation.task": args.task,
            "train.examples": args.examples,
            "validation.examples": 16 if steps == args.probe_steps else 128,
            **args.settings,
            **args.training,
            **contestant.changes,
        }
        if contestant.drafter == "neural":
            changes["model.checkpoint"] = args.small
        config.update_from_flattened_dict(changes)
        read_files(config.train, args.train)
        read_files(config.validation, args.validation)
        folder.mkdir(parents=True, exist_ok=True)
        shared = args.workdir / OUTPUTS
        if shared.exists():
            shutil.copy(shared, folder / OUTPUTS)
        specjax.run(config, folder)
        if not shared.exists():
            shutil.copy(folder / OUTPUTS, shared)
        return folder

    def decode(self, name: str, contestant: Contestant) -> dict[str, Any]:
        """Strategies of a contestant, with the figures of each."""
        folder = self.args.workdir / name / "decode"
        results = folder / "results.json"
        if not results.exists():
            specjax.run(self.make_decode_config(name, contestant), folder)
        found = json.loads(results.read_text("utf-8"))
        return found["strategies"]

    def predict(
        self, name: str, contestant: Contestant, decoded: Mapping[str, Any]
    ) -> dict[str, dict[str, float]]:
        """Speedups on chips, by strategy: measured tokens per call over the steps of a round."""
        config = self.make_decode_config(name, contestant)
        config.dtype = "bfloat16"
        found = {}
        for chip in PREDICTED_ON:
            rounds = price_rounds(config, PRICED[chip]).rounds
            found[chip] = {
                strategy: decoded[strategy]["tokens_per_target_call"] / rounds[strategy].steps
                for strategy in list_strategies(self.args)
                if strategy in decoded
            }
        return found

    def make_decode_config(self, name: str, contestant: Contestant) -> ConfigDict:
        """Chain, trees and a sampled chain of a contestant beside autoregressive decoding."""
        args, trained = self.args, self.args.workdir / name / "train"
        own: dict[str, Any] = {"drafter": contestant.drafter}
        heads, model = trained / "heads.safetensors", trained / "model"
        given: dict[str, Any] = {}
        if heads.exists():
            given["heads"] = str(heads)
        elif model.exists():
            given["drafters"] = {"own": str(model)}
            own["model"] = "own"
        if contestant.drafter == "medusa":
            own["model"] = "target"
        chain = own | {"length": CHAIN}
        strategies = {"autoregressive": AUTOREGRESSIVE, "chain": chain}
        for nodes in args.nodes:
            if contestant.widths:
                shape = {"widths": contestant.widths, "nodes": nodes}
            elif contestant.levels:
                shape = {"length": contestant.levels, "nodes": nodes}
            else:
                shape = {"length": CHAIN, "branches": nodes // CHAIN}
            strategies[f"tree_{nodes}"] = own | shape
        strategies |= {"sampled": SAMPLED, "chain_sampled": chain | {"temperature": 1.0}}
        config = decode_config(
            target=args.target,
            task=args.task if args.test_task is None else args.test_task,
            examples=args.test_examples,
            max_new_tokens=args.max_new_tokens,
            bucket=64,
            repeats=1,
            strategies=strategies,
            **given,
        )
        config.update_from_flattened_dict({**args.settings, **args.decoding})
        read_files(config, args.test)
        return config


def load_config(spec: str) -> ConfigDict:
    """The config of a file of configs/, with what follows its colon."""
    path, _, word = spec.partition(":")
    module = importlib.import_module("configs." + path.replace("/", "."))
    return module.get_config(word) if word else module.get_config()


def read_files(config: ConfigDict, files: str) -> None:
    """Sets the files of a data set, of a task's or plain ones."""
    source, _, reference = files.partition(",")
    if config.task:
        config.data.path, config.data.reference_path = source, reference
    else:
        config.source_file, config.reference_file = source, reference


def rates(folder: Path) -> list[tuple[int, float]]:
    """Steps and the steps per second up to each, as a run has logged them."""
    return [
        (event.step, value.simple_value)
        for file in sorted((folder / "tensorboard").iterdir())
        for event in read_events(file.read_bytes())
        for value in event.summary.value
        if value.tag == "train/steps_per_second"
    ]


def read_events(content: bytes) -> Iterator[Any]:
    """The events of a TensorBoard file: length, checksum, event, checksum."""
    place = 0
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        yield Event.FromString(content[place + 12 : place + 12 + length])
        place += 16 + length


def main() -> int:
    args = parse()
    args.workdir = args.workdir.absolute()
    contestants = find_contestants(args.kind)
    names = args.only.split(",") if args.only else list(contestants)
    if unknown := set(names) - set(contestants):
        raise UserError(f"--only has {sorted(unknown)}; known are {', '.join(contestants)}")
    if "small" in names and not args.small:
        raise UserError("--small is not given; it must be a model for the contestant `small`")
    study, file = Study(args), args.workdir / "study.json"
    found = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for name in names:
        trained = study.train(name, contestants[name])
        decoded = study.decode(name, contestants[name])
        predicted = study.predict(name, contestants[name], decoded)
        found[name] = {"training": trained, "decoding": decoded, "predicted": predicted}
        jax.clear_caches()
        write_json(file, found)
    strategies = list_strategies(args)
    print(format_table(found, strategies))
    print()
    print(format_predictions(found, strategies))
    return 0


def format_table(found: Mapping[str, Any], strategies: Sequence[str]) -> str:
    """A row of a contestant: its training, acceptance by place, tokens per call, and speeds."""
    lines = [
        "drafter | steps | seconds | accepted at 1, 2, 3 | " + " | ".join(strategies),
        " | ".join(["---"] * (4 + len(strategies))),
    ]
    for name, of in found.items():
        trained, decoded = of["training"], of["decoding"]
        accepted = [trained.get(f"acceptance_0_at_{place}") for place in (1, 2, 3)]
        cells = [name, str(trained["steps"]), f"{trained['seconds']:.0f}"]
        cells.append(", ".join("-" if one is None else f"{one:.3f}" for one in accepted))
        for strategy in strategies:
            made = decoded.get(strategy)  # another run may have had other trees
            cells.append(
                f"{made['tokens_per_target_call']:.2f} ({made['speedup']:.2f})" if made else "-"
            )
        lines.append(" | ".join(cells))
    return "\n".join(lines)


def format_predictions(found: Mapping[str, Any], strategies: Sequence[str]) -> str:
    """A row of a contestant: its predicted speedups on each chip, a column for each strategy."""
    lines = [
        "drafter | chip | " + " | ".join(strategies),
        " | ".join(["---"] * (2 + len(strategies))),
    ]
    for name, of in found.items():
        for chip, speeds in of["predicted"].items():
            lines.append(
                " | ".join([name, chip, *(format_speed(speeds, one) for one in strategies)])
            )
    return "\n".join(lines)


def format_speed(speeds: Mapping[str, float], strategy: str) -> str:
    return f"{speeds[strategy]:.2f}" if strategy in speeds else "-"


if __name__ == "__main__":
    sys.exit(main())
