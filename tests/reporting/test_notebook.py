"""A result in a notebook: tokens on their writers' colors, figures, and any ground."""

from __future__ import annotations

import re
import subprocess
import sys

import synthetic

from specjax.decoding.summary import Statistics
from specjax.reporting.notebook import result_html
from specjax.result import Result

STATISTICS = Statistics(
    tokens=45,
    rounds=18,
    drafted=54,
    accepted=27,
    tested=36,
    overlap=26.5,
    calls={"target": 18, "drafter": 54},
    widths={3: 18},
)


def test_a_result_is_short_in_words():
    result = Result([[1, 2], [3]], ["a" * 1000, "b"], STATISTICS)
    words = "Result(2 texts, 45 tokens, 2.50 per target call, 75.0% of drafts accepted)"
    assert repr(result) == str(result) == words


def test_a_row_is_flat_and_complete():
    row = Result([[1, 2], [3]], None, STATISTICS).row()
    assert row["texts"] == 2 and row["acceptance_rate"] == 0.75
    assert row["calls_target"] == 18 and row["calls_drafter"] == 54
    assert all(isinstance(value, (int, float)) for value in row.values())


def test_every_token_and_figure_is_shown_escaped():
    texts = synthetic.texts()[:2]
    page = result_html(texts, 7, Result([[1]] * 7, None, STATISTICS).row())
    rounds = [each for text in texts for each in text["rounds"]]
    written = sum(len(each["drafted"]) + (each["next"] is not None) for each in rounds)
    assert page.count("class='token'") == written + 3 + 1  # three writers, and rejected
    assert "&lt;blauen&gt;" in page and "<blauen>" not in page and "&lt;play&gt;" in page
    assert "and 5 more" in page and "75.0%" in page and "calls drafter" in page


def test_words_take_the_color_of_the_notebook():
    page = result_html(synthetic.texts(), 3, Result([[1]] * 3, None, STATISTICS).row())
    assert not re.search(r"(?<![-\w])color:(?! inherit)", page)
    grounds = re.findall(r"background:\s*([^;']+)", page)
    assert grounds and all(re.fullmatch(r"none|#\w{6}33", ground) for ground in grounds)


def test_without_a_tokenizer_there_are_figures_alone():
    page = Result([[1, 2]], None, STATISTICS)._repr_html_()
    assert "class='token'" not in page and "tokens per target call" in page


def test_showing_a_result_leaves_the_backend_of_matplotlib_alone():
    code = (
        "import sys; from specjax.reporting.notebook import result_html;"
        " result_html([], 0, {'tokens': 1}); assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
