"""Lengths of right and wrong answers, and the gradient of long wrong ones: by hand, by autograd, and without data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluated_run import group, new_run, rollout
from groupwise.objective.reduction import NORMALIZATIONS as TRAINED_WITH
from groupwise.objective.reduction import aggregate
from groupwise.runs import FileRecorder, read_run
from groupwise.runs.monitors.lengths import (
    NORMALIZATIONS,
    LengthSample,
    gradient_shares,
    length_correlation,
    matched_lengths,
    prompt_lengths,
    push,
    samples_of_groups,
    samples_of_rollouts,
)
from groupwise.training.length_bias import token_pushes
from groupwise.types import Stop

ROWS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from([True, False, None]),
        st.integers(0, 40),
        st.booleans(),
        st.sampled_from([-1.5, -0.5, 0.0, 1.0]),
    ),
    max_size=14,
)


def sample(
    task: str,
    outcome: bool | None,
    tokens: int,
    *,
    cut: bool = False,
    advantage: float = 0.0,
    reward: float | None = -1,
) -> LengthSample:
    paid = (None if outcome is None else float(outcome)) if reward == -1 else reward
    return LengthSample(task_id=task, outcome=outcome, reward=paid, num_tokens=tokens, is_cut=cut, advantage=advantage)


def test_only_prompts_with_both_are_compared() -> None:
    # a: right 10 and 20, wrong 30: +15. b: right 40, wrong 50 and 70: +20. c is never solved, d always
    samples = [
        sample("a", True, 10),
        sample("a", True, 20),
        sample("a", False, 30),
        sample("b", True, 40),
        sample("b", False, 50),
        sample("b", False, 70),
        sample("c", False, 500),
        sample("d", True, 1),
        sample("d", None, 9),
    ]
    found = matched_lengths(samples)
    assert found.num_matched_prompts == 2
    assert (found.right_tokens, found.wrong_tokens, found.difference) == (27.5, 45.0, 17.5)
    assert (found.num_right, found.num_wrong, found.num_unscored, found.num_completions) == (4, 4, 1, 9)
    assert found.mean_tokens == pytest.approx(730 / 9)
    assert found.interval is not None
    assert found.interval.low <= 17.5 <= found.interval.high


def test_cut_answers_are_counted_apart() -> None:
    samples = [
        sample("a", True, 10),
        sample("a", False, 20),
        sample("a", False, 64, cut=True),
        sample("b", True, 10),
        sample("b", False, 64, cut=True),
    ]
    found = matched_lengths(samples)
    assert (found.num_matched_prompts, found.difference) == (1, 10)  # b's only wrong answer was cut
    assert found.interval is None  # one prompt has no spread
    assert (found.truncated_right_frac, found.truncated_wrong_frac) == (0.0, 2 / 3)


def test_masked_completions_keep_their_length() -> None:
    # lengths 3 and 5, the second cut and left out of the loss: mean 4, cut 1/2, never a length of 0
    rows = samples_of_groups(
        [group("q", [rollout(True, num_tokens=3), rollout(False, num_tokens=5, stop=Stop.LENGTH)])]
    )
    found = matched_lengths(rows)
    assert (found.mean_tokens, found.num_cut_right, found.num_cut_wrong) == (4, 0, 1)
    assert prompt_lengths(rows) == {"q": 4}
    assert prompt_lengths(rows, only_right=True) == {"q": 3}


def test_an_answer_that_ends_with_the_last_token_is_not_cut() -> None:
    rows = samples_of_groups([group("q", [rollout(True, num_tokens=3), rollout(True, num_tokens=10, stop=Stop.END)])])
    assert matched_lengths(rows).truncated_right_frac == 0.0


def test_nothing_gives_nothing() -> None:
    found = matched_lengths([])
    assert (found.difference, found.interval, found.mean_tokens, found.truncated_right_frac) == (None,) * 4
    assert found.num_completions == 0
    assert length_correlation([]) is None
    assert [s.long_wrong for s in gradient_shares([])] == [None] * 3


def test_correlation_is_taken_inside_groups() -> None:
    # a: lengths 10, 20 with rewards 1, 0; b, a hundred times as long and always right, adds no spread of rewards
    samples = [sample("a", True, 10), sample("a", False, 20), sample("b", True, 1000), sample("b", True, 1000)]
    assert length_correlation(samples) == pytest.approx(-1.0)
    # dl -5 5 | -5 5, dr .5 -.5 | -.5 .5: they cancel
    both = [sample("a", True, 10), sample("a", False, 20), sample("b", False, 10), sample("b", True, 20)]
    assert length_correlation(both) == pytest.approx(0.0)
    equal = [sample("a", True, n, reward=0.1) for n in (10, 20, 30)]
    assert length_correlation(equal) is None


def test_the_push_of_a_wrong_answer_by_hand() -> None:
    # A = -1 and lengths 2 and 8: a token gets 1/2 and 1/8 by sequence, the same by token and constant
    by_token = {n: [push(-1.0, length, n, 1.0) / length for length in (2, 8)] for n in NORMALIZATIONS}
    assert by_token["sequence"] == [1 / 2, 1 / 8]
    assert by_token["token"] == by_token["constant"] == [1.0, 1.0]
    with pytest.raises(ValueError, match="expected one of sequence"):
        push(1.0, 2, "length", 1.0)


def test_shares_by_hand() -> None:
    # the right answer has 10 tokens, so that 40 is long and 5 is not; advantages 3/2, -1/2, -1
    samples = [
        sample("a", True, 10, advantage=1.5),
        sample("a", False, 5, advantage=-0.5),
        sample("a", False, 40, advantage=-1.0),
        sample("b", False, 20, advantage=0.25),  # a shaped reward, and no right answer to compare with
        sample("c", False, 90),  # no advantage: pushes nothing
    ]
    by_name = {s.normalize: s for s in gradient_shares(samples)}
    # sequence: 1.5 + 0.5 + 1 + 0.25 = 3.25
    assert by_name["sequence"].long_wrong == pytest.approx(1 / 3.25)
    assert by_name["sequence"].no_right_answer == pytest.approx(0.25 / 3.25)
    # token: 15 + 2.5 + 40 + 5 = 62.5
    assert by_name["token"].long_wrong == by_name["constant"].long_wrong == pytest.approx(40 / 62.5)
    assert by_name["token"].no_right_answer == pytest.approx(5 / 62.5)
    assert (by_name["token"].num_long_wrong, by_name["token"].num_completions) == (1, 4)


def test_as_long_as_the_longest_right_answer_is_not_long() -> None:
    samples = [
        sample("a", True, 5, advantage=0.5),
        sample("a", True, 10, advantage=0.5),
        sample("a", False, 10, advantage=-1),
    ]
    assert gradient_shares(samples)[0].long_wrong == 0
    longer = [*samples[:2], sample("a", False, 11, advantage=-1)]
    assert gradient_shares(longer)[0].long_wrong == 0.5


@given(ROWS)
def test_shares_are_shares(rows: list[tuple[str, bool | None, int, bool, float]]) -> None:
    samples = [sample(t, o, n, cut=c, advantage=a) for t, o, n, c, a in rows]
    for found in gradient_shares(samples):
        if found.long_wrong is not None and found.no_right_answer is not None:
            assert 0 <= found.long_wrong + found.no_right_answer <= 1 + 1e-12


@given(ROWS)
def test_the_order_does_not_matter(rows: list[tuple[str, bool | None, int, bool, float]]) -> None:
    samples = [sample(t, o, n, cut=c, advantage=a) for t, o, n, c, a in rows]
    there, back = matched_lengths(samples), matched_lengths(samples[::-1])
    assert there.num_matched_prompts == back.num_matched_prompts
    assert (there.difference is None) == (back.difference is None)
    if there.difference is not None:
        assert there.difference == pytest.approx(back.difference)


def test_pushes_are_those_of_the_loss_that_training_uses() -> None:
    # one of four is right: A = -1/sqrt(3) for each wrong answer (population std sqrt(3)/4)
    measured = {
        p.normalize: p
        for p in token_pushes(
            group("q", [rollout(i == 0, num_tokens=n) for i, n in enumerate((5, 2, 8, 5))]), max_completion_tokens=10
        )
    }
    denominators = {"sequence": 4, "token": 20, "constant": 40}
    assert tuple(measured) == NORMALIZATIONS == TRAINED_WITH
    for name, found in measured.items():
        for tokens, by_autograd in ((2, found.short), (8, found.long)):
            assert push(-(3**-0.5), tokens, name, denominators[name]) / tokens == pytest.approx(by_autograd, rel=1e-5)


def test_shares_are_those_of_the_gradient() -> None:
    lengths, advantages = (4, 9, 2, 6), (1.0, -1.5, -0.5, 0.75)
    outcomes = (True, False, False, True)
    samples = [sample("q", o, n, advantage=a) for o, n, a in zip(outcomes, lengths, advantages, strict=True)]
    mask = torch.arange(10)[None, :] < torch.tensor(lengths)[:, None]
    for found in gradient_shares(samples):
        logprobs = torch.zeros(4, 10, requires_grad=True)
        loss = -torch.tensor(advantages)[:, None] * logprobs
        total = aggregate(loss, mask, normalize=found.normalize, denominator=17.0)
        (gradient,) = torch.autograd.grad(total, logprobs)
        pushes = gradient.abs().sum(dim=1)
        assert found.long_wrong == pytest.approx(float(pushes[1] / pushes.sum()), rel=1e-5)  # 9 tokens, longer than 6


def test_recorded_rollouts_are_read_and_what_the_loss_leaves_out_pushes_nothing(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    answers = [
        rollout(True, num_tokens=3),
        rollout(False, num_tokens=7),
        rollout(False, num_tokens=9, stop=Stop.LENGTH),
    ]
    left_out = [["", "", "truncated"]]
    FileRecorder(run).rollouts("grpo", 1, [group("q", answers)], [[1.0, -0.5, -0.5]], left_out=left_out)
    samples = samples_of_rollouts(read_run(run.path).rollouts("grpo", 1))
    assert [(s.outcome, s.num_tokens, s.is_cut, s.advantage) for s in samples] == [
        (True, 3, False, 1.0),
        (False, 7, False, -0.5),
        (False, 9, True, 0.0),
    ]
    assert gradient_shares(samples)[0].long_wrong == pytest.approx(0.5 / 1.5)
