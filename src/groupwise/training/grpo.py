"""Group relative policy optimisation (DeepSeekMath, arXiv:2402.03300) and its family: docs/algorithms.md names them.

    rollouts --verdicts--> rewards --grpo_batch.py--> advantages --grpo_loss.py--> loss, one update or several

With one update a batch of rollouts, the policy that sampled is the policy that learns: the old log-probabilities are
the current ones without their gradient, no second forward computes them, and the only ratio is exactly 1. With several
they are computed before the first. The KL to the reference is part of the loss, or of the reward; with beta = 0 there
is no reference.

The weights are the same, and yet the distribution that sampled may not be: top_p and top_k leave tokens out, another
engine rounds otherwise. With importance_cap each token is weighted for that, in the policy loss and in the KL alike.

A row without an advantage, in a group where no row has one, has no gradient unless the loss holds a KL or an entropy:
it is counted, and costs neither forward nor backward. The denominators still count it, so that leaving it out changes
nothing; unless another group took its place, see dynamic_sampling.py. The same holds for completions that were cut and
are masked. Prompts may get different numbers of rollouts, see group_weights.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from groupwise.curation import PromptLedger, allocate
from groupwise.errors import VerifierError
from groupwise.rollout import Engine, Sampling, collect_groups
from groupwise.rollout.collect import CollectedGroups
from groupwise.rollout.engine import Progress
from groupwise.training.algorithm import Algorithm, Collected
from groupwise.training.batch import derive_seed
from groupwise.training.dynamic_sampling import SampledGroups, sample_live
from groupwise.training.group_rewards import RolloutKl, overlong_costs
from groupwise.training.grpo_batch import (
    Advantage,
    ReferenceLogprobs,
    make_batch,
    reasons_left_out,
    rollout_kl,
    step_advantages,
)
from groupwise.training.grpo_loss import loss_function
from groupwise.training.grpo_options import GrpoOptions
from groupwise.training.no_signal import SET_ASIDE
from groupwise.training.numerics import min_kept_mass
from groupwise.training.step_rewards import Decode
from groupwise.types import Group, Prompt, Rollout, Status, Stop, Task, Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSampling:
    """How many rollouts a step draws, and for which prompts.

    Example:
        StepSampling(prompts_per_step=8, group_size=8, extra_rounds=2, size_bounds=(4, 16))
    """

    prompts_per_step: int
    group_size: int
    """Rollouts of each prompt, on average where they are allocated."""
    extra_rounds: int = 0
    """Rounds in which dead groups are replaced, see dynamic_sampling.py; 0 = none."""
    size_bounds: tuple[int, int] | None = None
    """Fewest and most rollouts of a prompt; each gets what its past pass rate is worth (curation.allocate). None = each
    gets group_size."""


def grpo(
    options: GrpoOptions,
    *,
    engine: Engine,
    verifier: Verifier,
    tasks: Sequence[Task],
    prompts: Sequence[Prompt],
    ledger: PromptLedger,
    step_sampling: StepSampling,
    sampling: Sampling,
    seed: int,
    reference_logprobs: ReferenceLogprobs | None = None,
    decode: Decode | None = None,
    progress: Callable[[int], Progress] | None = None,
) -> Algorithm:
    """The algorithm over these tasks; prompts[i] belongs to tasks[i]. progress(number) watches a collection's sampling.

    reference_logprobs is needed where the KL is part of the reward, decode where steps of a completion have rewards.
    Every group that was sampled goes to the ledger, into the metrics and on record, whether or not it trains.
    """
    assert options.kl_in_reward == (reference_logprobs is not None), "a KL in the reward has a reference, no other does"
    by_id = {task.id: (task, prompt) for task, prompt in zip(tasks, prompts, strict=True)}

    def draw(number: int, round_number: int, num_prompts: int, sampled: Sequence[Group]) -> CollectedGroups:
        chosen = ledger.next_batch(num_prompts, step=number, without={g.task.id for g in sampled})
        if not chosen:
            return CollectedGroups([], 0.0, 0.0)
        drawn = collect_groups(
            engine,
            verifier,
            [by_id[task_id][0] for task_id in chosen],
            [by_id[task_id][1] for task_id in chosen],
            group_size=sizes_of(chosen, ledger, step_sampling),
            sampling=sampling,
            seed=derive_seed(seed, "rollouts", number, *([round_number] if round_number else [])),
            progress=None if progress is None else progress(number),
        )
        refuse_unscored([*sampled, *drawn.groups], options.max_unscored_frac)
        for group in drawn.groups:
            ledger.record(group.task.id, solved=group.num_solved, scored=group.num_scored, step=number)
        return drawn

    def collect(number: int) -> Collected | None:
        sampled = sample_live(
            lambda *arguments: draw(number, *arguments),
            num_wanted=step_sampling.prompts_per_step,
            extra_rounds=step_sampling.extra_rounds,
        )
        if not sampled.groups:
            return None
        kept = [g for g, is_kept in zip(sampled.groups, sampled.is_kept, strict=True) if is_kept]
        kl, score = _scored_kl(kept, options, reference_logprobs)
        trained = step_advantages(kept, options, kl=kl, decode=decode)
        left_out = _all_reasons(sampled, reasons_left_out(kept, trained, options))
        batch = make_batch(kept, trained, options, max_completion_tokens=sampling.max_tokens)
        return Collected(
            batch=batch,
            metrics={
                **group_metrics(sampled.groups),
                **sampling_metrics(sampled, step_sampling),
                **shaping_metrics(kept, options, kl),
                **score,
                **{f"{SET_ASIDE}{reason}": float(count) for reason, count in ledger.set_aside().items()},
                "num_trained_rollouts": 0 if batch is None else num_trained(left_out),
            },
            groups=sampled.groups,
            advantages=_all_advantages(sampled, trained),
            left_out=left_out,
        )

    return Algorithm(
        collect=collect,
        loss=loss_function(options),
        temperature=sampling.temperature,
        min_kept_mass=min_kept_mass(sampling),
        needs_reference=options.has_kl_loss,
        needs_entropy=options.entropy_coef > 0 or options.report_entropy,
        updates=options.updates,
        state=ledger.state,
    )


def _scored_kl(
    groups: Sequence[Group], options: GrpoOptions, reference_logprobs: ReferenceLogprobs | None
) -> tuple[RolloutKl | None, dict[str, float]]:
    """The KL of every token where it is part of the reward, and the seconds it took."""
    if reference_logprobs is None:
        return None, {}
    started = time.monotonic()
    kl = rollout_kl(groups, reference_logprobs, estimator=options.kl)
    return kl, {"seconds_score": time.monotonic() - started}


def sizes_of(task_ids: Sequence[str], ledger: PromptLedger, step_sampling: StepSampling) -> int | tuple[int, ...]:
    """The group size of each of these prompts, group_size on average.

    Read from what the ledger knows before they are sampled: a size that depended on the rollouts themselves would
    bias their mean.
    """
    if step_sampling.size_bounds is None:
        return step_sampling.group_size
    minimum, maximum = step_sampling.size_bounds
    posteriors = [ledger.posterior(task_id) for task_id in task_ids]
    return allocate(posteriors, len(task_ids) * step_sampling.group_size, minimum=minimum, maximum=maximum)


def _all_advantages(sampled: SampledGroups, kept: Sequence[tuple[Advantage, ...]]) -> tuple[tuple[float, ...], ...]:
    """The advantages of every sampled group, zeros for those that were replaced; that of the first token where each
    token has its own."""
    trained = iter(tuple(a if isinstance(a, float) else a[0] if a else 0.0 for a in row) for row in kept)
    return tuple(
        next(trained) if is_kept else (0.0,) * len(group.rollouts)
        for group, is_kept in zip(sampled.groups, sampled.is_kept, strict=True)
    )


def _all_reasons(sampled: SampledGroups, kept: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Why each rollout of every sampled group is left out; "replaced" for all of a group that was."""
    reasons = iter(kept)
    return tuple(
        next(reasons) if is_kept else ("replaced",) * len(group.rollouts)
        for group, is_kept in zip(sampled.groups, sampled.is_kept, strict=True)
    )


