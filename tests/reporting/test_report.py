"""The report: complete, escaped, self-contained, legible; and drawn from older results too."""

from __future__ import annotations

import html.parser
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import matplotlib.image
import pytest
import synthetic
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from specjax.reporting.plots import acceptance, operations, speed, style
from specjax.reporting.plots.compare import side_by_side
from specjax.reporting.plots.pareto import quality_against_speed
from specjax.reporting.plots.text import coloured_text
from specjax.reporting.report import write_report

SECTIONS = (
    "speed", "quality", "prediction", "acceptance", "rounds", "handovers", "tokens", "time",
    "operations", "roofline", "models", "settings",
)  # fmt: skip
PLOTS = (
    "quality", "prediction", "acceptance", "along_text", "rounds", "tokens", "time", "operations",
    "roofline",
)  # fmt: skip
VOID = {"meta", "img"}
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


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
def workdir(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(synthetic.results(), folder)
    return folder


@pytest.fixture(scope="module")
def text(workdir) -> str:
    return (workdir / "report.html").read_text("utf-8")


@pytest.fixture(scope="module")
def page(text) -> Page:
    return Page(text)


def test_of_several_processes_one_writes(tmp_path, monkeypatch):
    monkeypatch.setattr("specjax.hosts.is_first", lambda: False)
    write_report(synthetic.results(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_every_section_is_there_and_linked(page):
    assert [each["id"] for each in page.all("section")] == list(SECTIONS)
    assert [each["href"] for each in page.all("a")] == [f"#{name}" for name in SECTIONS]
    assert len(page.all("h1")) == 1 and len(page.all("h2")) == len(SECTIONS)


def test_the_page_loads_nothing_from_anywhere(page):
    sources = [a.get("src") or a.get("href") for _, a in page.tags if "src" in a or "href" in a]
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in sources)
    assert not {"script", "link", "iframe"} & {tag for tag, _ in page.tags}


def test_every_image_says_in_words_what_it_shows(page):
    images = page.all("img")
    assert len(images) == len(PLOTS) - 1  # the coloured text is text on the page
    assert len({image["alt"] for image in images}) == len(images)
    assert all(len(image["alt"]) > 40 for image in images)


def test_every_table_scrolls_in_a_box_of_its_own(text):
    assert text.count("<table>") == text.count("aria-label='") - text.count("<nav")
    assert re.findall(r"<table>", text) and not re.findall(r"(?<!'>)<table>", text)


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


def test_each_writer_has_one_colour(text):
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
    for name, figure in (
        ("quality", speed.quality_against_latency(results["strategies"])),
        ("tokens", coloured_text(results["texts"])),
    ):
        style.save(figure, tmp_path, name)
        for ending in ("png", "pdf"):
            again = (tmp_path / f"{name}.{ending}").read_bytes()
            assert again == (workdir / "plots" / f"{name}.{ending}").read_bytes()


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
    yield "coloured_text", lambda: coloured_text(results["texts"])
    yield "pareto", pareto
    yield "compare", compared


def compared():
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


@pytest.mark.parametrize(("name", "draw"), figures(), ids=lambda x: x if isinstance(x, str) else "")
def test_no_words_of_a_plot_touch_or_leave_it(name, draw, monkeypatch):
    drawn = []
    original = Text.draw
    monkeypatch.setattr(Text, "draw", lambda text, *a: (drawn.append(text), original(text, *a))[1])
    figure = draw()
    canvas = FigureCanvasAgg(figure)
    with style.styled():
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
        if name == "coloured_text":
            continue
        first, *others = draw().axes
        assert all("(" in axes.get_xlabel() for axes in (first, *others)), name
        # Bars have names instead of a scale.
        assert "(" in first.get_ylabel() or first.get_yticklabels()[0].get_text(), name


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


MEASURE = """<script>
const box = element => element.getBoundingClientRect();
const images = [...document.images], parts = [...document.querySelectorAll("section")];
document.title = JSON.stringify([
  document.documentElement.scrollWidth,
  images.every(image => image.complete && image.naturalWidth > 0),
  images.every(image => box(image).width === image.naturalWidth),
  [...document.querySelectorAll("table")].every(table => box(table).right <= 1280),
  parts.every((part, i) => i === 0 || box(parts[i - 1]).bottom <= box(part).top),
  getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]);
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_browser_shows_it_legibly_at_1280_pixels(text, tmp_path):
    (tmp_path / "page.html").write_text(text.replace("</body>", f"{MEASURE}</body>"), "utf-8")
    command = [
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--window-size=1280,3000", f"--user-data-dir={tmp_path / 'profile'}",
    ]  # fmt: skip
    place = (tmp_path / "page.html").as_uri()
    shot = tmp_path / "page.png"
    done = subprocess.run(
        [*command, "--dump-dom", place], capture_output=True, text=True, timeout=120
    )
    measured = re.search(r"<title>(.*?)</title>", done.stdout)[1]
    dark, light = '"rgb(26, 26, 26)"', '"rgb(255, 255, 255)"'
    # No wider than the window, images there and unscaled, no table cut, sections in a column.
    assert measured == f"[1280,true,true,true,true,{dark},{light}]"
    subprocess.run(
        [*command, f"--screenshot={shot}", place], capture_output=True, timeout=120, check=True
    )
    pixels = matplotlib.image.imread(shot)[..., :3]
    assert pixels.shape[:2] == (3000, 1280)
    assert pixels.mean() > 0.85  # a light ground
    dark_rows = (pixels.max(axis=-1) < 0.4).any(axis=1)
    assert dark_rows.mean() > 0.2  # with words from top to bottom
    assert dark_rows[:300].any() and dark_rows[-300:].any()
