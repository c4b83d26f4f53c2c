"""Which completions become pairs: never unscored, never cut on the better side, nearest in length."""

from __future__ import annotations

import pytest

from groupwise.curation.preference import ChosenPair, NoPair, PairRule, choose_pairs
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict


def rollout(outcome: bool | None, length: int, text: str = "", stop: Stop = Stop.END) -> Rollout:
    status = Status.UNSCORED if outcome is None else Status.SCORED
    return Rollout(
        completion=Completion(
            text=text or f"{outcome} {length}", token_ids=(5,) * length, sampler_logprobs=(-1.0,) * length, stop=stop
        ),
        verdict=Verdict(
            status=status, reward=None if outcome is None else float(outcome), outcome=outcome, reason="made_up"
        ),
    )


def group(*rollouts: Rollout) -> Group:
    return Group(task=Task(id="q", prompt="?"), prompt=Prompt(task_id="q", token_ids=(1,)), rollouts=rollouts)


def lengths(chosen: tuple[ChosenPair, ...] | NoPair) -> list[tuple[int, int]]:
    assert not isinstance(chosen, NoPair), chosen
    return [(len(p.chosen.completion.token_ids), len(p.rejected.completion.token_ids)) for p in chosen]


MIXED = group(rollout(True, 3), rollout(False, 20), rollout(True, 9), rollout(False, 4), rollout(False, 12))


def test_the_pairs_are_those_of_nearest_length_and_no_completion_comes_twice() -> None:
    # differences: 3 to 4 = 1, 9 to 12 = 3, 9 to 4 = 5, 3 to 12 = 9, 9 to 20 = 11, 3 to 20 = 17
    assert lengths(choose_pairs([MIXED], PairRule(max_pairs=1))) == [(3, 4)]
    assert lengths(choose_pairs([MIXED], PairRule(max_pairs=9))) == [(3, 4), (9, 12)]
    (first, second) = choose_pairs([MIXED], PairRule(max_pairs=2))
    assert (first.length_difference, second.length_difference) == (-1, -3)


def test_random_pairs_depend_on_the_seed_alone_and_reach_all() -> None:
    def drawn(seed: int) -> list[tuple[int, int]]:
        return lengths(choose_pairs([MIXED], PairRule(pick="random", seed=seed)))

    assert drawn(3) == drawn(3)
    assert {drawn(seed)[0] for seed in range(60)} == {(a, b) for a in (3, 9) for b in (4, 12, 20)}


def test_every_chosen_side_is_solved_and_every_rejected_one_is_not() -> None:
    chosen = choose_pairs([MIXED], PairRule(max_pairs=9))
    assert not isinstance(chosen, NoPair)
    assert all(p.chosen.verdict.outcome is True and p.rejected.verdict.outcome is False for p in chosen)


def test_unscored_and_aborted_completions_are_on_neither_side() -> None:
    broken = group(rollout(True, 3), rollout(None, 3), rollout(False, 3, stop=Stop.ABORTED), rollout(False, 30))
    assert lengths(choose_pairs([broken], PairRule(max_pairs=9))) == [(3, 30)]


def test_a_cut_completion_is_never_chosen_but_may_be_rejected() -> None:
    cut = group(rollout(True, 8, stop=Stop.LENGTH), rollout(True, 2), rollout(False, 8, stop=Stop.LENGTH))
    assert lengths(choose_pairs([cut], PairRule(max_pairs=9))) == [(2, 8)]


def test_equal_and_empty_texts_are_no_pair_and_repeated_ones_count_once() -> None:
    same = group(rollout(True, 2, "x"), rollout(False, 2, " x\n"), rollout(False, 2, " "))
    assert choose_pairs([same], PairRule()) is NoPair.SAME_TEXT
    repeated = group(*(rollout(True, 2, "right") for _ in range(3)), *(rollout(False, 2, "wrong") for _ in range(3)))
    assert lengths(choose_pairs([repeated], PairRule(max_pairs=9))) == [(2, 2)]


def test_pairs_come_from_one_group_and_from_the_newest_first() -> None:
    old, new = group(rollout(True, 3), rollout(False, 3)), group(rollout(True, 7), rollout(False, 9))
    assert lengths(choose_pairs([old, new], PairRule(max_pairs=1))) == [(7, 9)]
    assert lengths(choose_pairs([old, new], PairRule(max_pairs=9))) == [(7, 9), (3, 3)]
    apart = [group(rollout(True, 3), rollout(True, 4)), group(rollout(False, 3), rollout(False, 4))]
    assert choose_pairs(apart, PairRule()) is NoPair.APART


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ([], NoPair.NOT_SAMPLED),
        ([group(rollout(None, 2), rollout(None, 3))], NoPair.UNSCORED),
        ([group(rollout(True, 2), rollout(None, 3))], NoPair.ALWAYS_SOLVED),
        ([group(rollout(False, 2), rollout(False, 3))], NoPair.NEVER_SOLVED),
        ([group(rollout(True, 2, stop=Stop.LENGTH), rollout(False, 3))], NoPair.CUT),
    ],
)
def test_a_prompt_without_a_pair_says_why(groups: list[Group], reason: NoPair) -> None:
    assert choose_pairs(groups, PairRule()) is reason
