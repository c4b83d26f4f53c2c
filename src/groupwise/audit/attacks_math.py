r"""Wrong answers made from a right one: hedges, neighbours, other places, sums left to the reader.

The gold completion shows where the answer stands (#### 18, \boxed{18}, <answer>18</answer>, Answer: 18, or alone);
every attack is written in the same form, or without it on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from groupwise.audit.attack import Attack, distinct_attacks
from groupwise.types import Task

_PLACES = (
    re.compile(r"####[ \t]*(?P<value>[^\n]+)\s*\Z"),
    re.compile(r"\\boxed\{(?P<value>[^\n]*)\}\$?\s*\Z"),
    re.compile(r"<answer>(?P<value>[^\n]*)</answer>\s*\Z"),
    re.compile(r"(?i:answer):[ \t]*(?P<value>[^\n]+)\s*\Z"),
)


def math_attacks(task: Task, gold: str) -> list[Attack]:
    """The attacks of one task; neighbours only where the answer is a plain number."""
    start, end = _place(gold)
    value = gold[start:end].strip()

    def placed(text: str) -> str:
        return gold[:start] + text + gold[end:]

    number = _number(value)
    wrong = _shown(number + 1) if number is not None else f"{value} + 1"
    attacks = [
        Attack(name="hedge", text=f"I think it is {wrong} or {value}", why="two candidates, none declared"),
        Attack(name="two_in_one_place", text=placed(f"{value} or {wrong}"), why="two answers in one place"),
        Attack(name="list_of_answers", text=placed(f"{wrong}, {value}"), why="two answers in one place"),
        Attack(name="right_then_wrong", text=f"{gold}\n{placed(wrong)}", why="the last answer is wrong"),
        Attack(name="wrong_then_right", text=f"{placed(wrong)}\n{gold}", why="two answers", may_pass=True),
        Attack(
            name="side_by_side", text=f"{placed(wrong)} {gold}", why="two answers on one line", may_pass=number is None
        ),
        Attack(name="empty_place", text=placed(""), why="nothing in the declared place"),
        Attack(name="not_it", text=placed(f"not {value}"), why="denies the right answer"),
        Attack(name="code", text=placed("__import__('os').getcwd()"), why="code, no number"),
        Attack(name="infinite", text=placed("inf"), why="no number"),
    ]
    if number is not None:
        attacks += _neighbours(number, placed)
        attacks.append(Attack(name="said_elsewhere", text=f"It is {value}.\n{placed(wrong)}", why="declares another"))
    return distinct_attacks(attacks, gold)


def _neighbours(number: Decimal, placed: Callable[[str], str]) -> list[Attack]:
    value = _shown(number)
    wrong = [
        ("one_more", number + 1, "one more"),
        ("one_less", number - 1, "one less"),
        ("ten_times", number * 10, "a digit too many"),
        ("hundred_times", number * 100, "a percentage for a share"),
        ("other_sign", -number, "the other sign"),
        ("a_little_more", number + Decimal("0.01"), "off by a hundredth"),
    ]
    attacks = [Attack(name=name, text=placed(_shown(other)), why=why) for name, other, why in wrong if other != number]
    attacks += [
        Attack(name="sum_left_over", text=placed(f"{value}+1-1"), why="an expression where a number is asked for"),
        Attack(name="bound", text=placed(f">= {value}"), why="a bound, not a number"),
        Attack(name="range", text=placed(f"{_shown(number - 1)} to {_shown(number + 1)}"), why="a range"),
    ]
    return attacks


def _place(gold: str) -> tuple[int, int]:
    for place in _PLACES:
        found = place.search(gold)
        if found is not None:
            return found.span("value")
    return 0, len(gold)


def _number(value: str) -> Decimal | None:
    try:
        number = Decimal(value.replace(",", "").strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number) < Decimal(10) ** 20 else None


def _shown(number: Decimal) -> str:
    return f"{number:f}"
