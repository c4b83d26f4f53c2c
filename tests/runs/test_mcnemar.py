"""McNemar's test: values by hand, symmetry, nothing changed, and that it holds what it promises."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.runs.comparison.mcnemar import mcnemar, mcnemar_of_counts


def test_values_by_hand() -> None:
    # n = 7, 1 against 6: P(X <= 1) = (1 + 7) / 128 = 1/16, twice that 1/8; mid p = 2/128 + 7/128 = 9/128
    found = mcnemar_of_counts(6, 1)
    assert found.p_value == 0.125
    assert found.mid_p == 9 / 128
    # n = 5, 0 against 5: P(X <= 0) = 1/32, so 1/16; mid p = 1/32
    assert mcnemar_of_counts(0, 5).p_value == 1 / 16
    assert mcnemar_of_counts(0, 5).mid_p == 1 / 32


def test_without_a_change_and_with_as_many_on_both_sides_p_is_1() -> None:
    for count in (0, 1, 2, 50):
        found = mcnemar_of_counts(count, count)
        assert (found.p_value, found.mid_p) == (1.0, 1.0)


@given(st.integers(0, 60), st.integers(0, 60))
def test_symmetric_and_the_mid_p_is_below(improved: int, regressed: int) -> None:
    there, back = mcnemar_of_counts(improved, regressed), mcnemar_of_counts(regressed, improved)
    assert (there.p_value, there.mid_p) == (back.p_value, back.mid_p)
    assert 0 < there.mid_p <= there.p_value <= 1
    if improved > regressed:
        assert mcnemar_of_counts(improved + 1, regressed).p_value < there.p_value


def test_thousands_of_prompts_do_not_overflow() -> None:
    assert mcnemar_of_counts(2600, 2400).p_value == pytest.approx(0.00489, rel=0.02)  # z = 199.5 / sqrt(5000) = 2.814


def test_outcomes_by_prompt() -> None:
    first = {"a": True, "b": False, "c": False, "d": True}
    second = {"d": True, "c": True, "b": True, "a": False}
    found = mcnemar(first, second)
    assert (found.improved, found.regressed) == (2, 1)
    with pytest.raises(ValueError, match="the same prompts"):
        mcnemar(first, {"a": True})
    with pytest.raises(ValueError, match="numbers of prompts"):
        mcnemar_of_counts(-1, 2)


def test_equal_models_are_rarely_called_different() -> None:
    draw, exact, mid = random.Random(4), 0, 0
    for _ in range(1000):
        improved = sum(draw.random() < 0.5 for _ in range(15))
        found = mcnemar_of_counts(improved, 15 - improved)
        exact += found.p_value <= 0.05
        mid += found.mid_p <= 0.05
    assert exact / 1000 <= 0.05
    assert exact / 1000 <= mid / 1000 <= 0.055
