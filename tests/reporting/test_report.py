"""The report: complete, escaped, self-contained, legible; and drawn from older results too."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import itertools
import re
import warnings

import matplotlib.image
import pytest
import synthetic
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from specjax.reporting.plots import acceptance, operations, speed, style
from specjax.reporting.plots.jobs import quality_against_speed, side_by_side
from specjax.reporting.plots.svg import inline
from specjax.reporting.report import write_report

SECTIONS = (
    "speed", "tokens", "quality", "prediction", "time", "roofline", "acceptance", "rounds",
    "handovers", "operations", "models", "settings",
)  # fmt: skip
PLOTS = (
    "quality", "prediction", "acceptance", "along_text", "rounds", "time", "operations", "roofline",
)  # fmt: skip
VOID = {"meta", "wbr"}


class Page(html.parser.HTMLParser):
    """Tags with their attributes; fails on tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(text) -> Page:
    return Page(text)


def test_of_several_processes_one_writes(tmp_path, monkeypatch):
    monkeypatch.setattr("specjax.runtime.processes.is_first", lambda: False)
    write_report(synthetic.results(), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_every_section_is_there_and_linked(page):
    assert [each["id"] for each in page.all("section")] == list(SECTIONS)
    assert [each["href"] for each in page.all("a")] == [f"#{name}" for name in SECTIONS]
    assert len(page.all("h1")) == 1 and len(page.all("h2")) == len(SECTIONS) + 3


@pytest.mark.slow
def test_what_a_newcomer_asks_stands_first(text):
    asked = re.findall(r"<h2[^>]*>([^<]*)</h2>", text)[:4]
    assert asked == ["Which is fastest?", "Is it exact?", "Why not faster?", "Strategies"]


def test_the_page_loads_nothing_from_anywhere(page, text):
    fields = ("src", "href", "xlink:href", "action")
    sources = [a[field] for _, a in page.tags for field in fields if field in a]
    assert sources and all(source.startswith("#") for source in sources)
    assert not {"link", "iframe", "img", "form", "object"} & {tag for tag, _ in page.tags}
    shown = re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL)  # the config names its data
    assert not re.search(r"https?:|@import|url\((?!#)", shown)
    (policy,) = [
        each["content"] for each in page.all("meta") if "content" in each and "http-equiv" in each
    ]
    assert policy.startswith("default-src 'none'; ")


def test_the_policy_names_the_one_script(text):
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text


def test_every_drawing_says_in_words_what_it_shows(page):
    drawings = page.all("svg")
    assert len(drawings) == len(PLOTS)
    assert len({drawing["aria-label"] for drawing in drawings}) == len(drawings)
    assert all(len(drawing["aria-label"]) > 40 for drawing in drawings)


def test_drawings_take_the_colors_of_the_page(text):
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert all("fill: var(--ink)" in drawing for drawing in drawings)
    fixed = {style.DARK, style.WHITE, style.GRID, "#000000"}
    assert not any(color in drawing for drawing in drawings for color in fixed)
    # Rules inside of a drawing would hold for the whole page.
    assert not any("<style" in drawing for drawing in drawings)


def test_no_two_elements_share_an_id(page):
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) > len(SECTIONS) and len(set(ids)) == len(ids)


