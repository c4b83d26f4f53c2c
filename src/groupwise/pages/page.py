"""What a page is made of: records without any HTML.

    Page -> Section -> paragraphs, notices, charts, tables, boards, listings        in this order within a section

Every text is plain text: `render_page` escapes it, so a prompt or a completion can be shown as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from groupwise.pages.chart import Chart

Tone = Literal["plain", "good", "warning", "problem"]
"""How something is marked, with a colour and never by the colour alone."""
Cell = str | int | float | bool | None
"""One cell of a table. Numbers are formatted and set to the right; None is shown as "-"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One number that the reader came for, shown large at the top.

    Example:
        Fact(label="group size", value=16, note="72 % of the groups train")
    """

    label: str
    value: Cell
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under named columns.

    Example:
        Table(columns=("method", "hours"), rows=(("grpo", 3.2), ("ppo", 5.9)), caption="Time on one A100")

    Raises:
        ValueError: if there is no column, or a row has another number of cells than there are columns.
    """

    columns: tuple[str, ...]
    """Headings, with the unit where there is one."""
    rows: tuple[tuple[Cell, ...], ...]
    caption: str
    """One sentence above the table, >= 1 character."""

    def __post_init__(self) -> None:
        if not self.columns or not self.caption.strip():
            raise ValueError("Table: give a caption and one column or more")
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"Table {self.caption!r}: row {number} has {len(row)} cells for {len(self.columns)} columns; "
                    f"give None where there is nothing"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A long text with its line breaks, folded until the reader opens it.

    Example:
        Listing(title="worst completion of q17", text="SELECT 1\\nFROM singer")
    """

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What a reader must not miss, set apart from the text around it.

    Example:
        Notice(title="Outputs are cut by the cap", text=("41 % of the rollouts ended at 48 tokens.",), tone="problem")
    """

    title: str
    text: tuple[str, ...] = ()
    """Paragraphs."""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One of several texts that are read side by side.

    Example:
        Card(title="right", facts=("advantage +0.87", "31 tokens"), text="SELECT 1", tone="good")
    """

    title: str
    text: str
    """Shown with its line breaks."""
    facts: tuple[str, ...] = ()
    """Short words above the text."""
    notes: tuple[str, ...] = ()
    """Sentences below the text."""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Cards side by side, folded until the reader opens them.

    Example:
        Board(title="most contested: q17 at step 12", text="How many singers?", cards=(right, wrong))
    """

    title: str
    cards: tuple[Card, ...]
    text: str = ""
    """What all cards share, such as the prompt; with its line breaks."""
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One heading and what stands below it.

    Example:
        Section(heading="Group size", text=("Half of the groups of 4 are dead.",), charts=(chart,))
    """

    heading: str
    text: tuple[str, ...] = ()
    """Paragraphs."""
    notices: tuple[Notice, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    boards: tuple[Board, ...] = ()
    listings: tuple[Listing, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One HTML file.

    Example:
        Page(title="Plan", lead="16 rollouts a prompt train 72 % of the groups.", sections=(section,))

    Raises:
        ValueError: if the title is empty.
    """

    title: str
    lead: str
    """The answer, in one or two sentences."""
    sections: tuple[Section, ...]
    facts: tuple[Fact, ...] = ()
    footer: str = ""
    """What made the page, from which input."""

    def __post_init__(self) -> None:
        if not self.title.strip():
            raise ValueError("Page: give a title; it names the tab and the file that is printed")
