"""Numbers of the policy as it learns: entropy, ratios and clips, its distance from the reference and from its sampler.

Where a step makes several updates these are averaged over them; ratio_mean, ratio_p99 and ratio_max are of the whole
step.
"""

from __future__ import annotations

from groupwise.runs.metrics.metric import GRPO, PPO, ROLLOUTS, Metric

TRAINED = "trained tokens"
RATIOS = "trained tokens of all updates of the step"
SEVERAL = "with several updates a step"

POLICY_METRICS = (
    Metric(
        name="sampler_nll",
        group="policy",
        unit="nats",
        reduction="mean",
        denominator="sampled tokens",
        meaning="negative log-probability that the engine sampled a token with: an unbiased estimate of the entropy a "
        "token of the distribution sampled from, its temperature and top_p included. Near 0: sampling is nearly greedy",
        algorithms=ROLLOUTS,
    ),
    Metric(
        name="entropy",
        group="policy",
        unit="nats",
        reduction="mean",
        denominator="trained tokens; under PPO those of all scored rollouts, before the first update",
        meaning="entropy of the distribution behind a token, computed from its logits. Falls slowly; near 0 nothing "
        "new is tried",
        algorithms=ROLLOUTS,
        when="loss.report_entropy, on by default",
    ),
    Metric(
        name="ratio_mean",
        group="policy",
        unit="",
        reduction="mean",
        denominator=RATIOS,
        meaning="importance ratio p(being trained) / p(sampled) by token; exactly 1 with one update",
        algorithms=ROLLOUTS,
    ),
    Metric(
        name="ratio_p99",
        group="policy",
        unit="",
        reduction="p99",
        denominator=RATIOS,
        meaning="99th percentile of the importance ratio, by nearest rank",
        algorithms=ROLLOUTS,
    ),
    Metric(
        name="ratio_max",
        group="policy",
        unit="",
        reduction="maximum",
        denominator=RATIOS,
        meaning="largest importance ratio",
        algorithms=ROLLOUTS,
    ),
    Metric(
        name="ratio",
        group="policy",
        unit="",
        reduction="mean",
        denominator=TRAINED,
        meaning="importance ratio that the loss uses: of a token, under GSPO of a sequence",
        algorithms=GRPO,
        when=SEVERAL,
    ),
    Metric(
        name="ratio_tail_frac",
        group="policy",
        unit="0..1",
        reduction="share",
        denominator=TRAINED,
        meaning="that ratio is above 2 or below 1/2",
        algorithms=GRPO,
        when=SEVERAL,
    ),
    Metric(
        name="clipped_low",
        group="policy",
        unit="0..1",
        reduction="share",
        denominator=TRAINED,
        meaning="advantage below 0 and ratio below 1 - clip_low: the clip took the gradient",
        algorithms=ROLLOUTS,
        when=SEVERAL,
    ),
    Metric(
        name="clipped_high",
        group="policy",
        unit="0..1",
        reduction="share",
        denominator=TRAINED,
        meaning="advantage above 0 and ratio above 1 + clip_high: the clip took the gradient (CISPO: cut the weight)",
        algorithms=ROLLOUTS,
        when=SEVERAL,
    ),
    Metric(
        name="clipped_dual",
        group="policy",
        unit="0..1",
        reduction="share",
        denominator=TRAINED,
        meaning="advantage below 0 and ratio above loss.dual_clip",
        algorithms=GRPO,
        when="loss.dual_clip, with several updates a step",
    ),
    Metric(
        name="importance_weight",
        group="policy",
        unit="",
        reduction="mean",
        denominator=TRAINED,
        meaning="weight for the distribution that sampled the token, after the cap",
        algorithms=GRPO,
        when="importance_cap",
    ),
    Metric(
        name="importance_capped_frac",
        group="policy",
        unit="0..1",
        reduction="share",
        denominator=TRAINED,
        meaning="that weight was cut to the cap",
        algorithms=GRPO,
        when="importance_cap without loss.importance_floor",
    ),
    Metric(
        name="importance_masked_frac",
        group="policy",
        unit="0..1",
        reduction="share",
        denominator=TRAINED,
        meaning="that weight was outside floor and cap, and became 0",
        algorithms=GRPO,
        when="loss.importance_floor",
    ),
)
"""In the order in which they are shown."""

KL_METRICS = (
    Metric(
        name="kl_to_ref",
        group="kl",
        unit="nats",
        reduction="mean",
        denominator="trained tokens; under PPO before the first update",
        meaning="KL to the model at the start of the stage, by the estimator of the recipe; k1 may be negative",
        algorithms=ROLLOUTS,
        when="GRPO: beta above 0, in the loss; PPO: kl.coef above 0",
    ),
    Metric(
        name="kl_to_ref_sum",
        group="kl",
        unit="nats",
        reduction="mean",
        denominator="scored rollouts, of the sum over their tokens",
        meaning="the same for whole completions: what kl.target is compared with",
        algorithms=PPO,
        when="kl.coef above 0",
    ),
    Metric(
        name="kl_coef",
        group="kl",
        unit="reward a nat",
        reduction="value",
        meaning="coefficient of the KL in the reward of this step",
        algorithms=PPO,
        when="kl.coef above 0",
    ),
    Metric(
        name="kl_in_reward",
        group="kl",
        unit="nats",
        reduction="mean",
        denominator="scored rollouts of groups that were not replaced, of the sum over their tokens",
        meaning="KL to the reference that the reward loses, before beta",
        algorithms=GRPO,
        when='kl.place = "reward"',
    ),
    Metric(
        name="kl_to_old",
        group="kl",
        unit="nats",
        reduction="mean",
        denominator=TRAINED,
        meaning="KL (k3) from the weights that sampled to those being trained: what the step's own updates did",
        algorithms=PPO,
    ),
    Metric(
        name="kl_sampler_trainer",
        group="kl",
        unit="nats",
        reduction="mean",
        denominator=TRAINED,
        meaning="KL (k3) between what the engine sampled with and what the trainer computes for the same weights. "
        "Rounding, or an error; restricted sampling is part of it",
        algorithms=ROLLOUTS,
    ),
    Metric(
        name="logprob_gap_mean",
        group="kl",
        unit="nats",
        reduction="mean",
        denominator=TRAINED,
        meaning="absolute difference of those log-probabilities, less what top_p and top_k explain; a step over the "
        "bound of the number format is refused",
        algorithms=ROLLOUTS,
    ),
    Metric(
        name="logprob_gap_p99",
        group="kl",
        unit="nats",
        reduction="p99",
        denominator=TRAINED,
        meaning="99th percentile of that gap",
        algorithms=ROLLOUTS,
    ),
    Metric(
        name="logprob_gap_max",
        group="kl",
        unit="nats",
        reduction="maximum",
        denominator=TRAINED,
        meaning="largest gap",
        algorithms=ROLLOUTS,
    ),
)
"""In the order in which they are shown."""