def num_trained(left_out: Sequence[Sequence[str]]) -> int:
    """Rollouts that have a place in the loss."""
    return sum(not reason for reasons in left_out for reason in reasons)


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
    """Counts and means over everything that was sampled, dead groups that were replaced included: a filter would bias
    the rates. NaN where nothing was scored.

    reward_mean and pass_rate are means over prompts of the mean over their scored rollouts, so that a prompt with more
    rollouts does not count for more. Lengths and the other rates are over rollouts, whether or not they train: a length
    counts every token that was sampled, and truncated says how a completion ended, not how long it is.

    repeated_frac: rollouts whose text another one of their group has, too. sampler_nll: mean over the sampled tokens
    of their negative log-probability, which estimates the entropy of the distribution sampled from, in nats a token.
    num_prompt_tokens: of the prompts, each distinct one once.
    """
    rollouts = [r for group in groups for r in group.rollouts]
    lengths = [len(r.completion.token_ids) for r in rollouts]
    scored = [r for r in rollouts if r.verdict.reward is not None]
    judged = [[r.verdict for r in g.rollouts if r.verdict.reward is not None] for g in groups if g.num_scored]
    alive = [g for g in groups if not g.is_dead]
    return {
        "reward_mean": _mean([fmean(v.reward or 0.0 for v in verdicts) for verdicts in judged]),
        "pass_rate": _mean([fmean(v.outcome is True for v in verdicts) for verdicts in judged]),
        "num_groups": len(groups),
        "num_rollouts": len(rollouts),
        "live_groups": len(alive),
        "dead_groups_all_solved": sum(g.is_dead and g.num_solved > 0 for g in groups),
        "dead_groups_none_solved": sum(g.is_dead and g.num_solved == 0 and g.num_scored > 0 for g in groups),
        "unscored_groups": sum(g.num_scored == 0 for g in groups),
        "unscored_frac": 1 - len(scored) / len(rollouts),
        "invalid_frac": _mean([float(r.verdict.status is Status.INVALID) for r in rollouts]),
        "truncated_frac": _mean([float(r.completion.stop is Stop.LENGTH) for r in rollouts]),
        "repeated_frac": sum(map(_num_repeated, groups)) / len(rollouts),
        "sampler_nll": -_mean([x for r in rollouts for x in r.completion.sampler_logprobs]),
        "mean_length": fmean(lengths),
        "min_length": min(lengths),
        "max_length": max(lengths),
        "mean_length_right": _mean_length([r for r in scored if r.verdict.outcome]),
        "mean_length_wrong": _mean_length([r for r in scored if not r.verdict.outcome]),
        "num_prompt_tokens": sum(map(len, {g.prompt.token_ids for g in groups})),
        "num_generated_tokens": sum(lengths),
    }


