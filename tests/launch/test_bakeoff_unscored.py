"""A bake-off's rates go by what could be judged, as every other held-out rate does."""

from __future__ import annotations

import pytest

from groupwise.launch.bakeoff_report import start_arm
from groupwise.launch.bakeoff_result import judged_greedy, solved_rates


def test_a_rate_is_solved_by_scored_and_older_runs_had_everything_scored() -> None:
    assert solved_rates({"a": 1, "b": 2, "c": 0}, {"a": 2, "b": 4, "c": 0}, 4) == {"a": 0.5, "b": 0.5}
    assert solved_rates({"a": 1}, {}, 4) == {"a": 0.25}
    assert judged_greedy({"greedy_solved": {"a": 1, "b": 0}, "greedy_scored": {"a": 1, "b": 0}}) == {"a": 1}
    assert judged_greedy({"greedy_solved": {"a": 1, "b": 0}}) == {"a": 1, "b": 0}


def test_the_start_leaves_out_what_could_not_be_judged() -> None:
    row = {
        "seed": 1,
        "solved": {"a": 2, "b": 0, "c": 0},
        "scored": {"a": 2, "b": 4, "c": 0},
        "greedy_solved": {"a": 1, "b": 0, "c": 0},
        "greedy_scored": {"a": 1, "b": 1, "c": 0},
    }
    arm = start_arm({"evaluations": [row]}, 4)
    assert arm.rates == {"a": 1.0, "b": 0.0}
    assert (arm.pass_rate, arm.greedy_pass_rate) == (0.5, 0.5)
    greedy = start_arm({"evaluations": [row | {"solved": {}, "scored": {}}]}, 0)
    assert greedy.pass_rate == pytest.approx(0.5)
