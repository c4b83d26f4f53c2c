"""What the length of answers has to do with being right, from recorded or fresh completions.

Wrong answers are longer nearly everywhere, because hard prompts get longer answers. So right and wrong are compared on
the same prompts only: those that have both. Completions cut at the limit are no thought of that length and are counted
apart.

    matched_lengths       right and wrong answers on the same prompts, with denominators
    length_correlation    length with reward inside groups
    gradient_shares       how much of the gradient long wrong answers carry, under each normalization

`length_alarms` judges a series of these. Everything here is arithmetic on tuples: no file, no tensor.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from groupwise.runs.comparison.bootstrap import bootstrap_mean
from groupwise.runs.intervals import Interval
from groupwise.runs.record import RecordedRollout
from groupwise.types import Group, Stop

NORMALIZATIONS = ("sequence", "token", "constant")
"""See groupwise.objective.aggregate, whose names these are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSample:
    """One completion.

    Example:
        LengthSample(task_id="q17", outcome=False, reward=0.0, num_tokens=44, is_cut=False)
    """

    task_id: str
    outcome: bool | None
    """None = unscored."""
    reward: float | None
    num_tokens: int
    is_cut: bool
    """It ended at the token limit, by its stop reason: a completion that ends with its last allowed token is whole."""
    advantage: float = 0.0
    group: Hashable = None
    """Two groups of one prompt in a step have different ones; None = the task id tells groups apart."""

    @property
    def group_key(self) -> Hashable:
        """What tells its group from the others."""
        return self.task_id if self.group is None else self.group


def samples_of_groups(groups: Iterable[Group]) -> list[LengthSample]:
    """The completions of these groups, without advantages."""
    return [
        LengthSample(
            task_id=group.task.id,
            outcome=rollout.verdict.outcome,
            reward=rollout.verdict.reward,
            num_tokens=len(rollout.completion.token_ids),
            is_cut=rollout.completion.stop is Stop.LENGTH,
            group=number,
        )
        for number, group in enumerate(groups)
        for rollout in group.rollouts
    ]


