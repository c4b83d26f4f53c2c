"""Alarms over lengths: each kind by hand, the same lengths with a rising pass rate, and none on noise."""

from __future__ import annotations

import math
import random

import pytest

from groupwise.runs.monitors.length_alarms import (
    EvaluatedLengths,
    LengthAlarm,
    evaluated_lengths,
    length_alarms,
    paid_rise,
)
from groupwise.runs.monitors.lengths import LengthSample

RISING = [0.2] * 5 + [0.3] * 5 + [0.5] * 5
FLAT = [0.3] * 15


def evaluation(
    name: str, *, tokens: float, rate: float, right: float | None = None, cut: float = 0.0, num_prompts: int = 20
) -> EvaluatedLengths:
    """Every prompt the same, but for some spread of the lengths by prompt."""
    prompts = [f"q{i}" for i in range(num_prompts)]
    spread = {p: 1 + 0.1 * (i % 5 - 2) for i, p in enumerate(prompts)}
    return EvaluatedLengths(
        name=name,
        rates=dict.fromkeys(prompts, rate),
        tokens={p: tokens * spread[p] for p in prompts},
        right_tokens={} if right is None else {p: right * spread[p] for p in prompts},
        cut=dict.fromkeys(prompts, cut),
    )


def kinds(*series: EvaluatedLengths, paid: list[float] | None = None) -> list[str]:
    return [alarm.kind for alarm in length_alarms(series, paid or [])]


START = evaluation("sft", tokens=20, rate=0.4, right=18)


def test_longer_answers_are_an_alarm_only_where_the_pass_rate_does_not_rise() -> None:
    (alarm,) = length_alarms([START, evaluation("grpo", tokens=40, rate=0.4)])
    assert alarm.kind == "longer_not_better"
    assert alarm.sentence.startswith("grpo: held-out answers are 2.0 times as long as at sft (20 to 40 tokens on 20")
    assert "from 40.0% to 40.0%" in alarm.sentence
    assert kinds(START, evaluation("grpo", tokens=40, rate=0.3)) == ["longer_not_better"]
    assert kinds(START, evaluation("grpo", tokens=40, rate=0.5)) == []
    assert kinds(START, evaluation("grpo", tokens=27, rate=0.4)) == []  # 1.3 times
    assert kinds(START, evaluation("grpo", tokens=10, rate=0.4)) == []  # shorter, and nothing is paid for it


def test_a_point_of_pass_rate_is_no_rise() -> None:
    assert kinds(START, evaluation("grpo", tokens=40, rate=0.405)) == ["longer_not_better"]
    assert kinds(START, evaluation("grpo", tokens=40, rate=0.42)) == []


def test_more_cut_answers_are_an_alarm_where_the_pass_rate_does_not_rise() -> None:
    (alarm,) = length_alarms([START, evaluation("grpo", tokens=22, rate=0.4, cut=0.25)])
    assert alarm.kind == "cut_not_better"
    assert "25% of the held-out answers are cut at the token limit, 0% at sft" in alarm.sentence
    assert kinds(START, evaluation("grpo", tokens=22, rate=0.5, cut=0.25)) == []
    assert kinds(START, evaluation("grpo", tokens=22, rate=0.4, cut=0.05)) == []


@pytest.mark.parametrize(("tokens", "expected"), [(9, True), (45, True), (14, False), (24, False)])
def test_lengths_of_another_kind_with_rising_reward(tokens: float, expected: bool) -> None:
    found = kinds(START, evaluation("grpo", tokens=tokens, rate=0.4, right=18), paid=RISING)
    assert ("paid_not_better" in found) == expected
    without = kinds(START, evaluation("grpo", tokens=tokens, rate=0.4, right=18), paid=FLAT)
    assert "paid_not_better" not in without
    better = kinds(START, evaluation("grpo", tokens=tokens, rate=0.6, right=18), paid=RISING)
    assert better == []


def test_right_answers_that_collapse_while_reward_rises_are_an_alarm_whatever_the_held_out_rate_says() -> None:
    (alarm,) = length_alarms([START, evaluation("grpo", tokens=14, rate=0.9, right=4)], RISING)
    assert alarm.kind == "paid_collapse"
    assert "the training reward rose by 0.30" in alarm.sentence
    assert "the same 20 prompts" in alarm.sentence
    assert kinds(START, evaluation("grpo", tokens=14, rate=0.9, right=9), paid=RISING) == []  # half: shorter answers
    assert kinds(START, evaluation("grpo", tokens=14, rate=0.9, right=4), paid=FLAT) == []


