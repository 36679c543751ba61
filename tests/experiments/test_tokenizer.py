"""The tokenizer job: both kinds, what they promise, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import ROOT, command, run_refused
from ml_collections import ConfigDict
from tiny import corpus
from transformers import AutoTokenizer

from specjax.data.sources import hold_out
from specjax.experiments import tokenizer as job
from specjax.experiments.config.defaults import tokenizer_config
from specjax.experiments.config.validation import check_config
from specjax.hf.tokenizer import load_tokenizer, train_tokenizer
from specjax.runtime.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("text")
    for name, side in (("en", "source"), ("de", "target")):
        lines = "".join(f"{getattr(pair, side)}\n" for pair in corpus())
        (made / f"text.{name}").write_text(lines, "utf-8")
    return made


def make_config(folder: Path, **changes) -> ConfigDict:
    files = f"{folder / 'text.en'}, {folder / 'text.de'}"
    return tokenizer_config(**{"text_files": files, "vocab_size": 400, "heldout": 20} | changes)


@pytest.mark.parametrize("kind", ["bpe", "byte_bpe"])
def test_what_it_encodes_it_decodes(kind, folder, tmp_path):
    figures = job.run(make_config(folder, kind=kind), tmp_path)
    tokenizer = load_tokenizer(tmp_path / "tokenizer")
    assert len(tokenizer) == figures["vocabulary"] <= 400
    for text in (text for pair in corpus() for text in (pair.source, pair.target)):
        ids = tokenizer(text).input_ids
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert figures["unknown"] == 0
    assert 1.5 < figures["characters_per_token"] < 10  # more than bytes, less than words


def test_bpe_has_the_special_tokens_of_t5(folder, tmp_path):
    job.run(make_config(folder), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    found = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id)
    assert found == (0, 1, 2)
    assert tokenizer("The dog").input_ids[-1] == 1
    assert tokenizer("\u2603", add_special_tokens=False).input_ids[-1] == 2


def test_byte_bpe_appends_nothing_and_gives_every_text_back(folder, tmp_path):
    job.run(make_config(folder, kind="byte_bpe"), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    assert tokenizer.convert_ids_to_tokens([0, 1]) == ["<|endoftext|>", "<|pad|>"]
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 1)
    text = " Two  spaces,\ttabs\r\n\u2603 \U0001f9ca \ufb01ne "
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids) == text
    assert not {0, 1} & set(ids)


def test_a_task_gives_prompts_and_references(folder):
    source = {"kind": "grammar", "split": "train"}
    config = make_config(folder, text_files="", task="multi30k_ende", data=source, examples=2)
    prompt = "translate English to German: "
    sides = [side for p in corpus()[:2] for side in (prompt + p.source, p.target)]
    assert list(job.texts(config)) == sides


def test_the_share_of_unknown_tokens_is_measured(tmp_path):
    """Of an alphabet that has more letters than the vocabulary has room for."""
    (tmp_path / "text.txt").write_text("ab\n" * 40 + "abcdefghijklmnopqrstuvwxyz\n" * 20)
    config = tokenizer_config(text_files=str(tmp_path / "text.txt"), vocab_size=16, heldout=20)
    figures = job.run(config, tmp_path)
    assert figures["vocabulary"] == 16
    tokenizer = load_tokenizer(tmp_path / "tokenizer")
    heldout, rest = hold_out(job.texts(config), 20, config.seed)
    assert len(list(rest)) == 40
    ids = [token for text in heldout for token in tokenizer(text).input_ids[:-1]]
    assert figures["unknown"] == ids.count(2) / len(ids) > 0


def test_rare_characters_do_not_exceed_the_vocabulary():
    alphabet = "".join(map(chr, range(0x4E00, 0x4E80)))
    assert len(train_tokenizer([alphabet] * 2 + ["ab ab ab"], 40)) == 40


MISTAKES = {
    "an unknown kind": ({"kind": "unigram"}, "config.kind is 'unigram'"),
    "too few pieces": ({"vocab_size": 8}, "config.vocab_size is 8; .* at least 16"),
    "fewer than the bytes": (
        {"kind": "byte_bpe", "vocab_size": 257},
        "config.vocab_size is 257; .* at least 258",
    ),
    "no text": ({"text_files": ""}, "config.text_files is empty"),
    "two texts": ({"source_file": "text.en"}, "source_file is 'text.en' with config.text_files"),
    "JSON lines": ({"text_files": "a.jsonl.gz"}, "has 'a.jsonl.gz'; it must be plain text"),
    "a missing file": ({"text_files": "text.en,./nowhere.txt"}, "'./nowhere.txt' cannot be read"),
    "sides of two lengths": (
        {"text_files": "", "source_file": "text.en", "reference_file": "short.de"},
        "must match line by line",
    ),
    "an unknown task": ({"text_files": "", "task": "wmt"}, "config.task is 'wmt'"),
    "all held out": ({"heldout": 120}, "config.heldout is 120"),
    "none held out": ({"heldout": 0}, "config.heldout is 0"),
}


@pytest.mark.parametrize(("changes", "named"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_refused_in_one_sentence(changes, named, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    Path("short.de").write_text("eins\n")
    with pytest.raises(UserError, match=named) as refusal:
        config = make_config(folder, **changes)
        check_config(config)
        job.run(config, tmp_path)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "tokenizer").exists()


def test_a_plan_names_files_and_pieces(folder, capsys):
    job.plan(make_config(folder, kind="byte_bpe"))
    printed = capsys.readouterr().out
    assert "text.en" in printed and "text.de" in printed and "at most 400 pieces" in printed
    with pytest.raises(UserError, match="is not a file"):
        job.plan(make_config(folder, text_files="./nowhere.txt"))


def test_main_trains_and_refuses(folder, tmp_path):
    flags = [f"--config={ROOT / 'configs' / 'tokenizer.py'}", f"--workdir={tmp_path}"]
    flags += [f"--config.text_files={folder / 'text.de'}", "--config.heldout=20"]
    done = command(*flags, "--config.vocab_size=100")
    assert done.returncode == 0, done.stderr
    assert "characters per token" in done.stdout
    assert load_tokenizer(tmp_path / "tokenizer") is not None
    done = command(*flags, "--config.vocab_size=1")
    run_refused(done.returncode, done.stderr, "config.vocab_size is 1")