def samples_of_rollouts(rows: Iterable[RecordedRollout]) -> list[LengthSample]:
    """Recorded rollouts of one step or of one evaluation. Those that have no place in the loss get the advantage 0."""
    return [
        LengthSample(
            task_id=row.task_id,
            outcome=row.outcome,
            reward=row.reward,
            num_tokens=row.num_tokens,
            is_cut=row.stop == Stop.LENGTH.value,
            advantage=0.0 if row.left_out else row.advantage,
            group=row.group,
        )
        for row in rows
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedLengths:
    """Lengths of right and of wrong answers to the same prompts.

    Example:
        MatchedLengths(num_matched_prompts=31, right_tokens=20.1, wrong_tokens=26.4, interval=Interval(2.0, 10.7),
                       num_right=151, num_wrong=137, num_cut_right=0, num_cut_wrong=9, num_unscored=0,
                       num_completions=288, mean_tokens=24.9)
    """

    num_matched_prompts: int
    """Prompts with a right and a wrong answer, cut ones not counted: behind the three numbers below."""
    right_tokens: float | None
    """Mean over these prompts of the mean length of the prompt's right answers; None without such a prompt."""
    wrong_tokens: float | None
    interval: Interval | None
    """95 % of the difference, bootstrap over prompts; None with fewer than two."""
    num_right: int
    """Of all completions, cut ones included: the denominator of truncated_right_frac."""
    num_wrong: int
    num_cut_right: int
    num_cut_wrong: int
    num_unscored: int
    num_completions: int
    """num_right + num_wrong + num_unscored."""
    mean_tokens: float | None
    """Over all completions, masked, cut and unscored ones included; None where there is none."""

    @property
    def difference(self) -> float | None:
        """Wrong minus right, in tokens: above 0, wrong answers are longer where the prompt is the same."""
        if self.right_tokens is None or self.wrong_tokens is None:
            return None
        return self.wrong_tokens - self.right_tokens

    @property
    def truncated_right_frac(self) -> float | None:
        """Share of the right answers that was cut."""
        return self.num_cut_right / self.num_right if self.num_right else None

    @property
    def truncated_wrong_frac(self) -> float | None:
        """Share of the wrong answers that was cut."""
        return self.num_cut_wrong / self.num_wrong if self.num_wrong else None


def matched_lengths(samples: Sequence[LengthSample], *, confidence: float = 0.95, seed: int = 0) -> MatchedLengths:
    """Right and wrong answers on the same prompts.

        d_p = mean length of the wrong answers of p - mean length of its right answers,  p with both, none of them cut
        difference = mean of d_p: every such prompt has the same weight

    Without a sample every number is 0 or None. Two prompts or more give an interval.
    """
    by_prompt: dict[str, tuple[list[int], list[int]]] = {}
    for sample in samples:
        if sample.outcome is not None and not sample.is_cut:
            by_prompt.setdefault(sample.task_id, ([], []))[sample.outcome].append(sample.num_tokens)
    both = [(fmean(wrong), fmean(right)) for wrong, right in by_prompt.values() if wrong and right]
    longest = float(max([1, *(sample.num_tokens for sample in samples)]))
    differences = [wrong - right for wrong, right in both]
    right = [s for s in samples if s.outcome is True]
    wrong = [s for s in samples if s.outcome is False]
    return MatchedLengths(
        num_matched_prompts=len(both),
        right_tokens=fmean(r for _, r in both) if both else None,
        wrong_tokens=fmean(w for w, _ in both) if both else None,
        interval=bootstrap_mean(differences, bound=longest, confidence=confidence, seed=seed)
        if len(both) > 1
        else None,
        num_right=len(right),
        num_wrong=len(wrong),
        num_cut_right=sum(s.is_cut for s in right),
        num_cut_wrong=sum(s.is_cut for s in wrong),
        num_unscored=len(samples) - len(right) - len(wrong),
        num_completions=len(samples),
        mean_tokens=fmean(s.num_tokens for s in samples) if samples else None,
    )


def length_correlation(samples: Sequence[LengthSample]) -> float | None:
    """Pearson's correlation of length with reward inside groups, over the scored completions.

        r = sum dl dr / sqrt(sum dl^2 sum dr^2),   dl, dr = length and reward minus their means in the group

    Centred by group, a hard prompt with long answers adds nothing. None where no group has both spreads.
    """
    groups: dict[Hashable, list[tuple[float, float]]] = {}
    for s in samples:
        if s.reward is not None:
            groups.setdefault(s.group_key, []).append((float(s.num_tokens), s.reward))
    covariance = lengths = rewards = 0.0
    for pairs in groups.values():
        mean_length, mean_reward = fmean(n for n, _ in pairs), fmean(r for _, r in pairs)
        covariance += math.fsum((n - mean_length) * (r - mean_reward) for n, r in pairs)
        lengths += math.fsum((n - mean_length) ** 2 for n, _ in pairs)
        rewards += math.fsum((r - mean_reward) ** 2 for _, r in pairs)
    if lengths <= 0 or rewards <= 1e-18:  # rounding of equal rewards such as 0.1
        return None
    return covariance / math.sqrt(lengths * rewards)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientShare:
    """Where the pushes of one step come from, under one normalization. The shares leave out each other.

    Example:
        GradientShare(normalize="token", long_wrong=0.41, no_right_answer=0.0, num_long_wrong=9, num_completions=64)
    """

    normalize: str
    long_wrong: float | None
    """Share of all pushes on wrong answers longer than the longest right answer of their group; None where nothing was
    pushed."""
    no_right_answer: float | None
    """Share on groups without a right answer, where nothing says what is long: a shaped reward trains on such."""
    num_long_wrong: int
    """Long wrong answers with an advantage."""
    num_completions: int
    """Completions with an advantage: the others push nothing."""


def push(advantage: float, num_tokens: int, normalize: str, denominator: float) -> float:
    """The size of what the loss does to the log-probabilities of one completion's tokens, summed over them.

        normalize    push of the completion       of each of its tokens        denominator of the step
        -----------  ---------------------------  ---------------------------  -----------------------------
        sequence     |A| / denominator            |A| / (denominator L)        completions
        token        |A| L / denominator          |A| / denominator            tokens of all completions
        constant     |A| L / denominator          |A| / denominator            completions x the length limit

    It is |d loss / d log-probability| at a ratio of 1, summed over the L tokens; an upper bound of the gradient on the
    weights where tokens were alike. `training.length_bias` finds the same numbers by autograd.

    Source: GRPO's 1 / |o_i| and its removal: Dr. GRPO, arXiv:2503.20783, section 3.

    Raises:
        ValueError: for an unknown normalization.
    """
    if normalize not in NORMALIZATIONS:
        raise ValueError(f"push: normalize = {normalize!r} is not known; expected one of {', '.join(NORMALIZATIONS)}")
    return abs(advantage) * (1 if normalize == "sequence" else num_tokens) / denominator


def gradient_shares(samples: Sequence[LengthSample]) -> tuple[GradientShare, ...]:
    """For each normalization, how much of one step's pushes long wrong answers carry.

    Long = more tokens than the longest right answer of its group: what being right needed on this very prompt. The
    completions are those of one step, so its denominator drops out of a share. A completion whose outcome is unknown
    pushes nothing. Token and constant give the same shares; both are listed, as their sizes differ between steps.
    """
    longest_right: dict[Hashable, int] = {}
    for s in samples:
        if s.outcome:
            longest_right[s.group_key] = max(s.num_tokens, longest_right.get(s.group_key, 0))
    pushed = [s for s in samples if s.advantage != 0 and s.outcome is not None]
    without = [s for s in pushed if s.group_key not in longest_right]
    long_wrong = [s for s in pushed if not s.outcome and s.num_tokens > longest_right.get(s.group_key, math.inf)]

    def share(part: Sequence[LengthSample], normalize: str) -> float | None:
        total = math.fsum(push(s.advantage, s.num_tokens, normalize, 1.0) for s in pushed)
        return math.fsum(push(s.advantage, s.num_tokens, normalize, 1.0) for s in part) / total if total else None

    return tuple(
        GradientShare(
            normalize=normalize,
            long_wrong=share(long_wrong, normalize),
            no_right_answer=share(without, normalize),
            num_long_wrong=len(long_wrong),
            num_completions=len(pushed),
        )
        for normalize in NORMALIZATIONS
    )


def prompt_lengths(samples: Sequence[LengthSample], *, only_right: bool = False) -> Mapping[str, float]:
    """Mean tokens by prompt, of all answers or of the right ones; prompts without such an answer are left out."""
    found: dict[str, list[int]] = {}
    for s in samples:
        if s.outcome or not only_right:
            found.setdefault(s.task_id, []).append(s.num_tokens)
    return {task: fmean(lengths) for task, lengths in found.items()}
