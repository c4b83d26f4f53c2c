from __future__ import annotations

import pytest

from groupwise.curation import PassRate, PromptState, RetireRule


def test_a_prompt_is_judged_by_its_posterior() -> None:
    # a flat prior: P(rate <= x) after 0 of n is 1 - (1 - x)^(n + 1); at 0.1 it reaches 0.8 with 15: 1 - 0.9^16 = 0.815
    rule = RetireRule(solved_above=0.8, hopeless_below=0.1, confidence=0.8)

    def state(solved: int, scored: int) -> PromptState:
        return rule.state_of(PassRate(solved=solved, scored=scored, alpha=1, beta=1))

    assert state(0, 14) is PromptState.ACTIVE  # 1 - 0.9^15 = 0.794
    assert state(0, 15) is PromptState.NEVER_SOLVED
    assert state(1, 15) is PromptState.ACTIVE
    assert state(6, 6) is PromptState.ACTIVE  # 1 - 0.8^7 = 0.790
    assert state(7, 7) is PromptState.ALWAYS_SOLVED  # 1 - 0.8^8 = 0.832
    assert state(0, 0) is PromptState.ACTIVE


def test_how_many_attempts_it_takes() -> None:
    assert RetireRule().attempts_needed() == 16
    for rule in (RetireRule(confidence=0.95), RetireRule(hopeless_below=0.2), RetireRule(hopeless_below=0.001)):
        needed = rule.attempts_needed()
        enough = [
            rule.state_of(PassRate(solved=n, scored=n)) is PromptState.ALWAYS_SOLVED
            and rule.state_of(PassRate(solved=0, scored=n)) is PromptState.NEVER_SOLVED
            for n in (needed - 1, needed)
        ]
        assert enough == [False, True]


def test_a_rule_that_is_soon_sure_needs_one_attempt() -> None:
    assert RetireRule(solved_above=0.51, hopeless_below=0.5, confidence=0.5).attempts_needed() == 1


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"hopeless_below": 0.95}, "hopeless_below < solved_above"),
        ({"hopeless_below": 0.0}, "0 < hopeless_below"),
        ({"solved_above": 1.0}, "solved_above < 1"),
        ({"confidence": 0.4}, "at least 0.5"),
        ({"confidence": 1.0}, "below 1"),
    ],
)
def test_impossible_rules_are_refused(settings: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        RetireRule(**settings)
