"""Rates and lengths of a held-out evaluation."""

from __future__ import annotations

from typing import Any

import pytest
from training_cases import FakeEngine, SaysYes, said, tasks_and_prompts

from groupwise.rollout import Sampling
from groupwise.training import Evaluation, evaluate_tasks
from groupwise.types import Stop


def evaluated(engine: FakeEngine, **options: Any) -> Evaluation:
    tasks, prompts = tasks_and_prompts(3)
    settings = {"samples_per_prompt": 4, "greedy": True, "sampling": Sampling(max_tokens=8), "seed": 9, **options}
    return evaluate_tasks(engine, SaysYes(), tasks, prompts, **settings)


def answer(prompt: int, sample: int) -> Any:
    """Prompt 0 is solved by 1 of 4, prompt 1 by all, prompt 2 by 1 of the 3 that can be judged."""
    if prompt == 2 and sample == 3:
        return said("broken", 5, 5, 5, 5, 5, 5, 5, 1)
    right = sample == 0 or prompt == 1
    return said("yes", 5, 1) if right else said("no", 5, 6, 7, 8, stop=Stop.LENGTH)


def test_rates_and_lengths_by_hand() -> None:
    evaluation = evaluated(FakeEngine(answer))
    assert evaluation.prompt_rates == pytest.approx([1 / 4, 1, 1 / 3])
    assert evaluation.greedy_outcomes == [True, True, True]
    assert evaluation.mean_length(right=True) == 2
    assert evaluation.mean_length(right=False) == 4  # the unscored one of 8 tokens is neither right nor wrong
    assert evaluation.truncated_frac == 5 / 12


def test_a_length_of_nothing_is_none() -> None:
    assert evaluated(FakeEngine(lambda p, c: said("no"))).mean_length(right=True) is None


def test_prompts_that_nothing_could_judge_have_no_rate() -> None:
    evaluation = evaluated(FakeEngine(lambda p, c: said("broken" if p else "yes")))
    assert evaluation.prompt_rates == [1]
    assert evaluation.greedy_outcomes == [True]


def test_greedy_is_one_sample_at_temperature_zero_and_the_seed_is_given() -> None:
    engine = FakeEngine(answer)
    evaluated(engine)
    assert engine.calls == [(4, Sampling(max_tokens=8), 9), (1, Sampling(max_tokens=8, temperature=0.0), 9)]


def test_greedy_alone_still_has_lengths() -> None:
    engine = FakeEngine(answer)
    evaluation = evaluated(engine, samples_per_prompt=0)
    assert len(engine.calls) == 1
    assert evaluation.prompt_rates == []
    assert evaluation.greedy_outcomes == [True] * 3
    assert evaluation.mean_length(right=True) == 2
    assert evaluation.truncated_frac == 0


def test_without_greedy_nothing_greedy_is_sampled() -> None:
    engine = FakeEngine(answer)
    assert evaluated(engine, greedy=False).greedy_outcomes == []
    assert len(engine.calls) == 1


def test_progress_counts_both_passes() -> None:
    seen: list[tuple[int, int]] = []
    evaluated(FakeEngine(answer), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(12, 15), (15, 15)]