def test_a_model_that_learns_to_stop_is_no_alarm() -> None:
    # everything ran to the limit of 48 and now ends after 20; right answers are as long as they were
    rambling = evaluation("base", tokens=46, rate=0.05, right=21, cut=0.9)
    assert kinds(rambling, evaluation("grpo", tokens=20, rate=0.5, right=20), paid=RISING) == []


def test_few_prompts_and_one_evaluation_raise_nothing() -> None:
    few = evaluation("sft", tokens=20, rate=0.4, num_prompts=9), evaluation("grpo", tokens=60, rate=0.4, num_prompts=9)
    assert kinds(*few) == []
    assert kinds(evaluation("grpo", tokens=60, rate=0.4)) == []
    assert length_alarms([]) == ()


def test_the_last_evaluation_is_compared_with_the_first() -> None:
    middle = evaluation("grpo step 10", tokens=40, rate=0.4)
    assert kinds(START, middle, evaluation("grpo", tokens=20, rate=0.4)) == []
    assert kinds(START, evaluation("grpo step 10", tokens=20, rate=0.4), middle) == ["longer_not_better"]


def test_a_few_prompts_that_explode_are_chance() -> None:
    prompts = [f"q{i}" for i in range(20)]
    last = EvaluatedLengths(
        name="grpo",
        rates=dict.fromkeys(prompts, 0.4),
        tokens={p: START.tokens[p] * (900 if i < 2 else 1) for i, p in enumerate(prompts)},
        right_tokens={},
        cut=dict.fromkeys(prompts, 0.0),
    )
    assert kinds(START, last) == []  # exp(mean log) is 1.97, from two prompts


def test_a_rise_of_reward_by_hand() -> None:
    assert paid_rise(RISING) == pytest.approx(0.3)
    assert paid_rise([0.2, 0.2, 0.9, 0.5, 0.5]) == 0.0  # five steps
    # thirds 0.1, 0.3 and 0.3, 0.5: 0.2 with an error of sqrt(0.02 / 2 + 0.02 / 2) = 0.141
    assert paid_rise([0.1, 0.3, 9.0, 9.0, 0.3, 0.5]) == 0.0
    assert paid_rise([*RISING, float("nan")]) == pytest.approx(0.3)
    assert paid_rise(RISING[::-1]) == 0.0  # a fall is no rise


def test_an_evaluation_from_its_completions() -> None:
    def sample(task: str, outcome: bool | None, tokens: int, cut: bool = False) -> LengthSample:
        reward = None if outcome is None else float(outcome)
        return LengthSample(task_id=task, outcome=outcome, reward=reward, num_tokens=tokens, is_cut=cut)

    found = evaluated_lengths("x", [sample("a", True, 4), sample("a", False, 8, True), sample("b", None, 6)])
    assert found.rates == {"a": 0.5}
    assert found.tokens == {"a": 6, "b": 6}
    assert found.right_tokens == {"a": 4}
    assert found.cut == {"a": 0.5, "b": 0.0}


def noisy_series(seed: int, num_prompts: int, samples: int, gain: float = 0.0) -> set[str]:
    """Kinds of alarm over five evaluations of one stage in which nothing but the pass rate may change."""
    draw = random.Random(seed)
    rates = [draw.betavariate(0.6, 0.6) for _ in range(num_prompts)]
    usual = [math.exp(draw.gauss(3.5, 0.6)) for _ in range(num_prompts)]
    series: list[EvaluatedLengths] = []
    paid: list[float] = []
    found: list[LengthAlarm] = []
    for number in range(5):
        rows = []
        for i in range(num_prompts * samples):
            tokens = min(128, 1 + int(usual[i // samples] * math.exp(draw.gauss(0, 0.5))))
            outcome = draw.random() < rates[i // samples] + gain * number
            rows.append(
                LengthSample(
                    task_id=str(i // samples),
                    outcome=outcome,
                    reward=float(outcome),
                    num_tokens=tokens,
                    is_cut=tokens == 128,
                )
            )
        series.append(evaluated_lengths(str(number), rows))
        paid += [0.5 + gain * number + draw.gauss(0, 0.08) for _ in range(8)]
        found += length_alarms(series, paid)
    return {alarm.kind for alarm in found}


@pytest.mark.parametrize(("num_prompts", "samples"), [(10, 1), (24, 4)])
def test_noise_raises_next_to_no_alarm(num_prompts: int, samples: int) -> None:
    alarmed = sum(bool(noisy_series(seed, num_prompts, samples)) for seed in range(200))
    assert alarmed / 200 <= 0.03


def test_a_run_that_gets_better_raises_next_to_none() -> None:
    assert sum(bool(noisy_series(seed, 24, 2, gain=0.05)) for seed in range(200)) / 200 <= 0.03
