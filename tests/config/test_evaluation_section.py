"""[evaluation]: what counts as solved, and at which temperature."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from groupwise.config.evaluation import EvaluationSection


def test_by_default_the_verifier_decides_and_the_model_is_sampled_as_it_is() -> None:
    section = EvaluationSection()
    assert (section.success_reward, section.temperature) == (None, 1.0)


@pytest.mark.parametrize("value", [0.0, -0.1, 1.1])
def test_a_threshold_that_everything_or_nothing_reaches_is_refused(value: float) -> None:
    with pytest.raises(ValidationError):
        EvaluationSection(success_reward=value)
    assert EvaluationSection(success_reward=1.0).success_reward == 1.0


def test_sampling_at_zero_would_be_greedy_a_second_time() -> None:
    with pytest.raises(ValidationError):
        EvaluationSection(temperature=0.0)
