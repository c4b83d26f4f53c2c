"""Refusals of planning: one place that words what was given, what is allowed and what to do."""

from __future__ import annotations

import math

from groupwise.errors import ConfigError


def require(allowed: bool, name: str, value: object, expected: str, advice: str) -> None:
    """Nothing where `allowed`.

    Raises:
        ConfigError: "name = value: expected ...", with the advice on its own line.
    """
    if not allowed:
        raise ConfigError(f"{name} = {value!r}: expected {expected}.\n  {advice}")


def require_count(name: str, value: int, *, least: int = 1, advice: str = "Give a whole number.") -> None:
    """A whole number of at least `least`; True and False are no numbers here.

    Raises:
        ConfigError: for anything else.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    require(is_whole and value >= least, name, value, f"a whole number >= {least}", advice)


def require_number(
    name: str,
    value: float,
    *,
    least: float = 0.0,
    most: float = math.inf,
    positive: bool = False,
    advice: str = "Give a finite number in that range.",
) -> None:
    """A finite number in [least, most], and above 0 where `positive`.

    Raises:
        ConfigError: for anything else, NaN and infinity included.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    expected = "a finite number" + (" > 0" if positive else f" >= {least:g}")
    expected += f" and <= {most:g}" if math.isfinite(most) else ""
    require(is_number and least <= value <= most and (value > 0 or not positive), name, value, expected, advice)
