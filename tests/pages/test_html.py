from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from example_page import example_page, reward_curve

from groupwise.pages import Listing, Page, Section, Table, bar_chart, render_page
from groupwise.pages.html import _policy, _script_text

MAX_BYTES = 2_000_000


class Reader(HTMLParser):
    """What a browser would see: tags with their attributes, scripts, and the text that is shown."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.shown = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in self.raw else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.raw[self._inside].append(data)
        else:
            self.shown += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def html() -> str:
    return render_page(example_page())


@pytest.fixture(scope="module")
def reader(html: str) -> Reader:
    return Reader(html)


def test_the_page_is_one_small_file_that_asks_for_nothing(html: str, reader: Reader) -> None:
    assert len(html.encode()) < MAX_BYTES
    fetched = {"link", "img", "iframe", "object", "embed", "base", "form", "video", "audio", "source"}
    assert fetched.isdisjoint(name for name, _ in reader.tags)
    assert all("src" not in attributes for _, attributes in reader.tags)
    assert all(str(a["href"]).startswith("#section") for a in reader.attributes("a"))
    assert "url(" not in "".join(reader.raw["style"])
    assert "@import" not in "".join(reader.raw["style"])


def test_the_policy_names_the_scripts_and_nothing_else(reader: Reader) -> None:
    policies = [m["content"] for m in reader.attributes("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    code = [text for text, a in zip(reader.raw["script"], reader.attributes("script"), strict=True) if "type" not in a]
    assert len(code) == 2
    assert policies == [_policy(code)]
    assert "default-src 'none'" in policies[0]
    assert not re.search(r"unsafe-eval|script-src[^;]*unsafe-inline|http", policies[0])


def test_small_charts_share_a_grid_and_cards_stand_in_an_open_board(html: str) -> None:
    grid = html[html.index('<div class="grid">') :]
    assert grid.index("Time of a step") < grid.index("Lengths by correctness") < grid.index("</div>\n")
    assert re.search('<details class="board" open><summary>q17 &lt;script&gt;[^<]*</summary><pre>', html)
    assert "<script>document" not in html
    assert html.count('<article class="card problem">') == 3
    assert '<div class="notice problem"><h3>Outputs are cut &lt;script&gt;' in html


def test_text_is_shown_as_it_is(reader: Reader) -> None:
    hostile = "<script>document.documentElement.dataset.hacked = 1</script><img src=x onerror=alert(1)>"
    assert hostile in reader.shown
    assert "Two metrics <script>document" in reader.shown
    kinds = [a.get("type", "code") for a in reader.attributes("script")]
    assert kinds == ["application/json"] * 10 + ["code"] * 2


def test_text_is_escaped_in_every_place() -> None:
    marks = [f"<x{i}>&amp;\"'" for i in range(12)]
    chart = bar_chart([], title=marks[0], label="a", value="b", label_title="l", value_title="v", caption=marks[1])
    table = Table(columns=(marks[2], marks[3]), rows=((marks[4], marks[5]),), caption=marks[6])
    listing = Listing(title=marks[7], text=marks[8])
    section = Section(heading=marks[9], text=(marks[10],), charts=(chart,), tables=(table,), listings=(listing,))
    page = Page(title=marks[11], lead=marks[0], footer=marks[1], sections=(section,))
    reader = Reader(render_page(page))
    assert all(mark in reader.shown for mark in marks)
    assert [a.get("aria-label") for a in reader.attributes("div") if "aria-label" in a] == [marks[6]]
    assert not [name for name, _ in reader.tags if name.startswith("x")]


def test_descriptions_hold_the_rows_and_cannot_end_their_element(html: str) -> None:
    descriptions = re.findall(r'<script type="application/json" id="chart\d+">(.*?)</script>', html)
    assert len(descriptions) == 10
    assert not any("<" in text for text in descriptions)
    loaded = [json.loads(text) for text in descriptions]
    titles = [spec["description"] for spec in loaded]
    metrics = loaded[titles.index("Two metrics <script>document.documentElement.dataset.hacked = 2</script>")]
    assert [row["label"] for row in metrics["datasets"]["rows"]][2:] == ["</script><script>"] * 2


def test_a_chart_without_rows_is_a_sentence(html: str, reader: Reader) -> None:
    assert reader.shown.count("There is nothing to draw here") == 1
    assert len(re.findall(r"data-chart=", html.split("<main>")[1].split("</main>")[0])) == 10


def test_a_page_without_charts_has_no_script() -> None:
    page = Page(title="t", lead="", sections=(Section(heading="h", text=("p",)),))
    html = render_page(page)
    assert "<script" not in html
    assert "script-src 'none'" in html
    assert len(html) < 10_000


def test_a_chart_in_two_places_is_described_once() -> None:
    chart = reward_curve()
    html = render_page(Page(title="t", lead="", sections=(Section(heading="h", charts=(chart, chart)),)))
    assert html.count('type="application/json"') == 1
    assert html.count('data-chart="chart1"') == 2


def test_columns_of_numbers_are_set_to_the_right(html: str) -> None:
    table = html[html.index("Methods side by side</h3>") :]
    head = table[: table.index("</thead>")]
    assert re.findall(r'<th scope="col"( class="number")?>(\w+@?\w*)', head) == [
        ("", "method"),
        ("", "learns"),
        (' class="number"', "hours"),
        (' class="number"', "price"),
        (' class="number"', "pass@1"),
        ("", "fits"),
    ]
    assert '<td class="number">12,346</td><td class="number">-</td>' in table
    assert "<td>yes</td>" in table


def test_a_listing_keeps_its_first_line_break(html: str) -> None:
    assert "<pre>\n\nSELECT 1\n  FROM t" in html  # a browser drops the first of them


def test_every_page_can_be_written() -> None:
    half = Section(heading="h", listings=(Listing(title="cut", text="a\ud83d"),))
    assert "<pre>\na?</pre>" in render_page(Page(title="t", lead="", sections=(half,))).encode("utf-8").decode()


def test_script_text_cannot_end_its_element() -> None:
    assert _script_text('a="</script>";b="<!--";c=1<2;\r\nd\re') == 'a="\\x3c/script>";b="\\x3c!--";c=1<2;\nd\ne'


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table(columns=("a", "b"), rows=((1, 2), (1,)), caption="c"), "row 2 has 1 cells for 2 columns"),
        (lambda: Table(columns=(), rows=(), caption="c"), "one column or more"),
        (lambda: Table(columns=("a",), rows=(), caption=" "), "give a caption"),
        (lambda: Page(title=" ", lead="", sections=()), "give a title"),
    ],
)
def test_unusable_pages_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


def test_the_same_page_gives_the_same_text(html: str) -> None:
    assert render_page(example_page()) == html


def test_a_page_is_made_without_the_drawing_libraries() -> None:
    code = (
        "import sys\nfrom groupwise.pages import Page, Section, histogram, render_page\n"
        "histogram([1.0, 2.0], title='t', x_title='x')\n"
        "render_page(Page(title='t', lead='', sections=(Section(heading='h'),)))\n"
        "print(sorted({'altair', 'vl_convert', 'torch', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
