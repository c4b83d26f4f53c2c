"""Ten steps of four methods give the numbers on record: a change of the math or of the loop shows here.

Where a change is meant to change them, run scripts/record_golden_curves.py and say why in the same commit.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden_curves import GOLDEN, METHODS, STEPS, curve

PER_METHOD_NAMES = {
    "grpo": {"kl_to_ref"},
    "dapo": {"clipped_low", "clipped_high"},
    "gspo": {"clipped_low", "clipped_high"},
}


@pytest.mark.parametrize("method", METHODS)
def test_the_curve_is_the_same_twice_and_the_one_on_record(method: str, tmp_path: Path) -> None:
    first, second = curve(method, tmp_path / "first"), curve(method, tmp_path / "second")
    assert first == second
    recorded = json.loads((GOLDEN / f"{method}.json").read_text(encoding="utf-8"))
    assert recorded["settings"] == METHODS[method]
    assert len(first) == len(recorded["steps"]) == STEPS
    for found, expected in zip(first, recorded["steps"], strict=True):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert PER_METHOD_NAMES.get(method, set()) <= set(first[0])


def test_the_curves_show_learning_and_differ() -> None:
    curves = {
        method: json.loads((GOLDEN / f"{method}.json").read_text(encoding="utf-8"))["steps"] for method in METHODS
    }
    for rows in curves.values():
        assert sum(row["reward_mean"] for row in rows[-3:]) > sum(row["reward_mean"] for row in rows[:3])
    assert len({rows[-1]["weight_norm"] for rows in curves.values()}) == len(METHODS)
    assert max(row["clipped_high"] for row in curves["gspo"]) > 0