def test_words_of_a_drawing_are_text_in_any_script():
    strategies = synthetic.results()["strategies"]
    named = {"<जल्दी>": strategies["speculative_3"], "快": strategies["lenient"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own font lacks them
        drawing = inline(speed.quality_against_latency(named), "quality", "words")
    assert "&lt;जल्दी&gt;</text>" in drawing and "快</text>" in drawing


def test_every_table_scrolls_in_a_box_of_its_own(text):
    boxes = re.findall(r"<div class='scroll'[^>]*><(table|svg)", text)
    assert boxes.count("table") == text.count("<table>") > 10
    assert boxes.count("svg") == text.count("<svg ") == len(PLOTS)


def test_names_and_texts_are_escaped(page, text):
    assert "<b>" not in text and "&lt;b&gt;strategy&lt;/b&gt; &amp; $\\alpha$" in text
    assert "Multi30k <test>" not in text and "&lt;blauen&gt;" in text
    assert not page.all("b")


def test_rejected_tokens_are_struck_through(page):
    rounds = [each for text in synthetic.texts() for each in text["rounds"]]
    rejected = sum(len(each["drafted"][each["accepted"] :]) for each in rounds)
    written = sum(len(each["drafted"]) + (each["next"] is not None) for each in rounds)
    assert len(page.all("s")) == rejected + 1  # and one in the legend
    tokens = [each for tag in ("s", "span") for each in page.all(tag)]
    assert len(tokens) == written + 1 + 3  # three writers


def test_each_writer_has_one_color(text):
    looks = {
        writer: set(re.findall(rf"<span class='token' style='([^']*)'>{writer}</span>", text))
        for writer in ("target", "drafter", "bigram")
    }
    assert all(len(look) == 1 for look in looks.values())
    assert len(set.union(*looks.values())) == 3


def test_plots_lie_beside_the_page_as_png_and_pdf(workdir):
    for name in PLOTS:
        assert (workdir / "plots" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        pixels = matplotlib.image.imread(workdir / "plots" / f"{name}.png")
        assert pixels.shape[1] == int(style.INCHES * style.DPI) <= 1280


def test_the_same_results_give_the_same_files(workdir, tmp_path):
    results = synthetic.results()
    figure = speed.quality_against_latency(results["strategies"])
    drawing = inline(figure, "quality", "one")
    figure = speed.quality_against_latency(results["strategies"])
    style.save(figure, tmp_path, "quality")
    for ending in ("png", "pdf"):
        again = (tmp_path / f"quality.{ending}").read_bytes()
        assert again == (workdir / "plots" / f"quality.{ending}").read_bytes()
    again = speed.quality_against_latency(results["strategies"])
    assert inline(again, "quality", "one") == drawing


def figures():
    results = synthetic.results()
    for draw in (
        speed.quality_against_latency,
        speed.predicted_against_measured,
        speed.time_bars,
        acceptance.by_position,
        acceptance.along_text,
        acceptance.tokens_per_round,
        operations.operation_bars,
    ):
        yield draw.__name__, lambda draw=draw: draw(results["strategies"])
    yield "roofline", lambda: operations.roofline(results)
    yield "pareto", pareto
    yield "compare", compare_runs


def compare_runs():
    """Three runs of all strategies; the last one has no intervals."""
    runs = ("runs/before", "runs/a name that is longer than what fits", "runs/after")
    rows = []
    for shift, run in enumerate(runs):
        for name, entry in synthetic.results()["strategies"].items():
            time, bleu = entry["ms_per_token"] + 0.1 * shift, entry["quality"]["bleu"]
            ends = {"low": None, "high": None} if shift == 2 else {"low": 0.9, "high": 1.1}
            rows.append({"strategy": name, "run": run, "ms_per_token": time, "bleu": bleu})
            for field, value in (("ms_per_token", time), ("bleu", bleu)):
                rows[-1] |= {f"{field}_{end}": by and by * value for end, by in ends.items()}
    return side_by_side(rows, "bleu")


def pareto():
    """A flat front, as lossless strategies have, and some points below it."""
    speeds = [1.0, 1.2, 1.4, 1.6, 1.8, 2.2, 1.1]
    qualities = [34.5, 34.5, 34.4, 34.3, 33.0, 30.0, 29.0]
    series = ["lossless", "lenient"] * 3 + ["lossless"]
    labels = [f"lenient.lenience {value / 10}" for value in range(7)]
    return quality_against_speed(
        speeds, qualities, series, labels, ("speedup (times)", "bleu (points of 100)")
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "draw"), figures(), ids=lambda x: x if isinstance(x, str) else "")
def test_no_words_of_a_plot_touch_or_leave_it(name, draw, monkeypatch):
    drawn = []
    original = Text.draw
    monkeypatch.setattr(Text, "draw", lambda text, *a: (drawn.append(text), original(text, *a))[1])
    figure = draw()
    canvas = FigureCanvasAgg(figure)
    with style.use_style():
        canvas.draw()
        drawn.clear()  # the first time lays out
        canvas.draw()
        words = [t for t in drawn if t.get_visible() and t.get_text().strip()]
        boxes = [(t.get_text(), t.get_window_extent()) for t in words]
    width, height = canvas.get_width_height()
    assert len(boxes) > 5
    for text, box in boxes:
        assert box.x0 > -1 and box.y0 > -1, text
        assert box.x1 < width + 1 and box.y1 < height + 1, text
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        along = min(a.y1, b.y1) - max(a.y0, b.y0)
        # One pixel, as glyphs end inside their boxes.
        assert min(across, along) < 1, (one, other)


def test_axes_have_words_and_units():
    for name, draw in figures():
        first, *others = draw().axes
        assert all("(" in axes.get_xlabel() for axes in (first, *others)), name
        # Bars have names instead of a scale.
        assert "(" in first.get_ylabel() or first.get_yticklabels()[0].get_text(), name


@pytest.mark.slow
def test_results_of_older_runs_are_reported_too(tmp_path):
    write_report(synthetic.old_results(), tmp_path)
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    found = [each["id"] for each in page.all("section")]
    assert found == ["speed", "quality", "prediction", "models", "settings"]


def test_fields_that_do_not_apply_may_be_null(tmp_path):
    results = synthetic.results()
    for entry in results["strategies"].values():
        entry.update(dict.fromkeys(synthetic.OLD), quality={}, engine_efficiency=None)
    results.update(costs=None, roofline=None, texts=[])
    write_report(results, tmp_path)
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    assert "quality" not in [each["id"] for each in page.all("section")]


SCRIPTS = {
    "zh": ["两个", "年轻", "男人"],
    "hi": ["दो", " युव", "क", "।"],
    "th": ["ชาย", "หนุ่ม"],
    "ar": ["شا", "بان", " يض", "حك", "ان"],
    "emoji": ["👩‍👩‍👧‍👦", " 🎉", " 🇩🇪"],
}


@pytest.mark.filterwarnings("error")
def test_texts_in_any_script_are_on_the_page(tmp_path):
    results = synthetic.old_results()
    results["texts"] = [
        {
            "source": "".join(tokens),
            "strategy": "speculative_3",
            "rounds": [
                {"drafted": tokens, "accepted": len(tokens), "writer": "drafter", "next": None}
            ],
        }
        for tokens in SCRIPTS.values()
    ]
    write_report(results, tmp_path)
    page = (tmp_path / "report.html").read_text("utf-8")
    for tokens in SCRIPTS.values():
        assert f"<p class='source' dir='auto'>{''.join(tokens)}</p>" in page
        assert all(f">{token}</span>" in page for token in tokens)
    assert page.count("<p class='tokens' dir='auto'>") == len(SCRIPTS)
