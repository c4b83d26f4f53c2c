"""Proximal policy optimisation with a value network (arXiv:1707.06347), as used on language models (arXiv:2203.02155).

    rollouts --verdicts, KL to the reference--> rewards by token --gae, with the critic's values--> advantages, returns
    epochs x minibatches times: clipped policy loss on the advantages, clipped value loss on the returns

Differs from GRPO (grpo.py): the baseline is learned, so that one completion a prompt is enough, and prompts that are
always or never solved still teach the critic; the KL is part of the reward, not of the loss; a step makes several
updates. Rollouts that could not be judged are left out and counted; they are no reward of 0.

Read ppo_batch.py next, then ppo_networks.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from groupwise.curation import PromptLedger
from groupwise.models.logprobs import loss_mask
from groupwise.objective import (
    adapted_kl_coef,
    aggregate,
    clip_shares,
    clipped_policy_loss,
    clipped_value_loss,
    kl_estimate,
    masked_mean,
)
from groupwise.rollout import Engine, Sampling, collect_groups
from groupwise.rollout.engine import Progress
from groupwise.training.algorithm import Algorithm, Collected, Companion, Updates
from groupwise.training.batch import Batch, derive_seed
from groupwise.training.grpo import group_metrics, num_trained, refuse_unscored
from groupwise.training.ppo_batch import OLD_VALUES, RETURNS, RewardOptions, ppo_batch
from groupwise.training.ppo_networks import CRITIC, Networks, OwnCritic, SharedCritic, score_rollouts
from groupwise.training.step import LossFunction, LossRows
from groupwise.types import Group, Prompt, Task, Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoOptions:
    """The settings of config.algorithm_ppo.PpoSection.

    Example:
        PpoOptions(prompts_per_step=512, updates=Updates(epochs=1, minibatches=8))     # InstructGPT
    """

    prompts_per_step: int
    completions_per_prompt: int = 1
    updates: Updates = field(default_factory=lambda: Updates(epochs=4, minibatches=1))
    clip: float = 0.2
    value_clip: float | None = 0.2
    """None = the value may move any distance."""
    value_coef: float = 0.1
    """Weight of the value loss where the critic is a head on the policy."""
    reward: RewardOptions = field(default_factory=RewardOptions)
    kl_coef: float = 0.02
    """At the start; it stays where kl_target is None."""
    kl_target: float | None = None
    """Nats a completion."""
    kl_horizon: float = 10_000
    max_unscored_frac: float = 0.1


@dataclass(slots=True)
class _KlCoef:
    """That of the next step."""

    value: float

    def follow(self, observed_kl: float, options: PpoOptions, *, num_samples: int) -> None:
        """Moves toward options.kl_target after a step of so many completions with this mean of their summed KL."""
        assert options.kl_target is not None, "only an adaptive coefficient moves"
        horizon = options.kl_horizon
        self.value = adapted_kl_coef(
            self.value, observed_kl, target=options.kl_target, horizon=horizon, num_samples=num_samples
        )


def ppo(
    options: PpoOptions,
    *,
    networks: Networks,
    engine: Engine,
    verifier: Verifier,
    tasks: Sequence[Task],
    prompts: Sequence[Prompt],
    ledger: PromptLedger,
    sampling: Sampling,
    seed: int,
    kl_coef: float | None = None,
    progress: Callable[[int], Progress] | None = None,
) -> Algorithm:
    """The algorithm over these tasks; prompts[i] belongs to tasks[i]. progress(number) watches a collection's sampling.

    Sampling is from the whole vocabulary: a ratio cannot mend what top_p and top_k leave out. kl_coef is that of a
    checkpoint's state; None = options.kl_coef, a new stage.
    """
    assert (sampling.top_p, sampling.top_k) == (1, 0), "config/recipe.py refuses others"
    by_id = {task.id: (task, prompt) for task, prompt in zip(tasks, prompts, strict=True)}
    coef = _KlCoef(options.kl_coef if kl_coef is None else kl_coef)

    def sample(number: int, chosen: Sequence[str]) -> tuple[tuple[Group, ...], dict[str, float]]:
        drawn = collect_groups(
            engine,
            verifier,
            [by_id[task_id][0] for task_id in chosen],
            [by_id[task_id][1] for task_id in chosen],
            group_size=options.completions_per_prompt,
            sampling=sampling,
            seed=derive_seed(seed, "rollouts", number),
            progress=None if progress is None else progress(number),
        )
        refuse_unscored(drawn.groups, options.max_unscored_frac)
        for group in drawn.groups:
            ledger.record(group.task.id, solved=group.num_solved, scored=group.num_scored, step=number)
        seconds = {"seconds_generate": drawn.generate_s, "seconds_judge": drawn.judge_s}
        return tuple(drawn.groups), {**group_metrics(drawn.groups), **seconds}

    def collect(number: int) -> Collected | None:
        chosen = ledger.next_batch(options.prompts_per_step, step=number)
        if not chosen:
            return None
        groups, metrics = sample(number, chosen)
        left_out = tuple(tuple("unscored" if r.verdict.reward is None else "" for r in g.rollouts) for g in groups)
        metrics["num_trained_rollouts"] = num_trained(left_out)
        rollouts = [(g, r) for g in groups for r in g.rollouts if r.verdict.reward is not None]
        if not rollouts:
            nothing = _by_rollout(groups, iter(()))
            return Collected(batch=None, metrics=metrics, groups=groups, advantages=nothing, left_out=left_out)
        started = time.monotonic()
        scored, entropy = score_rollouts(rollouts, networks, temperature=sampling.temperature)
        batch, found = ppo_batch(scored, options.reward, kl_coef=coef.value)
        if options.kl_target is not None:
            coef.follow(found["kl_to_ref_sum"], options, num_samples=len(rollouts))
        assert batch.advantages is not None, "rollouts have advantages"
        means = masked_mean(batch.advantages, loss_mask(batch.sequences), dim=1).tolist()
        return Collected(
            batch=batch,
            metrics={**metrics, **found, "entropy": entropy, "seconds_score": time.monotonic() - started},
            groups=groups,
            advantages=_by_rollout(groups, iter(means)),
            left_out=left_out,
        )

    critic = networks.critic
    return Algorithm(
        collect=collect,
        loss=policy_loss(options, with_values=isinstance(critic, SharedCritic)),
        temperature=sampling.temperature,
        updates=options.updates,
        scores=networks.scores,
        heads=(critic.head,) if isinstance(critic, SharedCritic) else (),
        companions=(companion(critic, options),) if isinstance(critic, OwnCritic) else (),
        frozen={} if networks.reference is None else {"reference": networks.reference},
        state=lambda: {**ledger.state(), "kl_coef": coef.value},
        save=critic.save,
    )


def _by_rollout(groups: Sequence[Group], means: Iterator[float]) -> tuple[tuple[float, ...], ...]:
    """For the record: the mean advantage of each rollout's tokens, 0 where it could not be judged."""
    return tuple(tuple(0.0 if r.verdict.reward is None else next(means) for r in g.rollouts) for g in groups)


