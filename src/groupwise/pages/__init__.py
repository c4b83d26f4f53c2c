"""One self-contained HTML file from text, tables and charts. It opens without a network, on a phone and in print.

Read `page` (what a page is made of), `chart` and `charts` (the kinds of chart), then `html` and `drawing` (how they
are shown).
"""

from groupwise.pages.chart import Chart
from groupwise.pages.charts import bar_chart, column_chart, histogram, line_chart, points_with_intervals
from groupwise.pages.formatting import format_fixed, format_number
from groupwise.pages.html import render_page
from groupwise.pages.page import Board, Card, Cell, Fact, Listing, Notice, Page, Section, Table, Tone

__all__ = [
    "Board",
    "Card",
    "Cell",
    "Chart",
    "Fact",
    "Listing",
    "Notice",
    "Page",
    "Section",
    "Table",
    "Tone",
    "bar_chart",
    "column_chart",
    "format_fixed",
    "format_number",
    "histogram",
    "line_chart",
    "points_with_intervals",
    "render_page",
]
