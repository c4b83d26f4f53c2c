"""Advantages of composed and length-shaped rewards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from groupwise.training.group_rewards import LengthPenalty, advantages_of
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Task, Verdict

PENALTY = LengthPenalty(strength=0.5, free_tokens=2, max_tokens=6)


def rollout(reward: float | None, num_tokens: int = 1, **parts: float) -> Rollout:
    outcome = None if reward is None else reward > 0
    verdict = Verdict(
        status=Status.UNSCORED if reward is None else Status.SCORED,
        reward=reward,
        outcome=outcome,
        reason="planted",
        parts=parts,
    )
    completion = Completion(
        text="", token_ids=(1,) * num_tokens, sampler_logprobs=(-1.0,) * num_tokens, policy_version=0
    )
    return Rollout(completion=completion, verdict=verdict)


def wrong(reward: float, num_tokens: int) -> Rollout:
    judged = rollout(reward, num_tokens)
    return replace(judged, verdict=replace(judged.verdict, outcome=False))


def group(*rollouts: Rollout) -> Group:
    return Group(task=Task(id="t", prompt=""), prompt=Prompt(task_id="t", token_ids=(1,)), rollouts=rollouts)


def test_a_long_right_answer_is_worth_less_than_a_short_one_and_more_than_a_wrong_one() -> None:
    """Rewards 1, 1 - 0.5 * (6 - 2) / 4 = 0.5, 0: mean 0.5, so that without a std they are +0.5, 0, -0.5."""
    one = group(rollout(1.0, 2), rollout(1.0, 6), rollout(0.0, 6))
    assert advantages_of([one], scale="none", length_penalty=PENALTY) == ((0.5, 0.0, -0.5),)


def test_a_group_without_a_right_answer_is_left_as_it_is() -> None:
    wrong = group(rollout(0.0, 1), rollout(0.0, 6))
    assert advantages_of([wrong], length_penalty=PENALTY) == ((0.0, 0.0),)


def test_a_wrong_answer_with_partial_credit_loses_nothing_by_its_length() -> None:
    short, long = group(rollout(0.0, 1), wrong(0.4, 2)), group(rollout(0.0, 1), wrong(0.4, 6))
    results = [advantages_of([g], scale="none", length_penalty=PENALTY) for g in (short, long)]
    assert results[0] == results[1] == ((-0.2, 0.2),)


def test_parts_are_compared_one_by_one() -> None:
    """Part a is 1, 0 and part b 0, 1 in a group of two: equal sums, but with weights 3 : 1 the first is better."""
    one = group(rollout(0.5, a=1.0, b=0.0), rollout(0.5, a=0.0, b=1.0))
    assert advantages_of([one]) == ((0.0, 0.0),)
    first, second = advantages_of([one], part_weights={"a": 0.75, "b": 0.25})[0]
    assert first == pytest.approx(1.0, abs=1e-4)
    assert second == pytest.approx(-1.0, abs=1e-4)


def test_a_part_that_is_missing_counts_as_nothing_and_an_unscored_rollout_moves_nobody() -> None:
    parts: dict[str, Any] = {"a": 1.0}
    scored = (rollout(1.0, **parts), rollout(0.0))
    with_it = advantages_of([group(*scored, rollout(None))], part_weights=parts)[0]
    assert with_it == (*advantages_of([group(*scored)], part_weights=parts)[0], 0.0)
    assert with_it[0] > 0 > with_it[1]


def test_the_penalty_reaches_the_parts_too() -> None:
    one = group(rollout(1.0, 2, a=1.0), rollout(1.0, 6, a=1.0))
    short, long = advantages_of([one], part_weights={"a": 1.0}, length_penalty=PENALTY)[0]
    assert short > 0 > long
