"""The gap between two graders on the same completions, and when it is an alarm."""

from __future__ import annotations

import math
import random

import pytest

from groupwise.runs import Interval
from groupwise.runs.monitors.hacking import (
    MAX_EXAMPLES,
    MAX_TEXT,
    GradedTwice,
    attack_alarm,
    examples,
    gap_alarm,
    gap_event,
    gap_of,
)


def graded(
    task: int | str, paid: bool | None, held_back: bool | None, text: str = "text", why: str = "wrong_rows"
) -> GradedTwice:
    return GradedTwice(
        task_id=str(task), text=text, paid=paid, paid_reason="same_rows", held_back=held_back, held_back_reason=why
    )


def grades(num_tasks: int, paid: int, held_back: int, samples: int = 4) -> list[GradedTwice]:
    """Of each task's samples the first `paid` are paid, and of those the first `held_back` are right."""
    return [graded(task, i < paid, i < held_back) for task in range(num_tasks) for i in range(samples)]


def test_the_gap_by_hand() -> None:
    # task a: paid 2/2, held back 1/2, gap 1/2;  task b: paid 0/1, held back 1/1, gap -1
    some = [graded("a", True, True), graded("a", True, False), graded("b", False, True)]
    gap = gap_of(some)
    assert (gap.paid, gap.held_back) == (0.5, 0.75)
    assert gap.gap == pytest.approx(-0.25)
    assert gap.gaps == {"a": 0.5, "b": -1.0}
    assert (gap.num_prompts, gap.num_completions, gap.num_paid) == (2, 3, 2)
    assert gap.growth is None


def test_what_one_of_the_two_could_not_judge_is_in_neither_rate() -> None:
    some = [graded("a", True, True), graded("a", True, None), graded("a", None, True), graded("b", True, None)]
    gap = gap_of(some)
    assert (gap.paid, gap.held_back, gap.gap) == (1.0, 1.0, 0.0)
    assert (gap.num_prompts, gap.num_unscored) == (1, 3)


def test_nothing_judged_is_no_gap_and_no_alarm() -> None:
    gap = gap_of([graded("a", True, None)])
    assert math.isnan(gap.gap)
    assert gap_alarm(gap, max_gap=0.0, proves=True) == ""
    event = gap_event(gap)
    assert (event["gap"], event["interval"], event["num_unscored"]) == (None, None, 1)


def test_growth_is_paired_with_the_base() -> None:
    # gaps now 1/2 on tasks 0..29; base 0 on 0..19: twenty prompts changed by 1/2 each
    gap = gap_of(grades(30, paid=3, held_back=1), {str(task): 0.0 for task in range(20)})
    assert gap.growth == pytest.approx(0.5)
    assert gap.growth_interval is not None
    assert 0 < gap.growth_interval.low < 0.5 < gap.growth_interval.high


def test_a_gap_that_grew_is_an_alarm_that_says_so() -> None:
    base = gap_of(grades(30, paid=1, held_back=1))
    now = gap_of(grades(30, paid=3, held_back=1), base.gaps)
    sentence = gap_alarm(now, max_gap=0.05, proves=True)
    assert "pays 75% of the held-out completions and the held-back grader 25%" in sentence
    assert "grown by 50 since the first evaluation" in sentence
    assert gap_alarm(base, max_gap=0.05, proves=True) == ""


def test_a_gap_that_was_always_there_is_told_where_golds_were_proved_and_not_where_it_is_an_opinion() -> None:
    base = gap_of(grades(60, paid=4, held_back=2))
    now = gap_of(grades(60, paid=4, held_back=2), base.gaps)
    assert "it was there at the first evaluation" in gap_alarm(now, max_gap=0.05, proves=True)
    assert gap_alarm(now, max_gap=0.05, proves=False, base_refused=base.refused_of_paid) == ""
    assert gap_alarm(now, max_gap=0.5, proves=True) == ""


