"""Group relative policy optimisation (DeepSeekMath, arXiv:2402.03300) and its normalisation variants.

    scale      std: GRPO          none: Dr. GRPO (arXiv:2503.20783)         batch_std: std of the whole step
    normalize  sequence: GRPO     token: DAPO (arXiv:2503.14476)            constant: Dr. GRPO

One update is made on each batch of rollouts, so that the policy that sampled is the policy that learns: the old
log-probabilities are the current ones without their gradient, no second forward computes them, and the first ratio
is exactly 1. The KL to the reference is part of the loss, not of the reward; with beta = 0 there is no reference.

The weights are the same, and yet the distribution that sampled may not be: top_p and top_k leave tokens out, another
engine rounds otherwise. With importance_cap each token is weighted for that, in the policy loss and in the KL alike.

A group that is dead by outcome and whose rewards are all equal has no gradient when beta = 0: it is counted, and costs
neither forward nor backward. The denominators still count it, so that leaving it out changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import torch

from groupwise.curation import PromptLedger
from groupwise.errors import VerifierError
from groupwise.models.logprobs import ScoredSequence
from groupwise.objective import clipped_policy_loss, kl_estimate, truncated_importance_weight
from groupwise.rollout import Engine, Sampling, collect_groups
from groupwise.rollout.engine import Progress
from groupwise.training.algorithm import Algorithm, Collected
from groupwise.training.batch import Batch, derive_seed
from groupwise.training.group_rewards import LengthPenalty, advantages_of
from groupwise.training.numerics import min_kept_mass
from groupwise.training.step import LossFunction, LossRows
from groupwise.types import Group, Prompt, Rollout, Status, Stop, Task, Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoOptions:
    """The settings of config.GrpoSection that reach the math, under the same names."""

    scale: Literal["std", "none", "batch_std"] = "std"
    std: Literal["population", "sample"] = "population"
    normalize: Literal["sequence", "token", "constant"] = "sequence"
    clip_low: float = 0.2
    clip_high: float | None = None
    beta: float = 0.0
    kl: Literal["k1", "k2", "k3"] = "k3"
    eps: float = 1e-6
    importance_cap: float | None = None
    skip_dead_groups: bool = True
    max_unscored_frac: float = 0.1
    length_penalty: LengthPenalty | None = None
    part_weights: Mapping[str, float] | None = None
    """Weights of a composed verdict's parts that are compared one by one (GDPO); None compares the reward."""


def grpo(
    options: GrpoOptions,
    *,
    engine: Engine,
    verifier: Verifier,
    tasks: Sequence[Task],
    prompts: Sequence[Prompt],
    ledger: PromptLedger,
    prompts_per_step: int,
    group_size: int,
    sampling: Sampling,
    seed: int,
    progress: Callable[[int], Progress] | None = None,
) -> Algorithm:
    """The algorithm over these tasks; prompts[i] belongs to tasks[i]. progress(step) watches that step's sampling."""
    by_id = {task.id: (task, prompt) for task, prompt in zip(tasks, prompts, strict=True)}

    def collect(step: int) -> Collected | None:
        chosen = [by_id[i] for i in ledger.next_batch(prompts_per_step)]
        if not chosen:
            return None
        rollouts = collect_groups(
            engine,
            verifier,
            [task for task, _ in chosen],
            [prompt for _, prompt in chosen],
            group_size=group_size,
            sampling=sampling,
            seed=derive_seed(seed, "rollouts", step),
            progress=None if progress is None else progress(step),
        )
        groups = rollouts.groups
        refuse_unscored(groups, options.max_unscored_frac)
        for group in groups:
            ledger.record(group.task.id, solved=group.num_solved, scored=group.num_scored, step=step)
        advantages = step_advantages(groups, options)
        seconds = {"seconds_generate": rollouts.generate_s, "seconds_judge": rollouts.judge_s}
        aside = {f"set_aside_{reason}": float(count) for reason, count in ledger.set_aside().items()}
        return Collected(
            batch=make_batch(groups, advantages, options, max_completion_tokens=sampling.max_tokens),
            metrics={**group_metrics(groups), **seconds, **aside},
            groups=tuple(groups),
            advantages=advantages,
        )

    return Algorithm(
        collect=collect,
        loss=loss_function(options),
        normalize=options.normalize,
        temperature=sampling.temperature,
        min_kept_mass=min_kept_mass(sampling),
        needs_reference=options.beta > 0,
        state=ledger.state,
    )


def step_advantages(groups: Sequence[Group], options: GrpoOptions) -> tuple[tuple[float, ...], ...]:
    """The advantages of a step's groups under these options; see group_rewards.advantages_of."""
    return advantages_of(
        groups,
        scale=options.scale,
        std=options.std,
        eps=options.eps,
        length_penalty=options.length_penalty,
        part_weights=options.part_weights,
    )


