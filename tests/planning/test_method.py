from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest

from groupwise.errors import ConfigError
from groupwise.planning.method import (
    FEW_INFORMATIVE,
    MIN_DEMONSTRATIONS,
    MIN_PREFERENCE_PAIRS,
    MOSTLY_UNSOLVED,
    MethodChoice,
    Situation,
    Start,
    choose_method,
    start_of,
)
from groupwise.planning.method_facts import COMPARISON_COLUMNS, METHOD_FACTS, RelativeCost, comparison_rows
from groupwise.planning.pass_rates import BetaRates, PassRates
from groupwise.planning.step_tokens import Method

GB = 10**9

UNSOLVED = 0.005  # of groups of 8: 0.04 have both outcomes, 0.96 no success
WEAK = 0.05  # 0.34 have both outcomes, 0.66 no success
READY = 0.3
SOLVED = 0.999
SPLIT = (0.0, 1.0)

OUTCOMES = Situation(has_verifier=True, num_demonstrations=1000, num_preference_pairs=1000, pass_rates=READY)
SCORES = Situation(has_reward_model=True, num_demonstrations=1000, num_preference_pairs=1000)
PAIRS = Situation(num_demonstrations=1000, num_preference_pairs=1000)

# One rule a line: a situation, its stages, the facts that change, the stages then.
FLIPS: dict[str, tuple[Situation, str, dict[str, Any], str]] = {
    "a signal is there: GRPO at once, else warm up first": (
        OUTCOMES, "grpo", {"pass_rates": UNSOLVED}, "sft, then dpo, then grpo"),
    "a weak start is warmed up": (OUTCOMES, "grpo", {"pass_rates": WEAK}, "sft, then dpo, then grpo"),
    "an unmeasured start is warmed up": (OUTCOMES, "grpo", {"pass_rates": None}, "sft, then dpo, then grpo"),
    "without demonstrations pairs warm up alone": (
        replace(OUTCOMES, pass_rates=UNSOLVED), "sft, then dpo, then grpo", {"num_demonstrations": 0},
        "dpo, then grpo"),
    "without pairs demonstrations warm up alone": (
        replace(OUTCOMES, pass_rates=UNSOLVED), "sft, then dpo, then grpo", {"num_preference_pairs": 0},
        "sft, then grpo"),
    "a hopeless start without a warm-up trains nothing": (
        Situation(has_verifier=True, pass_rates=UNSOLVED), "nothing to train", {"pass_rates": WEAK}, "grpo"),
    "a larger group finds a signal": (
        Situation(has_verifier=True, pass_rates=UNSOLVED), "nothing to train", {"group_size": 64}, "grpo"),
    "split prompts need a warm-up": (
        replace(OUTCOMES, pass_rates=SPLIT, num_preference_pairs=0), "sft, then grpo", {"num_demonstrations": 0},
        "nothing to train"),
    "what is solved teaches nothing": (
        replace(OUTCOMES, num_preference_pairs=0), "grpo", {"pass_rates": SOLVED}, "nothing to train"),
    "pairs may still teach where all is solved": (OUTCOMES, "grpo", {"pass_rates": SOLVED}, "dpo"),
    "a reward model may still teach where all is solved": (
        replace(OUTCOMES, pass_rates=SOLVED, num_preference_pairs=0), "nothing to train", {"has_reward_model": True},
        "ppo"),
    "a reward model replaces outcomes that never come": (
        Situation(has_verifier=True, pass_rates=UNSOLVED), "nothing to train", {"has_reward_model": True}, "ppo"),
    "no verifier, but pairs: DPO": (
        PAIRS, "sft, then dpo", {"has_verifier": True}, "sft, then dpo, then grpo"),
    "no verifier, but demonstrations: SFT": (
        replace(PAIRS, num_preference_pairs=0), "sft", {"num_preference_pairs": 1000}, "sft, then dpo"),
    "a reward model: PPO": (SCORES, "sft, then ppo", {"has_reward_model": False}, "sft, then dpo"),
    "a verifier goes before a reward model": (
        SCORES, "sft, then ppo", {"has_verifier": True}, "sft, then dpo, then grpo"),
    "PPO is too dear: GRPO with the reward model": (
        SCORES, "sft, then ppo", {"highest_cost": "high"}, "sft, then grpo"),
    "PPO does not fit: GRPO with the reward model": (
        replace(SCORES, memory_needed={"ppo": 40 * GB, "grpo": 20 * GB}), "sft, then ppo", {"memory_bytes": 24 * GB},
        "sft, then grpo"),
    "no sampling is affordable: DPO": (SCORES, "sft, then ppo", {"highest_cost": "low"}, "sft, then dpo"),
    "only SFT is affordable": (OUTCOMES, "grpo", {"highest_cost": "lowest"}, "sft"),
    "GRPO does not fit": (
        replace(OUTCOMES, memory_needed={"grpo": 20 * GB}, memory_bytes=20 * GB), "grpo",
        {"memory_bytes": 20 * GB - 1}, "dpo"),
    "too few demonstrations": (
        replace(PAIRS, num_demonstrations=MIN_DEMONSTRATIONS), "sft, then dpo",
        {"num_demonstrations": MIN_DEMONSTRATIONS - 1}, "dpo"),
    "too few pairs": (
        replace(PAIRS, num_preference_pairs=MIN_PREFERENCE_PAIRS), "sft, then dpo",
        {"num_preference_pairs": MIN_PREFERENCE_PAIRS - 1}, "sft"),
}  # fmt: skip