def companion(critic: OwnCritic, options: PpoOptions) -> Companion:
    """The critic as the loop trains it: the same rows, and of the policy's batch what the value loss reads."""

    def batch_of(batch: Batch) -> Batch:
        return Batch(sequences=batch.sequences, denominator=batch.denominator, extra=batch.extra)

    def loss(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        return value_loss(rows, clip=options.value_clip)

    return Companion(
        name=CRITIC, model=critic.model, optim=critic.optim, batch_of=batch_of, scores=critic.scores, loss=loss
    )


def policy_loss(options: PpoOptions, *, with_values: bool) -> LossFunction:
    """The clipped policy loss as a mean over the trained tokens; with_values adds value_coef times the value loss.

    clipped_low, clipped_high    shares of the tokens whose gradient the clip took
    kl_to_old                    of the weights that sampled to those being trained, k3, in nats a token
    """

    def loss(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        assert rows.advantages is not None, "ppo_batch gives them"
        assert rows.old_logprobs is not None, "ppo_batch gives them"
        given = (rows.policy_logprobs, rows.old_logprobs, rows.advantages, rows.mask)
        per_token = clipped_policy_loss(*given, clip_low=options.clip)
        total = aggregate(per_token, rows.mask, normalize="token", denominator=rows.denominator)
        shares = clip_shares(*given, clip_low=options.clip)
        reported = {
            "kl_to_old": kl_estimate(rows.old_logprobs, rows.policy_logprobs.detach(), estimator="k3"),
            # the same number in each cell, so that micro-batches count by their tokens
            "clipped_low": shares.low.expand_as(per_token),
            "clipped_high": shares.high.expand_as(per_token),
        }
        if with_values:
            values, found = value_loss(rows, clip=options.value_clip)
            total = total + options.value_coef * values
            reported |= {f"{CRITIC}_{name}": cells for name, cells in found.items()}
        return total, reported

    return loss


def value_loss(rows: LossRows, *, clip: float | None) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped value loss as a mean over the trained tokens.

    value_loss    the same, also where it is one part of a loss
    clipped       share of the tokens whose value moved further than clip from that of the rollout
    """
    assert rows.values is not None, "a critic gives values"
    old = rows.extra[OLD_VALUES]
    per_token = clipped_value_loss(rows.values, old, rows.extra[RETURNS], rows.mask, clip=clip)
    reported = {"value_loss": per_token.detach()}
    if clip is not None:
        reported["clipped"] = ((rows.values.detach() - old).abs() > clip).float()
    return aggregate(per_token, rows.mask, normalize="token", denominator=rows.denominator), reported
