"""Every task on rows written by hand: exact prompts, references, skipped rows, mistakes."""

from __future__ import annotations

import pytest

from specjax.contracts.registry import METRICS, TASKS
from specjax.data.examples import examples
from specjax.data.sources import Source
from specjax.data.task import get_task
from specjax.data.text import Example
from specjax.metrics.metric import get_metric
from specjax.runtime.errors import UserError

PAIR = {"de": "Hallo!", "en": "Hi!"}
TO_EN, TO_DE = "translate German to English: Hallo!", "translate English to German: Hi!"
DUCKS = {"question": "How many ducks?", "answer": "2*500=<<2*500=1000>>1,000\n#### 1,000"}
COLORS = {"question": "Which?", "choices": ["red", "blue", "green", "grey"]}
CHOICE_PROMPT = (
    "Question: Which?\n(A) red (B) blue (C) green (D) grey\n Answer: \n Let's think step by step. "
)
ALPACA = {"instruction": "Sort.", "input": "b a", "output": "a b"}
ALIASES = {"value": "Bern", "aliases": ["Berne", "Bern"], "normalized_aliases": ["bern"]}
LONG = " ".join(f"w{i}" for i in range(40))

CASES = {
    "wmt14_deen": [
        ({"translation": PAIR}, TO_EN, "Hi!"),
        (PAIR, TO_EN, "Hi!"),
        ({"source": "Hallo!", "reference": "Hi!"}, TO_EN, "Hi!"),
    ],
    "wmt14_ende": [
        ({"translation": PAIR}, TO_DE, "Hallo!"),
        (PAIR, TO_DE, "Hallo!"),
        ({"source": "Hi!", "reference": "Hallo!"}, TO_DE, "Hallo!"),
    ],
    "iwslt17_deen": [({"translation": PAIR}, TO_EN, "Hi!")],
    "iwslt17_ende": [({"translation": PAIR}, TO_DE, "Hallo!")],
    "multi30k_deen": [(PAIR, TO_EN, "Hi!")],
    "multi30k_ende": [(PAIR, TO_DE, "Hallo!")],
    "xsum": [({"document": "It rained.\nA lot.", "summary": "Rain."},
              "summarize: It rained.\nA lot.", "Rain.")],
    "cnn_dailymail": [({"article": "It rained.", "highlights": "Rain .\nMore rain ."},
                       "summarize: It rained.", "Rain .\nMore rain .")],
    "gsm8k": [
        (DUCKS, "Reason the math question below step by step. Question: How many ducks?.\n"
                " Answer: ", "1,000"),
        ({"turns": ["How many ducks?"]}, "How many ducks?", None),
    ],
    "gsm8k_qa": [
        (DUCKS, "Q: How many ducks?\nA:", "1,000"),
        ({"question": "How many?", "answer": "7"}, "Q: How many?\nA:", "7"),
        ({"question": "How many?"}, "Q: How many?\nA:", None),
    ],
    "mmlu": [
        (COLORS | {"answer": 0}, CHOICE_PROMPT, "A"),
        (COLORS | {"answer": 3}, CHOICE_PROMPT, "D"),
        (COLORS | {"answer": "B"}, CHOICE_PROMPT, "B"),
        (COLORS, CHOICE_PROMPT, None),
    ],
    "triviaqa": [
        ({"question": "Capital?", "answer": ALIASES}, "Q: Capital?\nA:", ("Bern", "Berne")),
        ({"question": "Capital?", "answer": "Bern"}, "Q: Capital?\nA:", "Bern"),
        ({"question": "Capital?", "answer": {"value": "", "aliases": []}}, "Q: Capital?\nA:", None),
    ],
    "alpaca": [
        (ALPACA, "Below is an instruction that describes a task, paired with an input that "
                 "provides further context. Write a response that appropriately completes the "
                 "request.\n\n### Instruction:\nSort.\n\n### Input:\nb a\n\n### Response:", "a b"),
        (ALPACA | {"input": None, "output": ""},
         "Below is an instruction that describes a task. Write a response that appropriately "
         "completes the request.\n\n### Instruction:\nSort.\n\n### Response:", None),
        ({"turns": ["Sort: b a"]}, "Sort: b a", None),
    ],
    "read_image": [
        ({"image": "a.png", "text": "hello"}, "a.png", "hello"),
        ({"file_name": "b.png", "ground_truth": "bye"}, "b.png", "bye"),
        ({"image": "c.png"}, "c.png", None),
    ],
    "transcribe": [
        ({"audio": "a.wav", "text": "hello"}, "a.wav", "hello"),
        ({"audio_filepath": "b.wav", "sentence": "bye"}, "b.wav", "bye"),
        ({"audio": "c.wav"}, "c.wav", None),
    ],
    "humaneval": [
        ({"prompt": "def two():\n", "canonical_solution": "    return 2\n"},
         "def two():\n", "    return 2\n"),
        ({"turns": ["Write two()."]}, "Write two().", None),
    ],
    "humaneval_chat": [
        ({"prompt": "def two():\n"},
         "Complete this Python function. Answer with the whole function in one code block.\n\n"
         "```python\ndef two():\n```", None),
        ({"turns": ["Write two()."]}, "Write two().", None),
    ],
    **{
        task: [
            ({"turns": [" Prove it. "]}, " Prove it. ", None),
            ({"turns": ["Prove it.", "More."]}, "Prove it.", None),
            ({"prompt": "Prove it."}, "Prove it.", None),
            ({"question": "Prove it."}, "Prove it.", None),
            ({"problem": "Prove it.", "answer": "7"}, "Prove it.", None),
        ]
        for task in ("math500", "aime25", "mbpp", "livecodebench", "arena_hard")
    },
    "mt_bench": [({"turns": ["Tell me."]}, "Tell me.", None)],
    "spec_bench": [({"turns": ["Tell me."], "reference": ["x"]}, "Tell me.", None)],
    "speed_bench": [({"turns": ["Tell me."], "category": "qa"}, "Tell me.", None)],
    "lm1b": [({"text": LONG}, " ".join(LONG.split()[:16]), None)],
    "wikitext": [({"text": f" {LONG} \n"}, " ".join(LONG.split()[:32]), None)],
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_rows_become_exactly_these_prompts_and_references(task):
    rows, prompts, references = zip(*CASES[task], strict=True)
    found = examples(task, rows)
    assert [(e.source, e.reference) for e in found] == list(zip(prompts, references, strict=True))


OUTPUTS = {
    "wmt14_ende": PAIR["de"],
    "xsum": "s",
    "gsm8k": "2 + 2 = 4\n#### 4",
    "lm1b": " ".join(LONG.split()[16:]),
    "wikitext": " ".join(LONG.split()[32:]),
    "spec_bench": None,
}


@pytest.mark.parametrize("task", OUTPUTS)
def test_the_output_to_learn_is_the_whole_answer(task):
    rows = {
        "wmt14_ende": PAIR,
        "xsum": {"document": "d", "summary": "s"},
        "gsm8k": {"question": "2 + 2?", "answer": "2 + 2 = 4\n#### 4"},
        "spec_bench": {"turns": ["Tell me."]},
    }
    assert examples(task, [rows.get(task, {"text": LONG})])[0].output == OUTPUTS[task]


@pytest.mark.parametrize("task", TASKS)
def test_a_task_asks_its_example_and_has_what_its_metric_compares(task):
    chosen = get_task(task)
    found, *_ = examples(task, [chosen.example])
    assert found.source.strip()
    assert found.group == chosen.example.get(chosen.group)
    assert chosen.metric in METRICS and chosen.reads
    if get_metric(chosen.metric).scores:
        assert found.reference and found.output


SKIPPED = {
    "wmt14_deen": PAIR | {"de": " "},
    "xsum": {"document": "", "summary": "s"},
    "gsm8k": {"question": "", "answer": "1"},
    "gsm8k_qa": {"question": " ", "answer": "1"},
    "mmlu": COLORS | {"question": ""},
    "alpaca": ALPACA | {"instruction": ""},
    "spec_bench": {"turns": [""]},
    "math500": {"turns": [" "]},
    "humaneval_chat": {"turns": [" "]},
    "lm1b": {"text": " ".join(LONG.split()[:15])},
    "wikitext": {"text": " = Heading = "},
}


@pytest.mark.parametrize("task", SKIPPED)
def test_rows_of_no_use_are_left_out_and_not_counted(task):
    row, prompt, reference = CASES[task][0]
    found = examples(task, [SKIPPED[task], row, row, row], 2)
    assert [(e.source, e.reference) for e in found] == [(prompt, reference)] * 2
    with pytest.raises(UserError) as error:
        examples(task, [SKIPPED[task]])
    assert str(error.value) == f"source has no row that task {task!r} can use"


def test_no_row_is_read_beyond_those_needed():
    rows = iter([PAIR, PAIR, {"wrong": "row"}])
    assert len(examples("wmt14_deen", rows, 2)) == 2
    assert next(rows) == {"wrong": "row"}


def test_the_grammar_and_parallel_text_serve_translation_tasks(tmp_path):
    (tmp_path / "en").write_text("Hi!\n")
    (tmp_path / "de").write_text("Hallo!\n")
    text = Source("text", str(tmp_path / "en"), reference_path=str(tmp_path / "de"))
    assert examples("wmt14_ende", text) == [Example(TO_DE, "Hallo!")]
    made = examples("wmt14_deen", Source("grammar"), 2)
    assert len(made) == 2 and made[0].source.startswith("translate German to English: ")


def test_a_missing_field_names_source_row_and_fields(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"question": "a", "answer": "1"}\n{"q": "b", "a": "2"}\n')
    source = Source("json", str(tmp_path / "x.jsonl"))
    with pytest.raises(UserError) as error:
        examples("gsm8k", source)
    assert str(error.value) == (
        f"source json {source.path!r} row 2 has no field 'question'; it has the fields q, a, "
        "and task 'gsm8k' reads turns, or question and answer"
    )


@pytest.mark.parametrize(
    ("task", "row", "message"),
    [
        ("wmt14_deen", {"en": "Hi!"}, "no field 'de' or 'source'"),
        ("wmt14_deen", {"de": "Hallo!"}, "no field 'en' or 'reference'"),
        ("wmt14_deen", {"translation": {"fr": "Salut!"}}, "no field 'de' or 'source'"),
        ("gsm8k", {"question": 7}, "no text in field 'question', but 7"),
        ("mmlu", {"question": "Which?"}, "no list of texts in field 'choices'"),
        ("mmlu", COLORS | {"choices": ["x"]}, "1 texts in field 'choices' instead of 4"),
        ("mmlu", COLORS | {"answer": 4}, "answer 4, neither 0 to 3 nor A to D"),
        ("spec_bench", {"turns": []}, "0 texts in field 'turns' instead of 1"),
        ("math500", {"turns": "x"}, "no list of texts in field 'turns'"),
        ("math500", {"text": "x"}, "no field 'prompt' or 'question' or 'problem'"),
        ("speed_bench", {"turns": ["x"]}, "no field 'category'"),
        (
            "speed_bench",
            {"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM ..."], "category": "qa"},
            "a placeholder in field 'turns', where text of another data set must be",
        ),
        ("xsum", {"document": "d", "summary": ["s"]}, "no text in field 'summary', but ['s']"),
    ],
)
def test_unusable_fields_are_named(task, row, message):
    with pytest.raises(UserError) as error:
        examples(task, [row])
    assert str(error.value).startswith(f"source row 1 has {message}; it has the fields ")