def make_batch(
    groups: Sequence[Group],
    advantages: Sequence[Sequence[float]],
    options: GrpoOptions,
    *,
    max_completion_tokens: int,
) -> Batch | None:
    """The scored rollouts of the step, or None when none of them has a gradient.

    Rollouts of groups without any advantage are left out where beta = 0 (unless skip_dead_groups is off).
    """
    scored = [
        (group, rollout, advantage, any(row))
        for group, row in zip(groups, advantages, strict=True)
        for rollout, advantage in zip(group.rollouts, row, strict=True)
        if rollout.verdict.reward is not None
    ]
    denominator = {
        "sequence": len(scored),
        "token": sum(len(rollout.completion.token_ids) for _, rollout, _, _ in scored),
        "constant": len(scored) * max_completion_tokens,
    }[options.normalize]
    skip = options.skip_dead_groups and options.beta == 0
    kept = [(group, rollout, advantage) for group, rollout, advantage, alive in scored if alive or not skip]
    if not kept or (options.beta == 0 and not any(advantage for _, _, advantage in kept)):
        return None
    return Batch(
        sequences=tuple(
            ScoredSequence(
                token_ids=group.prompt.token_ids + rollout.completion.token_ids,
                prompt_length=len(group.prompt.token_ids),
            )
            for group, rollout, _ in kept
        ),
        advantages=torch.tensor([advantage for _, _, advantage in kept], dtype=torch.float32),
        sampler_logprobs=tuple(rollout.completion.sampler_logprobs for _, rollout, _ in kept),
        denominator=float(denominator),
    )


def loss_function(options: GrpoOptions) -> LossFunction:
    """The clipped policy loss plus beta times the KL to the reference, per token, weighted where that is asked for."""

    def loss(rows: LossRows) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        old_logprobs = rows.policy_logprobs.detach()
        per_token = clipped_policy_loss(
            rows.policy_logprobs,
            old_logprobs,
            rows.advantages,
            rows.mask,
            clip_low=options.clip_low,
            clip_high=options.clip_high,
        )
        reported = {}
        if rows.ref_logprobs is not None:
            kl_to_ref = kl_estimate(rows.policy_logprobs, rows.ref_logprobs, estimator=options.kl)
            kl_to_ref = torch.where(rows.mask, kl_to_ref, torch.zeros_like(kl_to_ref))
            per_token = per_token + options.beta * kl_to_ref
            reported["kl_to_ref"] = kl_to_ref
        if options.importance_cap is not None:
            assert rows.sampler_logprobs is not None, "rollouts carry the log-probabilities they were sampled with"
            weight = truncated_importance_weight(
                old_logprobs, rows.sampler_logprobs, rows.mask, cap=options.importance_cap
            )
            per_token = per_token * weight
            reported["importance_weight"] = weight
            reported["importance_capped_frac"] = (weight >= options.importance_cap).float()
        return per_token, reported

    return loss


def refuse_unscored(groups: Sequence[Group], max_unscored_frac: float) -> None:
    """Stops where the verifier fails too often to be believed.

    Raises:
        VerifierError: with the share, the limit and one reason.
    """
    verdicts = [r.verdict for group in groups for r in group.rollouts]
    unscored = [v for v in verdicts if v.status is Status.UNSCORED]
    if len(unscored) > max_unscored_frac * len(verdicts):
        raise VerifierError(
            f"the verifier could not judge {len(unscored)} of {len(verdicts)} completions; "
            f"max_unscored_frac allows {max_unscored_frac:.0%}.\n  First reason: {unscored[0].reason}\n"
            "  Mend the verifier, or raise max_unscored_frac to go on without those completions."
        )


def group_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Counts and means over the step's rollouts. Rates are over scored rollouts; NaN where nothing was scored."""
    rollouts = [r for group in groups for r in group.rollouts]
    scored = [r for r in rollouts if r.verdict.reward is not None]
    alive = [g for g in groups if not g.is_dead]
    return {
        "reward_mean": _mean([r.verdict.reward for r in scored if r.verdict.reward is not None]),
        "pass_rate": _mean([float(r.verdict.outcome is True) for r in scored]),
        "num_groups": len(groups),
        "live_groups": len(alive),
        "dead_groups_all_solved": sum(g.is_dead and g.num_solved > 0 for g in groups),
        "dead_groups_none_solved": sum(g.is_dead and g.num_solved == 0 and g.num_scored > 0 for g in groups),
        "unscored_groups": sum(g.num_scored == 0 for g in groups),
        "unscored_frac": 1 - len(scored) / len(rollouts),
        "invalid_frac": _mean([float(r.verdict.status is Status.INVALID) for r in rollouts]),
        "truncated_frac": _mean([float(r.completion.stop is Stop.LENGTH) for r in rollouts]),
        "mean_length_right": _mean_length([r for r in scored if r.verdict.outcome]),
        "mean_length_wrong": _mean_length([r for r in scored if not r.verdict.outcome]),
        "num_generated_tokens": sum(len(r.completion.token_ids) for r in rollouts),
    }


def _mean_length(rollouts: Sequence[Rollout]) -> float:
    return _mean([float(len(r.completion.token_ids)) for r in rollouts])


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else float("nan")
