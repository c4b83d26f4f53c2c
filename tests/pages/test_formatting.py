from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.pages import format_fixed, format_number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0, "0"),
        (-0.0, "0"),
        (7, "7"),
        (1234567, "1,234,567"),
        (0.123456, "0.1235"),
        (0.5, "0.5"),
        (12.0, "12"),
        (12.345, "12.35"),
        (-12.345, "-12.35"),
        (999.96, "1,000"),
        (1234.5, "1,234"),  # 4 digits; a half goes to the even neighbour
        (98765.4, "98,765"),
        (0.0001, "0.0001"),
        (0.000012345, "1.234e-5"),
        (3.2e18, "3.2e18"),
        (32 * 10**17, "3.2e18"),
        (1e300, "1e300"),
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
        (True, "yes"),
        (False, "no"),
    ],
)
def test_numbers_by_hand(value: float | None, text: str) -> None:
    assert format_number(value) == text


@given(st.floats(-1e300, 1e300))
def test_what_is_shown_is_within_half_of_the_fourth_digit(value: float) -> None:
    shown = float(format_number(value).replace(",", ""))
    assert abs(shown - value) <= 0.00051 * abs(value)


@pytest.mark.parametrize(
    ("value", "decimals", "signed", "text"),
    [
        (4.26, 1, False, "4.3"),
        (4.26, 1, True, "+4.3"),
        (-4.26, 1, True, "-4.3"),
        (-0.04, 1, False, "0.0"),
        (-0.04, 1, True, "+0.0"),
        (-0.4, 0, False, "0"),
        (-0.0, 0, True, "+0"),
    ],
)
def test_a_fixed_number_is_never_minus_zero(value: float, decimals: int, signed: bool, text: str) -> None:
    assert format_fixed(value, decimals, signed=signed) == text
