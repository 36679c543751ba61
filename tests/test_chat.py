"""Prompts of chat models: what the tokenizer's template makes of texts."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path
from typing import Any

import jax
import pytest

import specjax
from specjax.data.text import Example
from specjax.experiments.config.command_line import parse
from specjax.experiments.config.defaults import beams_config, decode_config, train_config
from specjax.experiments.decode.data import check_chat, check_single_turn, load_data, stream
from specjax.experiments.decode.prompts import make_prompts
from specjax.experiments.train import data as train_data
from specjax.hf.tokenizer import load_tokenizer, train_tokenizer
from specjax.loading import LoadedModel
from specjax.models.causal import Causal
from specjax.models.causal_config import CausalConfig
from specjax.models.positions import Rope
from specjax.runtime.errors import UserError

CONFIGS = Path(__file__).parents[1] / "configs"
TEMPLATE = (
    "{% for m in messages %}"
    "<{{ m['role'] }}>{{ m['content'] }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
WITHOUT_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported.') }}"
    "{% endif %}" + TEMPLATE
)
TEXTS = ["how many apples", "are left"]


def model(template: str | None) -> LoadedModel:
    """A name and a tokenizer with this template: no weights are read."""
    tokenizer = train_tokenizer(
        ["how many apples are left <user> <system> <assistant> Be brief."], 280
    )
    tokenizer.chat_template = template
    return LoadedModel(model=None, params=None, tokenizer=tokenizer, name="chatty")


def format_chat(target: LoadedModel, rows: list[list[int]]) -> list[str]:
    return [target.tokenizer.decode(row) for row in rows]


def test_each_text_is_a_users_message_that_an_answer_follows() -> None:
    target = model(TEMPLATE)
    rows = specjax.chat_prompts(target, TEXTS)
    assert format_chat(target, rows) == [f"<user>{text}<assistant>" for text in TEXTS]


def test_a_system_text_comes_first() -> None:
    target = model(TEMPLATE)
    rows = specjax.chat_prompts(target, TEXTS[:1], system="Be brief.")
    assert format_chat(target, rows) == ["<system>Be brief.<user>how many apples<assistant>"]


def test_a_conversation_has_several_turns() -> None:
    target = model(TEMPLATE)
    turns = [("user", "how many apples"), ("assistant", "left"), ("user", "are left")]
    messages = [{"role": role, "content": content} for role, content in turns]
    rows = specjax.chat_prompts(target, [messages, TEXTS[0]], system="Be brief.")
    first = "<system>Be brief.<user>how many apples<assistant>"
    assert format_chat(target, rows) == [f"{first}left<user>are left<assistant>", first]


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "a chat needs a list of texts"),
        ({"role": "user", "content": "how"}, "a chat needs a list of texts"),
        ([{"role": "user"}], "messages have a role and a content"),
        ([{"role": "user", "content": 3}], "messages have a role and a content"),
        ([{"role": "assistant", "content": "left"}], "ends with the assistant"),
        ([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}], "has its own"),
    ],
)
def test_a_conversation_that_cannot_be_answered_is_refused(messages: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        specjax.chat_prompts(model(TEMPLATE), [messages], system="Be brief.")
    assert "\n" not in str(caught.value)


def test_a_variable_that_the_template_cannot_use_is_refused() -> None:
    counting = TEMPLATE + "{{ budget + 1 }}"
    with pytest.raises(UserError, match="takes no messages of user: .* str"):
        specjax.chat_prompts(model(counting), TEXTS, chat_template_kwargs={"budget": "x"})


def test_a_template_in_a_file_of_its_own_is_found(tmp_path: Path) -> None:
    target = model(TEMPLATE)
    target.tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / "chat_template.jinja").exists()
    again = LoadedModel(None, None, load_tokenizer(tmp_path), "again")
    assert specjax.chat_prompts(again, TEXTS) == specjax.chat_prompts(target, TEXTS)


@pytest.mark.parametrize(
    ("target", "system", "sentence"),
    [
        (model(None), "", "model 'chatty' has a tokenizer without a chat template"),
        (LoadedModel(None, None, None, "mute"), "", "model 'mute' has no tokenizer"),
        (model(WITHOUT_SYSTEM), "Be brief.", "of system and user: System role not supported"),
    ],
)
def test_what_has_no_template_for_it_is_refused(
    target: LoadedModel, system: str, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        specjax.chat_prompts(target, TEXTS, system=system)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("texts", ["how many", [[1, 2]], [None]])
def test_only_texts_are_messages(texts: Any) -> None:
    with pytest.raises(UserError, match="a chat needs a list of texts"):
        specjax.chat_prompts(model(TEMPLATE), texts)


def test_a_template_cannot_leave_its_sandbox() -> None:
    escape = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(UserError, match="takes no messages of user"):
        specjax.chat_prompts(model(escape), TEXTS)


def test_a_config_asks_in_a_chat_behind_its_prefix() -> None:
    target = model(TEMPLATE)
    plain = decode_config(prefix="how many ")
    assert make_prompts(plain, target, [Example("apples")], Path()) == ["how many apples"]
    chat = decode_config(prefix="how many ", chat=True, system="Be brief.")
    rows = make_prompts(chat, target, [Example("apples")], Path())
    assert format_chat(target, rows) == ["<system>Be brief.<user>how many apples<assistant>"]


THINKING = TEMPLATE + "{% if enable_thinking is false %}Be brief.{% endif %}"
QUIET = {"enable_thinking": False}


def test_a_variable_reaches_the_template() -> None:
    target = model(THINKING)
    rows = specjax.chat_prompts(target, TEXTS[:1], chat_template_kwargs=QUIET)
    assert format_chat(target, rows) == ["<user>how many apples<assistant>Be brief."]
    rows = specjax.chat_prompts(target, TEXTS[:1])
    assert format_chat(target, rows) == ["<user>how many apples<assistant>"]
    config = decode_config(chat=True, chat_template_kwargs=QUIET)
    rows = make_prompts(config, target, [Example("apples")], Path())
    assert format_chat(target, rows) == ["<user>apples<assistant>Be brief."]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"enable_thinkin": False}, "'enable_thinkin', which the chat template of model 'chatty'"),
        ({"tokenize": False}, "chat_template_kwargs has 'tokenize'; it must have names of"),
        ({"add_generation_prompt": False}, "has 'add_generation_prompt'; it must have names of"),
        ({"enable thinking": 1}, "has 'enable thinking'; it must have names of"),
        ({3: 1}, "chat_template_kwargs has 3; it must have names of"),
        ({"enable_thinking": [1]}, r"chat_template_kwargs.enable_thinking is \[1\]; it must be"),
        ("enable_thinking", "chat_template_kwargs is 'enable_thinking'"),
    ],
)
def test_what_is_no_variable_of_the_template_is_refused(given: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        specjax.chat_prompts(model(THINKING), TEXTS, chat_template_kwargs=given)
    assert "\n" not in str(caught.value)


def test_a_flag_adds_a_variable() -> None:
    flags = ["--config.chat=True", "--config.chat_template_kwargs.enable_thinking=False"]
    parsed = parse(["main", f"--config={CONFIGS / 'qwen3.py'}", *flags])
    assert parsed.config.chat_template_kwargs.to_dict() == QUIET


def test_variables_of_a_template_without_a_chat_are_refused() -> None:
    with pytest.raises(UserError, match="config.chat_template_kwargs is .* and config.chat False"):
        check_chat(decode_config(chat_template_kwargs=QUIET))
    with pytest.raises(UserError, match="config.chat_template_kwargs has 'tools'"):
        check_chat(decode_config(chat=True, chat_template_kwargs={"tools": 1}))


@pytest.mark.parametrize(
    ("name", "version", "chat"),
    [("t5gemma", "1", True), ("t5gemma", "2", False), ("qwen3_moe", "", True)],
)
def test_pairs_that_were_taught_to_answer_are_asked_in_a_chat(
    name: str, version: str, chat: bool
) -> None:
    made = runpy.run_path(str(CONFIGS / f"{name}.py"))["get_config"]
    config = made(version) if version else made()
    check_chat(config)
    assert config.chat == chat


@pytest.mark.parametrize("template", [decode_config, beams_config])
def test_a_system_text_without_a_chat_is_refused(template: Any) -> None:
    with pytest.raises(UserError, match="config.system is 'Be brief.' and config.chat False"):
        check_chat(template(system="Be brief."))


def make_chat_model(template: str) -> LoadedModel:
    """A tiny decoder-only model with this template."""
    tokenizer = model(template).tokenizer
    causal = Causal(CausalConfig("llama", len(tokenizer), 8, 16, 1, 2, 1, 4, 256, rope=Rope(4)))
    params = causal.init(jax.random.key(0))
    return LoadedModel(causal, params, tokenizer=tokenizer, name="chatty")


TURNS = (
    Example("how many"),
    Example("apples", earlier=("how many",)),
    Example("left", earlier=("how many", "apples")),
)


@pytest.mark.slow
def test_later_turns_follow_the_targets_own_answers(tmp_path: Path) -> None:
    target = make_chat_model(TEMPLATE)
    config = decode_config(chat=True, max_new_tokens=5, batch_size=2)
    generator = specjax.Generator(target, max_new_tokens=5, bucket=8)
    conversation: list[dict[str, str]] = []
    expected = []
    for text in ("how many", "apples", "left"):
        conversation.append({"role": "user", "content": text})
        expected += specjax.chat_prompts(target, [conversation])
        answer = generator(expected[-1:]).texts[0]
        conversation.append({"role": "assistant", "content": answer})
    assert make_prompts(config, target, list(TURNS), tmp_path) == expected


def test_earlier_answers_are_decoded_once(tmp_path: Path, monkeypatch) -> None:
    target, config = make_chat_model(TEMPLATE), decode_config(chat=True, max_new_tokens=5)
    first = make_prompts(config, target, list(TURNS), tmp_path)
    monkeypatch.setattr(specjax.Generator, "run", None)
    assert make_prompts(config, target, list(TURNS), tmp_path) == first


def test_turns_after_answers_need_a_chat(tmp_path: Path) -> None:
    config = decode_config(task="mt_bench")
    with pytest.raises(UserError, match="config.chat is False, and task 'mt_bench' has messages"):
        make_prompts(config, make_chat_model(TEMPLATE), list(TURNS), tmp_path)
    with pytest.raises(UserError, match="only decode and beams experiments generate these"):
        check_single_turn(config, TURNS[1])


def test_first_turns_need_no_answers(tmp_path: Path) -> None:
    file = tmp_path / "question.jsonl"
    file.write_text('{"turns": ["how many", "apples"], "category": "qa"}\n')
    config = decode_config(task="spec_bench", turns=1, data={"path": str(file)})
    assert load_data(config, more=False).examples == [Example("how many", group="qa")]
    assert [one.source for one in stream(config)] == ["how many"]
    with pytest.raises(UserError, match="only decode and beams experiments generate these"):
        list(stream(decode_config(task="spec_bench", data={"path": str(file)})))
    with pytest.raises(UserError, match="config.turns is 1 and config.task empty; it must be 0"):
        load_data(decode_config(turns=1, source_file=str(file)), more=False)


def test_training_prompts_and_answers_are_those_of_a_chat() -> None:
    start = make_chat_model(TEMPLATE)
    start = dataclasses.replace(
        start, model=dataclasses.replace(start.model, config=dataclasses.replace(
            start.model.config, eos=(3,)
        ))
    )  # fmt: skip
    config = train_config(chat=True, system="Be brief.")
    encoder = train_data.make_encoder(config, start)
    prompts = encoder.prompts(["how many"])
    expected = specjax.chat_prompts(start, ["how many"], system="Be brief.")
    assert [row.tolist() for row in prompts] == expected
    answer = start.tokenizer("apples", add_special_tokens=False).input_ids
    outputs = encoder.outputs(["how many"], ["apples"])
    assert [row.tolist() for row in outputs] == [[*answer, 3]]