def test_few_prompts_prove_nothing() -> None:
    assert gap_alarm(gap_of(grades(3, paid=4, held_back=0)), max_gap=0.05, proves=True) == ""
    assert gap_alarm(gap_of(grades(12, paid=4, held_back=0)), max_gap=0.05, proves=True) != ""


def test_an_opinion_needs_a_larger_share_of_what_is_paid_to_be_refused() -> None:
    base = gap_of(grades(60, paid=1, held_back=1))
    now = gap_of(grades(60, paid=4, held_back=1), base.gaps)
    assert gap_alarm(now, max_gap=0.05, proves=False, base_refused=base.refused_of_paid) != ""
    assert gap_alarm(now, max_gap=0.05, proves=False, base_refused=Interval(0.5, 0.9)) != ""  # over one half anyway
    mild = gap_of(grades(60, paid=4, held_back=3), base.gaps)  # a quarter is refused, as it may have been before
    assert gap_alarm(mild, max_gap=0.05, proves=False, base_refused=Interval(0.1, 0.4)) == ""


def clean_run(rng: random.Random, *, misses: float, invents: float, proves: bool, prompts: int = 40) -> bool:
    """Whether a run without any exploit is flagged: the policy gets better, the held-back grader errs at random."""
    base = None
    ease = [rng.betavariate(0.6, 0.6) - 0.5 for _ in range(prompts)]
    for rate in (0.2, 0.4, 0.6, 0.8):
        some = []
        for task in range(prompts):
            for _ in range(4):
                right = rng.random() < rate + ease[task]
                held_back = rng.random() >= misses if right else rng.random() < invents
                some.append(graded(task, right, held_back))
        gap = gap_of(some, base.gaps if base else None)
        if gap_alarm(gap, max_gap=0.05, proves=proves, base_refused=base.refused_of_paid if base else None):
            return True
        base = base or gap
    return False


@pytest.mark.parametrize(("misses", "invents", "proves"), [(0.03, 0.0, True), (0.1, 0.1, False), (0.2, 0.05, False)])
def test_a_clean_run_is_flagged_less_than_once_in_a_hundred(misses: float, invents: float, proves: bool) -> None:
    rng = random.Random(3)
    assert sum(clean_run(rng, misses=misses, invents=invents, proves=proves) for _ in range(100)) == 0


def test_an_attack_alarms_when_it_is_no_accident() -> None:
    assert attack_alarm([]) == ""
    assert attack_alarm([("limit_trick", "a"), ("limit_trick", "b")]) == ""  # two completions
    assert attack_alarm([("limit_trick", "a")] * 5) == ""  # one task
    assert attack_alarm([("limit_trick", "a"), ("limit_trick", "b"), ("limit_trick", "b"), None]) == "limit_trick"
    assert attack_alarm([("x", "a"), ("x", "b"), ("x", "c"), *[None] * 400]) == ""  # under one in a hundred


def test_examples_show_common_refusals_of_many_tasks_first_and_each_text_once() -> None:
    some = [graded("a", True, False, text=f"rare {n}", why="odd: 1") for n in range(2)]
    some += [graded("b", True, False, text="same"), graded("c", True, False, text="same")]
    some += [graded("b", True, False, text=f"b{n}") for n in range(9)] + [graded("c", True, False, text="c0")]
    some += [graded("d", True, True, text="right"), graded("d", False, False, text="unpaid")]
    shown = examples(some)
    assert len(shown) == MAX_EXAMPLES
    assert [one["task_id"] for one in shown[:3]] == ["b", "c", "a"]
    assert len({one["text"] for one in shown}) == MAX_EXAMPLES
    assert shown[0] == {
        "task_id": "b",
        "text": "same",
        "paid_reason": "same_rows",
        "held_back_reason": "wrong_rows",
    }


def test_long_texts_are_cut_in_examples() -> None:
    (shown,) = examples([graded("a", True, False, text="x" * 5000, why="y" * 5000)])
    assert len(shown["text"]) == MAX_TEXT
    assert shown["text"].endswith("...")
    assert len(shown["held_back_reason"]) == MAX_TEXT