def test_unknown_tasks_and_missing_sources_are_refused():
    with pytest.raises(
        UserError, match="task is 'wmt'; it must be one of aime25, alpaca, arena_hard"
    ):
        examples("wmt")
    with pytest.raises(UserError, match="task 'spec_bench' has no source of its own; give a file "):
        examples("spec_bench")


def test_each_turn_of_a_conversation_is_an_example() -> None:
    rows = [{"turns": ["Tell me.", "More."], "category": "writing"}, {"turns": ["x", " "]}]
    assert examples("mt_bench", rows) == [
        Example("Tell me.", group="writing"),
        Example("More.", group="writing", earlier=("Tell me.",)),
    ]


def test_only_the_first_turns_are_examples_on_request() -> None:
    rows = [{"turns": ["a", "b", "c"], "category": "qa"}, {"turns": ["d"], "category": "qa"}]
    for turns, sources in ((0, "abcd"), (1, "ad"), (2, "abd"), (9, "abcd")):
        found = examples("spec_bench", rows, turns=turns)
        assert [example.source for example in found] == list(sources)


def test_categories_of_mt_bench_are_one_of_spec_bench() -> None:
    rows = [{"turns": ["x"], "category": name} for name in ("writing", "stem", "rag")]
    assert [one.group for one in examples("spec_bench", rows)] == ["mt_bench", "mt_bench", "rag"]
    assert [one.group for one in examples("mt_bench", rows)] == ["writing", "stem", "rag"]


def test_a_file_of_speed_bench_is_read_with_its_columns(tmp_path) -> None:
    import datasets

    row = {
        "question_id": "q1", "category": "math", "sub_category": "algebra", "turns": ["a", "b"],
        "source": "made", "src_id": "1", "difficulty": "hard", "multiturn": True,
    }  # fmt: skip
    file = tmp_path / "test.parquet"
    datasets.Dataset.from_list([row]).to_parquet(file)
    assert examples("speed_bench", Source("parquet", str(file))) == [
        Example("a", group="math"),
        Example("b", group="math", earlier=("a",)),
    ]