def _num_repeated(group: Group) -> int:
    counts = Counter(r.completion.text for r in group.rollouts)
    return sum(count for count in counts.values() if count > 1)


def shaping_metrics(groups: Sequence[Group], options: GrpoOptions, kl: RolloutKl | None) -> dict[str, float]:
    """What these options changed of the rewards and rows, over the scored rollouts that train.

    truncated_masked_frac: the share that was cut and is out of the loss. overlong_penalty: mean of what was lost near
    the limit. kl_in_reward: mean over rollouts of the KL to the reference of a completion, in nats, before beta.
    """
    rollouts = [r for group in groups for r in group.rollouts]
    scored = [r.verdict.reward is not None for r in rollouts]
    metrics = {}
    if options.mask_truncated:
        cut = [r.completion.stop is Stop.LENGTH for r in rollouts]
        metrics["truncated_masked_frac"] = _mean([float(c) for c, s in zip(cut, scored, strict=True) if s])
    if options.overlong_penalty is not None:
        costs = overlong_costs(groups, options.overlong_penalty).tolist()
        metrics["overlong_penalty"] = _mean([-c for c, s in zip(costs, scored, strict=True) if s])
    if kl is not None:
        sums = [sum(row) for group in kl for row in group]
        metrics["kl_in_reward"] = _mean([x for x, s in zip(sums, scored, strict=True) if s])
    return metrics


def sampling_metrics(sampled: SampledGroups, step_sampling: StepSampling) -> dict[str, float]:
    """Seconds, and what dynamic sampling and allocation did.

    num_rounds counts draws, num_kept_groups the groups that the denominators count, cap_reached is 1 where the rounds
    were used up before enough live groups were there. smallest_group and largest_group are the sizes that were
    allocated.
    """
    metrics = {"seconds_generate": sampled.generate_s, "seconds_judge": sampled.judge_s}
    if step_sampling.extra_rounds:
        metrics |= {
            "num_rounds": sampled.num_rounds,
            "num_kept_groups": sum(sampled.is_kept),
            "cap_reached": float(sampled.cap_reached),
        }
    if step_sampling.size_bounds is not None:
        sizes = [len(g.rollouts) for g in sampled.groups]
        metrics |= {"smallest_group": min(sizes), "largest_group": max(sizes)}
    return metrics


def _mean_length(rollouts: Sequence[Rollout]) -> float:
    return _mean([float(len(r.completion.token_ids)) for r in rollouts])


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else float("nan")
