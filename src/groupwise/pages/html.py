"""From a page record to one HTML file that needs nothing else: no network, no second file.

Text is escaped. On top of that a content security policy names the hashes of the page's own scripts: the browser runs
no other script, whatever a prompt or a completion holds, and opens no connection.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html import escape
from importlib import resources
from itertools import groupby

from groupwise.pages.chart import Chart
from groupwise.pages.drawing import javascript, vega_lite
from groupwise.pages.formatting import format_number
from groupwise.pages.page import Board, Card, Cell, Fact, Listing, Notice, Page, Section, Table

_MANY_SECTIONS = 4
"""From here on a page gets links to its sections."""
_STARTS_AS_NUMBER = re.compile(r"^[<>~+-]*\s*[$]?\s*\.?\d")


def render_page(page: Page) -> str:
    """The HTML of a page: complete, escaped, below 1 MB with the usual charts (0.9 MB of it draws them).

    The same page gives the same text. A page without charts carries no script at all.
    """
    # by identity: a chart that stands in two places is described once
    charts = list({id(chart): chart for section in page.sections for chart in section.charts if chart.rows}.values())
    names = {id(chart): f"chart{number}" for number, chart in enumerate(charts, start=1)}
    scripts = [_script_text(javascript()), _script_text(_resource("draw.js"))] if charts else []
    body = [
        "<header>",
        f"<h1>{escape(page.title)}</h1>",
        f'<p class="lead">{escape(page.lead)}</p>' if page.lead else "",
        _facts(page.facts),
        _links(page.sections),
        "</header>",
        "<main>",
        *(_section(section, number, names) for number, section in enumerate(page.sections, start=1)),
        "</main>",
        f"<footer>{escape(page.footer)}</footer>" if page.footer else "",
        *(_description(chart, names[id(chart)]) for chart in charts),
        *(f"<script>{text}</script>" for text in scripts),
    ]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(page.title)}</title>",
        f"<style>{_resource('page.css')}</style>",
    ]
    lines = ["<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *body, "</body>", "</html>"]
    text = "\n".join(line for line in lines if line) + "\n"
    return text.encode("utf-8", "replace").decode("utf-8")  # half of a surrogate pair cannot be written to a file


def _section(section: Section, number: int, names: dict[int, str]) -> str:
    parts = [
        f'<section id="section{number}">',
        f"<h2>{escape(section.heading)}</h2>",
        *(f"<p>{escape(paragraph)}</p>" for paragraph in section.text),
        *map(_notice, section.notices),
        *_charts(section.charts, names),
        *map(_table, section.tables),
        *map(_board, section.boards),
        *map(_listing, section.listings),
        "</section>",
    ]
    return "\n".join(parts)


def _facts(facts: tuple[Fact, ...]) -> str:
    if not facts:
        return ""
    shown = []
    for fact in facts:
        note = f'<dd class="note">{escape(fact.note)}</dd>' if fact.note else ""
        shown.append(f'<div><dt>{escape(fact.label)}</dt><dd class="value">{_cell_text(fact.value)}</dd>{note}</div>')
    return '<dl class="facts">' + "".join(shown) + "</dl>"


def _links(sections: tuple[Section, ...]) -> str:
    if len(sections) < _MANY_SECTIONS:
        return ""
    numbered = enumerate(sections, start=1)
    links = (f'<li><a href="#section{number}">{escape(section.heading)}</a></li>' for number, section in numbered)
    return f'<nav aria-label="Sections"><ul>{"".join(links)}</ul></nav>'


def _notice(notice: Notice) -> str:
    text = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in notice.text)
    return f'<div class="notice {notice.tone}"><h3>{escape(notice.title)}</h3>{text}</div>'


def _charts(charts: tuple[Chart, ...], names: dict[int, str]) -> Iterator[str]:
    """Neighbours that are small share a grid."""
    for small, neighbours in groupby(charts, key=lambda chart: chart.small):
        drawn = [_chart(chart, names.get(id(chart))) for chart in neighbours]
        yield "\n".join(['<div class="grid">', *drawn, "</div>"] if small else drawn)


def _board(board: Board) -> str:
    shared = _preformatted(board.text) if board.text else ""
    cards = "".join(map(_card, board.cards))
    return (
        f'<details class="board"{" open" if board.is_open else ""}><summary>{escape(board.title)}</summary>{shared}'
        f'<div class="cards">{cards}</div></details>'
    )


def _card(card: Card) -> str:
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in card.facts)
    notes = "".join(f"<p>{escape(note)}</p>" for note in card.notes)
    facts = f"<ul>{facts}</ul>" if facts else ""
    body = f"<h4>{escape(card.title)}</h4>{facts}{_preformatted(card.text)}{notes}"
    return f'<article class="card {card.tone}">{body}</article>'


def _chart(chart: Chart, name: str | None) -> str:
    """The place of a chart; one without rows has no name and is a sentence."""
    text = [chart.caption, *chart.notes]
    caption = "".join(f"<p>{escape(line)}</p>" for line in text if line)
    if name is None:
        place = '<p class="empty">There is nothing to draw here: no row has numbers for it.</p>'
    else:
        place = f'<div class="chart" data-chart="{name}"></div><noscript>A chart needs JavaScript.</noscript>'
    return f"<figure><h3>{escape(chart.title)}</h3>{place}<figcaption>{caption}</figcaption></figure>"


def _description(chart: Chart, name: str) -> str:
    """The chart as JSON. A "<" is written as an escape, so that no text in it can end the element."""
    text = json.dumps(vega_lite(chart), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def _table(table: Table) -> str:
    columns = range(len(table.columns))
    right = [_is_number_column([row[i] for row in table.rows]) for i in columns]
    kind = [' class="number"' if is_right else "" for is_right in right]
    head = "".join(f'<th scope="col"{kind[i]}>{escape(table.columns[i])}</th>' for i in columns)
    rows = []
    for row in table.rows:
        first = f'<th scope="row"{kind[0]}>{_cell_text(row[0])}</th>'
        rows.append(f"<tr>{first}{''.join(f'<td{kind[i]}>{_cell_text(row[i])}</td>' for i in columns[1:])}</tr>")
    empty = "" if rows else '<p class="quiet">No rows.</p>'
    caption = escape(table.caption)
    return (
        # the caption stands outside of what scrolls: on a phone a wide table would take it out of sight
        f'<h3 class="caption">{caption}</h3>'
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table aria-label="{caption}">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{empty}</div>"
    )


def _listing(listing: Listing) -> str:
    return f"<details><summary>{escape(listing.title)}</summary>{_preformatted(listing.text)}</details>"


def _preformatted(text: str) -> str:
    # The parser drops one line break right after <pre>; an added one keeps a text that begins with one whole.
    return f"<pre>\n{escape(text)}</pre>"


def _cell_text(cell: Cell) -> str:
    return escape(cell) if isinstance(cell, str) else escape(format_number(cell))


def _is_number_column(cells: list[Cell]) -> bool:
    """Numbers, and text such as "12 %" or "~3.2 GB"; at least one of them."""
    given = [cell for cell in cells if cell not in (None, "", "-")]
    return bool(given) and all(
        bool(_STARTS_AS_NUMBER.match(cell)) and len(cell) <= 20 if isinstance(cell, str) else not isinstance(cell, bool)
        for cell in given
    )


def _policy(scripts: list[str]) -> str:
    """default-src 'none' closes every kind of request; styles stand in the page, as vega-embed adds its own."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii") for text in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        f"base-uri 'none'; form-action 'none'"
    )


def _script_text(text: str) -> str:
    """The script as it may stand inside an element: "<" before "/script" or "!--" becomes the JavaScript escape of it.

    Carriage returns become line feeds, as the HTML parser makes them: the hash in the policy is of the parsed text.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub(r"<(?=/script|!--)", r"\\x3c", text, flags=re.IGNORECASE)


def _resource(name: str) -> str:
    return resources.files("groupwise.pages").joinpath(name).read_text(encoding="utf-8")
