"""What the values of a column look like, and other values that look the same."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.sandbox import Cell

MAX_FLAG_VALUES = 3
MIN_ROWS_FOR_FLAG = 6

_WHOLE = re.compile(r"-?\d{1,15}")
_DECIMAL = re.compile(r"-?\d{1,12}\.\d{1,6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRule:
    """The look of a column.

    Example, for a column with '2014', '2015', '2017', '2018':
        ColumnRule(kind="whole", is_text=True, decimals=0, low=2014.0, high=2018.0, is_flag=False, has_null=False,
                   values=("2014", "2015", "2017", "2018"))
    """

    kind: str
    """whole, decimal, text or other; other values are only shuffled."""
    is_text: bool
    """Numbers are stored as text."""
    decimals: int
    low: float
    high: float
    is_flag: bool
    """Only a few values, as yes and no: others would be impossible."""
    has_null: bool
    values: tuple[Cell, ...]
    """The distinct values, in order of appearance."""

    @property
    def can_move(self) -> bool:
        """Numbers that are measured and not a flag."""
        return self.kind in ("whole", "decimal") and not self.is_flag

    @property
    def can_invent(self) -> bool:
        """Texts to which others may be added."""
        return self.kind == "text" and not self.is_flag

    def number(self, cell: Cell) -> float | None:
        """The number that a cell stands for, None where it is none."""
        if isinstance(cell, (int, float)):
            return float(cell)
        if isinstance(cell, str) and (_WHOLE.fullmatch(cell) or _DECIMAL.fullmatch(cell)):
            return float(cell)
        return None

    def from_number(self, value: float) -> Cell:
        """A number the way this column stores it."""
        rounded: int | float = round(value) if self.kind == "whole" else round(value, self.decimals)
        if self.kind != "whole" and not self.is_text:
            return float(rounded)
        return f"{rounded:.{self.decimals}f}" if self.is_text else rounded

    def stored(self, value: Cell) -> Cell:
        """A literal or a key of another column the way this column stores it."""
        number = self.number(value)
        if self.is_text or self.kind == "text":
            return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        if self.kind in ("whole", "decimal") and number is not None:
            return int(number) if number.is_integer() and self.kind == "whole" else number
        return value


def column_rule(cells: Sequence[Cell]) -> ColumnRule:
    """The rule that these cells suggest."""
    filled = [cell for cell in cells if cell is not None]
    values = tuple(dict.fromkeys(filled))
    is_text = bool(filled) and all(isinstance(cell, str) for cell in filled)
    kind, decimals = "other", 0
    texts = [str(cell) for cell in filled]
    if is_text:
        whole = all(_WHOLE.fullmatch(text) for text in texts)
        is_code = any(len(text.lstrip("-")) > 1 and text.lstrip("-").startswith("0") for text in texts)
        numeric = all(_WHOLE.fullmatch(text) or _DECIMAL.fullmatch(text) for text in texts)
        kind = "text" if is_code and whole else "whole" if whole else "decimal" if numeric else "text"
    elif filled and all(isinstance(cell, int) for cell in filled):
        kind = "whole"
    elif filled and all(isinstance(cell, (int, float)) for cell in filled):
        kind = "decimal"
    if kind == "decimal":
        decimals = min(4, max(len(text.partition(".")[2].rstrip("0")) for text in texts))
    numbers = [float(text) for text in texts] if kind in ("whole", "decimal") else [0.0]
    return ColumnRule(
        kind=kind,
        is_text=is_text and kind in ("whole", "decimal"),
        decimals=decimals,
        low=min(numbers),
        high=max(numbers),
        is_flag=len(values) <= MAX_FLAG_VALUES and len(filled) >= MIN_ROWS_FOR_FLAG,
        has_null=len(filled) < len(cells),
        values=values,
    )


def moved(cell: Cell, rule: ColumnRule, rng: random.Random) -> Cell:
    """A number near the given one; signs and the lower end of the column are respected."""
    number = rule.number(cell)
    if number is None:
        return cell
    step = rng.choice([-2, -1, 1, 2, 3]) * (10.0**-rule.decimals if rng.random() < 0.5 else 1.0)
    other = number + step
    return rule.from_number(other if other >= min(rule.low, 1.0) else number + abs(step))


def fresh_value(cell: Cell, rule: ColumnRule, taken: set[Cell], rng: random.Random) -> Cell:
    """A value of the same look that is not in `taken`; the cell itself where the look is unknown."""
    if rule.kind in ("whole", "decimal"):
        value = rule.high + rng.randint(1, 4)
        while (candidate := rule.from_number(value)) in taken:
            value += rng.randint(1, 3)
        return candidate
    if rule.kind != "text":
        return cell
    stem, number = str(cell), 2
    while (text := f"{stem} {number}") in taken:
        number += 1
    return text
