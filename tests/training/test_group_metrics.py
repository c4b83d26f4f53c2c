"""The numbers of what was sampled, on inputs small enough to count by hand; some are faults of others, never ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from training_cases import group, said, verdict

from groupwise.training.grpo import GrpoOptions, group_metrics, shaping_metrics
from groupwise.training.grpo_batch import make_batch, step_advantages
from groupwise.types import Completion, Group, Rollout, Stop


def with_stops(one: Group, *stops: Stop) -> Group:
    rollouts = [replace(r, completion=replace(r.completion, stop=s)) for r, s in zip(one.rollouts, stops, strict=True)]
    return replace(one, rollouts=tuple(rollouts))


def with_texts(one: Group, *texts: str) -> Group:
    rollouts = [replace(r, completion=replace(r.completion, text=t)) for r, t in zip(one.rollouts, texts, strict=True)]
    return replace(one, rollouts=tuple(rollouts))


def of(number: int, *completions: Completion, rewards: Sequence[float | None] | None = None) -> Group:
    """A group of these completions, none of them right unless rewards say so."""
    rewards = rewards or [0.0] * len(completions)
    rollouts = [Rollout(completion=c, verdict=verdict(r)) for c, r in zip(completions, rewards, strict=True)]
    return replace(group(number, [0], [1]), rollouts=tuple(rollouts))


def test_a_dead_run_shows_in_every_step() -> None:
    """Three groups: both right, one right, none judged. A third each is dead, alive and unscored."""
    metrics = group_metrics([group(0, [1, 1], [2, 2]), group(1, [0, 1], [2, 2]), group(2, [None, None], [2, 2])])
    shares = {
        name: metrics[name] / metrics["num_groups"]
        for name in ("live_groups", "dead_groups_all_solved", "dead_groups_none_solved", "unscored_groups")
    }
    third = pytest.approx(1 / 3)
    assert shares == {
        "live_groups": third,
        "dead_groups_all_solved": third,
        "dead_groups_none_solved": 0,
        "unscored_groups": third,
    }
    assert metrics["unscored_frac"] == third
    assert metrics["pass_rate"] == 0.75  # over the two prompts that were judged


def test_lengths_are_those_of_what_was_sampled_whatever_the_loss_masks() -> None:
    """Lengths 3 and 5, the second cut and masked: the mask takes it out of the batch and out of no length."""
    one = with_stops(group(0, [1, 0], [3, 5]), Stop.END, Stop.LENGTH)
    options = GrpoOptions(mask_truncated=True)
    batch = make_batch([one], step_advantages([one], options), options, max_completion_tokens=5)
    assert batch is not None
    assert [s.num_trained for s in batch.sequences] == [3]
    metrics = group_metrics([one])
    assert (metrics["mean_length"], metrics["min_length"], metrics["max_length"]) == (4, 3, 5)
    assert (metrics["mean_length_right"], metrics["mean_length_wrong"]) == (3, 5)
    assert metrics["truncated_frac"] == 0.5
    assert metrics["num_generated_tokens"] == 8
    assert shaping_metrics([one], options, None) == {"truncated_masked_frac": 0.5}


@pytest.mark.parametrize("lengths", [(3, 4), (3, 10)])
def test_truncated_is_how_a_completion_ended_and_not_how_long_it_is(lengths: tuple[int, int]) -> None:
    """A limit of 10: below it, and with its end token exactly there. The longest of a batch is no cut one."""
    metrics = group_metrics([with_stops(group(0, [1, 0], lengths), Stop.END, Stop.END)])
    assert metrics["truncated_frac"] == 0
    assert metrics["max_length"] == lengths[1]
    short = with_stops(group(0, [1, 0], (3, 4)), Stop.LENGTH, Stop.ABORTED)
    assert group_metrics([short])["truncated_frac"] == 0.5


def test_repeated_answers_count_inside_their_group_alone() -> None:
    groups = [
        with_texts(group(0, [1, 0, 0, 0], [2, 2, 2, 2]), "a", "b", "a", "a"),
        with_texts(group(1, [1, 0, 0, 0], [2, 2, 2, 2]), "a", "b", "c", "c"),
    ]
    assert group_metrics(groups)["repeated_frac"] == (3 + 2) / 8


def test_the_nll_of_the_sampler_is_a_mean_over_tokens() -> None:
    first = replace(said("a", 5, 1), sampler_logprobs=(-0.5, -1.0))
    second = replace(said("b", 6), sampler_logprobs=(-3.0,))
    assert group_metrics([of(0, first, second)])["sampler_nll"] == pytest.approx(4.5 / 3)
    nothing = of(0, Completion(text=""), Completion(text=""))
    assert math.isnan(group_metrics([nothing])["sampler_nll"])
    assert group_metrics([nothing])["mean_length"] == 0


def test_each_distinct_prompt_is_counted_once() -> None:
    one, other = group(0, [1, 0], [2, 2]), group(1, [1, 0], [2, 2])
    assert len(one.prompt.token_ids) == len(other.prompt.token_ids) == 4
    assert group_metrics([one, one, other])["num_prompt_tokens"] == 8
