"""Numbers as a reader wants them: no more digits than mean something, thousands set apart."""

from __future__ import annotations

import math

SIGNIFICANT_DIGITS = 4
"""More say nothing about a measured or estimated number."""
_SMALLEST_PLAIN = 1e-4
_LARGEST_PLAIN = 1e12


def format_number(value: float | None) -> str:
    """1234567 -> 1,234,567;  0.123456 -> 0.1235;  12345.6 -> 12,346;  3.21e-7 -> 3.21e-7;  True -> yes;  None -> -

    A whole number keeps all of its digits below 10^12. Any other number is rounded to 4 significant digits, but never
    to tens. Below 10^-4 and from 10^12 on it is written with a power of ten. A number that is not finite is "-", as
    one that is missing.
    """
    if value is None or not math.isfinite(value):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    size = abs(value)
    if size != 0 and not _SMALLEST_PLAIN <= size < _LARGEST_PLAIN:
        mantissa, exponent = f"{value:.{SIGNIFICANT_DIGITS - 1}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    if isinstance(value, int) or size == 0:
        return f"{int(value):,}"
    decimals = max(0, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_fixed(value: float, decimals: int, *, signed: bool = False) -> str:
    """(4.26, 1) -> 4.3;  signed: +4.3;  (-0.04, 1) -> 0.0, not -0.0

    For numbers that stand beside each other, such as the ends of an interval. None of them is "-0".
    """
    rounded = round(value, decimals) + 0.0  # -0.0 + 0.0 is 0.0
    return f"{rounded:{'+' if signed else ''}.{decimals}f}"