@pytest.mark.parametrize("rule", FLIPS)
def test_each_rule_flips_with_one_fact(rule: str) -> None:
    situation, before, change, after = FLIPS[rule]
    assert choose_method(situation).summary == before
    assert choose_method(replace(situation, **change)).summary == after


@pytest.mark.parametrize(
    ("rates", "start"),
    [
        (None, Start.UNMEASURED),
        (0.0, Start.UNSOLVED),
        (UNSOLVED, Start.UNSOLVED),
        (WEAK, Start.WEAK),
        (READY, Start.READY),
        (0.95, Start.READY),
        (SOLVED, Start.SOLVED),
        (1.0, Start.SOLVED),
        (SPLIT, Start.SPLIT),
        ((0.0, 0.0, 1.0, 0.5), Start.WEAK),  # 0.25 of the groups have both outcomes, half of them no success
        ((0.0, 1.0, 1.0, 0.5), Start.READY),
        (BetaRates(alpha=0.05, beta=5), Start.UNSOLVED),
        (BetaRates(alpha=1, beta=1), Start.READY),
    ],
)
def test_where_the_start_model_stands(rates: PassRates | None, start: Start) -> None:
    assert start_of(Situation(has_verifier=True, pass_rates=rates)) is start


def test_the_bounds_by_hand() -> None:
    # groups of 2: 2p(1 - p) have both outcomes; 0.1 at p = (1 - sqrt(0.8)) / 2 = 0.05279
    assert FEW_INFORMATIVE == 0.1
    pair = Situation(has_verifier=True, group_size=2)
    assert start_of(replace(pair, pass_rates=0.0527)) is Start.UNSOLVED
    assert start_of(replace(pair, pass_rates=0.0529)) is Start.WEAK
    # (1 - p)^2 = 0.5 at p = 0.29289
    assert MOSTLY_UNSOLVED == 0.5
    assert start_of(replace(pair, pass_rates=0.2928)) is Start.WEAK
    assert start_of(replace(pair, pass_rates=0.2930)) is Start.READY


def choices() -> list[tuple[Situation, MethodChoice]]:
    """Every combination of what there can be, as far as something can be learned from it."""
    found = []
    for demonstrations, pairs, verifier, model in product((0, 1000), (0, 1000), (False, True), (False, True)):
        for rates in (None, UNSOLVED, WEAK, READY, SOLVED, SPLIT) if verifier else (None,):
            for cost, fits in product(get_args(RelativeCost), (True, False)):
                if demonstrations or pairs or verifier or model:
                    situation = Situation(
                        num_demonstrations=demonstrations, num_preference_pairs=pairs, has_verifier=verifier,
                        has_reward_model=model, pass_rates=rates, highest_cost=cost, memory_bytes=24 * GB,
                        memory_needed={} if fits else {"ppo": 40 * GB, "grpo": 25 * GB},
                    )  # fmt: skip
                    found.append((situation, choose_method(situation)))
    return found


def test_every_method_has_one_place_and_a_reason() -> None:
    for _, choice in choices():
        named = [step.method for step in choice.steps] + [left.method for left in choice.left_out]
        assert sorted(named) == sorted(METHOD_FACTS)
        assert all(entry.reason for entry in (*choice.steps, *choice.left_out))


