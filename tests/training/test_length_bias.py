"""The push on tokens of long and short wrong answers: the numbers by hand, and what reaches the weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from groupwise.models import LoadedModel, padded_scores
from groupwise.training.length_bias import most_different, token_pushes, wrong_by_length
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Task, Verdict


def rollout(length: int, right: bool) -> Rollout:
    return Rollout(
        completion=Completion(text="x", token_ids=tuple(range(3, 3 + length)), sampler_logprobs=(-1.0,) * length),
        verdict=Verdict(status=Status.SCORED, reward=float(right), outcome=right, reason="judged"),
    )


def group(*rollouts: tuple[int, bool], name: str = "q") -> Group:
    return Group(
        task=Task(id=name, prompt="p"),
        prompt=Prompt(task_id=name, token_ids=(1, 2)),
        rollouts=tuple(rollout(*r) for r in rollouts),
    )


def test_the_push_on_a_token_by_hand() -> None:
    # one of four is right: mean 1/4, population std sqrt(3)/4, so a wrong answer has A = -1/sqrt(3)
    push = {
        p.normalize: p
        for p in token_pushes(group((5, True), (2, False), (8, False), (5, False)), max_completion_tokens=10)
    }
    size = 3**-0.5
    assert push["sequence"].short == pytest.approx(size / (4 * 2), rel=1e-5)
    assert push["sequence"].long == pytest.approx(size / (4 * 8), rel=1e-5)
    assert push["sequence"].ratio == pytest.approx(2 / 8)
    assert push["token"].short == pytest.approx(size / 20, rel=1e-5)
    assert push["constant"].long == pytest.approx(size / (4 * 10), rel=1e-5)
    assert push["token"].ratio == push["constant"].ratio == 1
    assert (push["token"].short_tokens, push["token"].long_tokens) == (2, 8)


def test_what_reaches_the_weights_is_scaled_alike(tiny_model: Callable[..., LoadedModel]) -> None:
    loaded = tiny_model("llama")
    before = [p.detach().clone() for p in loaded.model.parameters()]
    push = {
        p.normalize: p
        for p in token_pushes(
            group((5, True), (2, False), (8, False)), max_completion_tokens=10, loaded=loaded, scores=padded_scores
        )
    }
    by_sequence, constant = push["sequence"], push["constant"]
    assert by_sequence.short_norm
    assert by_sequence.long_norm
    assert constant.short_norm
    assert constant.long_norm
    # the same two answers: only the weight of their tokens differs
    assert by_sequence.long_norm / constant.long_norm == pytest.approx(10 / 8, rel=1e-4)
    assert by_sequence.short_norm / constant.short_norm == pytest.approx(10 / 2, rel=1e-4)
    assert all(torch.equal(a, b) for a, b in zip(before, loaded.model.parameters(), strict=True))
    assert all(p.grad is None for p in loaded.model.parameters())


def test_the_group_with_the_widest_spread_of_wrong_lengths_is_taken() -> None:
    narrow = group((5, True), (4, False), (6, False), name="narrow")
    wide = group((5, True), (2, False), (8, False), name="wide")
    hopeless = group((1, False), (9, False), name="hopeless")
    same = group((5, True), (4, False), (4, False), name="same")
    assert most_different([narrow, hopeless, wide, same]) is wide
    assert most_different([hopeless, same]) is None
    assert most_different([]) is None
    assert wrong_by_length(wide) == [1, 2]
