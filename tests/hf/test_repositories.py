"""The table of published repositories names every one that a config names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from specjax.experiments.config.file import read_config

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").rglob("*.py"))
WORDS = {"t5gemma": ("", ":2")}
"""What a config is called with, where other words ask for other models."""
HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(#mtp)?")
NAMES = re.compile(r"`([\w.-]+/[\w.-]+)`")
ROW = re.compile(r"^\|(?P<cells>[^\n]*)\|(?P<names>[^|\n]*)\|$", re.MULTILINE)
OWNERS = (
    "HuggingFaceTB",
    "google",
    "google-t5",
    "lmsys",
    "meta-llama",
    "JackFram",
    "double7",
    "Qwen",
    "facebook",
    "openai",
    "distil-whisper",
    "microsoft",
    "naver-clova-ix",
    "deepseek-ai",
    "JetSpec",
    "UsefulSensors",
    "harshaljanjani",
)


def rows() -> dict[str, list[str]]:
    """What to do, weights and tokenizer, by repository."""
    text = (ROOT / "docs" / "how_to" / "checkpoints.md").read_text("utf-8")
    table = text.partition("\n## The repositories of the configs\n")[2].partition("\n### ")[0]
    return {
        name: [cell.strip() for cell in row["cells"].split("|")]
        for row in ROW.finditer(table)
        for name in NAMES.findall(row["names"])
    }


def hub_ids(value: object) -> set[str]:
    """Names of models in a config, however deep."""
    if isinstance(value, ConfigDict | dict):
        return set().union(*(hub_ids(value[key]) for key in value))
    if isinstance(value, list | tuple):
        return set().union(*map(hub_ids, value))
    whole = isinstance(value, str) and HUB_ID.fullmatch(value)
    return {whole[1]} if whole and value.split("/")[0] in OWNERS else set()


def get_name() -> set[str]:
    places = [f"{file}{words}" for file in CONFIGS for words in WORDS.get(file.stem, ("",))]
    return set().union(*(hub_ids(read_config(place)) for place in places))


def test_every_repository_of_a_config_is_in_the_table_and_no_other() -> None:
    assert get_name() == rows().keys()


def test_owners_are_all_those_of_quoted_names() -> None:
    """A config of another owner's model would not be seen."""
    quoted = set()
    for file in CONFIGS:
        quoted |= set(re.findall(r"[\"']([\w-]+)/[\w.-]+(?:#mtp)?[\"']", file.read_text("utf-8")))
    assert quoted - {"configs", "runs"} <= set(OWNERS)


@pytest.mark.parametrize("name", sorted(rows()))
def test_a_repository_without_safetensors_is_to_be_converted(name: str) -> None:
    to_do, weights, tokenizer = rows()[name]
    assert ("safetensors" in weights) is not to_do.startswith("convert")
    # Drafters on a target's states have no need of a tokenizer.
    files = "tokenizer.json", ".model`", "merges.txt"
    assert any(file in tokenizer for file in files) or tokenizer == "the target's"