def test_what_holds_in_every_situation() -> None:
    costs = get_args(RelativeCost)
    order = list(METHOD_FACTS)
    for situation, choice in choices():
        methods = [step.method for step in choice.steps]
        signals = {step.signal for step in choice.steps}
        assert methods == sorted(methods, key=order.index)  # cheapest first
        assert not {"grpo", "ppo"} <= set(methods)
        assert all(costs.index(METHOD_FACTS[m].relative_cost) <= costs.index(situation.highest_cost) for m in methods)
        assert all(situation.memory_needed.get(m, 0) <= 24 * GB for m in methods)
        assert situation.has_verifier or "verifier" not in signals
        assert situation.has_reward_model or "reward model" not in signals
        assert situation.num_demonstrations or "sft" not in methods
        assert situation.num_preference_pairs or "dpo" not in methods
        if choice.start in (Start.UNSOLVED, Start.SPLIT) and "verifier" in signals:
            assert len(methods) > 1  # something raises the pass rate first


def left_out(situation: Situation, method: Method) -> str:
    return next(left.reason for left in choose_method(situation).left_out if left.method == method)


def test_reasons_name_the_facts() -> None:
    assert left_out(replace(OUTCOMES, num_demonstrations=3), "sft") == "3 demonstrations, of 100 that it needs"
    assert left_out(OUTCOMES, "ppo") == "there is no reward model"
    assert "value model" in left_out(replace(OUTCOMES, has_reward_model=True), "ppo")
    assert left_out(replace(SCORES, highest_cost="high"), "ppo") == "its relative cost is highest, the limit is high"
    large = replace(SCORES, memory_needed={"ppo": 40 * GB}, memory_bytes=24 * GB)
    assert left_out(large, "ppo").startswith("it needs 40.00 GB of memory, there are 24.00 (held: reward model, value")
    assert left_out(PAIRS, "grpo") == "neither a verifier nor a reward model scores fresh samples"
    assert "already solves" in left_out(replace(OUTCOMES, pass_rates=SOLVED), "sft")
    # groups of 8 at 0.3: 1 - 0.3^8 - 0.7^8 = 0.942
    assert "94% of the groups of 8" in choose_method(OUTCOMES).steps[0].reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pass_rates": SOLVED}, "get harder prompts"),
        ({"pass_rates": SPLIT}, "solved always or never"),
        ({"pass_rates": None}, "Measure the pass rate of the prompts"),
        ({"pass_rates": WEAK}, "Measure the pass rate again after dpo"),
        ({"pass_rates": WEAK, "num_preference_pairs": 0}, "Measure the pass rate again after sft"),
        ({"pass_rates": UNSOLVED, "num_preference_pairs": 0, "num_demonstrations": 0}, "easier prompts"),
        ({"has_verifier": False, "pass_rates": None, "has_reward_model": True}, "over-optimised"),
    ],
)
def test_advice_belongs_to_its_situation(change: dict[str, Any], words: str) -> None:
    assert words in " ".join(choose_method(replace(OUTCOMES, **change)).advice)
    assert words not in " ".join(choose_method(OUTCOMES).advice)


def test_nothing_to_learn_from_is_refused_with_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"sft: 3 demonstrations.*dpo: 0 preference pairs.*grpo: .*ppo: ") as refused:
        choose_method(Situation(num_demonstrations=3))
    assert "Write a verifier" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_demonstrations": -1}, "num_demonstrations = -1"),
        ({"num_preference_pairs": 1.5}, "num_preference_pairs = 1.5"),
        ({"group_size": 1}, "group_size = 1"),
        ({"memory_bytes": 0}, "memory_bytes = 0"),
        ({"memory_needed": {"rlhf": 1}}, "memory_needed = 'rlhf'"),
        ({"memory_needed": {"ppo": -1}}, r"memory_needed\['ppo'\] = -1"),
        ({"highest_cost": "medium"}, "lowest or low or high or highest"),
        ({"has_verifier": False}, "has_verifier=True"),
    ],
)
def test_impossible_facts_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(OUTCOMES, **change)


@pytest.mark.parametrize("rates", [(), (0.5, 1.2)])
def test_unusable_pass_rates_are_refused(rates: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="pass rate"):
        choose_method(replace(OUTCOMES, pass_rates=rates))


def test_the_comparison_is_complete_and_cheapest_first() -> None:
    assert set(METHOD_FACTS) == set(get_args(Method))
    rows = comparison_rows()
    assert all(len(row) == len(COMPARISON_COLUMNS) and all(row) for row in rows)
    assert [row[COMPARISON_COLUMNS.index("relative cost")] for row in rows] == list(get_args(RelativeCost))
