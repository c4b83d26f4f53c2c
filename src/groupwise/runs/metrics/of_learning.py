"""Numbers of what else is learned, and of the optimiser: a critic, demonstrations, pairs, gradient and weights.

Where a step makes several updates, counts (num_...) are summed over them and all else is averaged; update_norm and
weights_moved_frac are of the whole step.
"""

from __future__ import annotations

from groupwise.runs.metrics.metric import DPO, PAIRS, PPO, REWARD_MODEL, SFT, Metric

TRAINED = "trained tokens"
PAIRS_OF_STEP = "pairs of the step"

CRITIC_METRICS = (
    Metric(
        name="explained_variance",
        group="critic",
        unit="",
        reduction="value",
        denominator="tokens of scored rollouts",
        meaning="share of the variance of what was still earned that the values foretold: 1 all, 0 no more than their "
        "mean, below 0 worse. Noise where return_std is near 0",
        algorithms=PPO,
    ),
    Metric(
        name="value_mean",
        group="critic",
        unit="reward",
        reduction="mean",
        denominator="tokens of scored rollouts",
        meaning="what the critic said before the step's updates",
        algorithms=PPO,
    ),
    Metric(
        name="return_mean",
        group="critic",
        unit="reward",
        reduction="mean",
        denominator="tokens of scored rollouts",
        meaning="what it is to learn",
        algorithms=PPO,
    ),
    Metric(
        name="return_std",
        group="critic",
        unit="reward",
        reduction="std",
        denominator="tokens of scored rollouts",
        meaning="population standard deviation of what it is to learn",
        algorithms=PPO,
    ),
    Metric(
        name="critic_value_loss",
        group="critic",
        unit="reward squared",
        reduction="mean",
        denominator=TRAINED,
        meaning="clipped value loss, before a coefficient",
        algorithms=PPO,
    ),
    Metric(
        name="critic_clipped",
        group="critic",
        unit="0..1",
        reduction="share",
        denominator=TRAINED,
        meaning="the value moved further than critic.clip from that of the rollout",
        algorithms=PPO,
        when="critic.clip above 0",
    ),
)
"""In the order in which they are shown. A critic of its own has the optimiser's numbers too, see metrics.FAMILIES."""

PAIR_METRICS = (
    Metric(
        name="nll",
        group="pairs",
        unit="nats",
        reduction="mean",
        denominator=TRAINED,
        meaning="negative log-likelihood of the demonstrations",
        algorithms=SFT,
    ),
    Metric(
        name="num_pairs",
        group="pairs",
        unit="pairs",
        reduction="count",
        meaning="pairs that the step learned from",
        algorithms=PAIRS,
    ),
    Metric(
        name="accuracy",
        group="pairs",
        unit="0..1",
        reduction="share",
        denominator=PAIRS_OF_STEP,
        meaning="the chosen side has the higher reward (DPO) or score (reward model); a tie counts 1/2",
        algorithms=PAIRS,
    ),
    Metric(
        name="reward_margin",
        group="pairs",
        unit="",
        reduction="mean",
        denominator=PAIRS_OF_STEP,
        meaning="chosen_reward - rejected_reward",
        algorithms=DPO,
    ),
    Metric(
        name="chosen_reward",
        group="pairs",
        unit="",
        reduction="mean",
        denominator=PAIRS_OF_STEP,
        meaning="beta times the log-ratio to the reference; below 0: less likely than at the start",
        algorithms=DPO,
    ),
    Metric(
        name="rejected_reward",
        group="pairs",
        unit="",
        reduction="mean",
        denominator=PAIRS_OF_STEP,
        meaning="the same for the rejected side",
        algorithms=DPO,
    ),
    Metric(
        name="chosen_logprob",
        group="pairs",
        unit="nats",
        reduction="mean",
        denominator=PAIRS_OF_STEP,
        meaning="log-probability of the chosen completion, summed over its tokens",
        algorithms=DPO,
    ),
    Metric(
        name="rejected_logprob",
        group="pairs",
        unit="nats",
        reduction="mean",
        denominator=PAIRS_OF_STEP,
        meaning="the same for the rejected side",
        algorithms=DPO,
    ),
    Metric(
        name="chosen_nll",
        group="pairs",
        unit="nats",
        reduction="mean",
        denominator=PAIRS_OF_STEP,
        meaning="negative log-likelihood a token of the chosen completion",
        algorithms=DPO,
        when="nll_coef above 0",
    ),
    Metric(
        name="margin",
        group="pairs",
        unit="score",
        reduction="mean",
        denominator=PAIRS_OF_STEP,
        meaning="chosen_score - rejected_score",
        algorithms=REWARD_MODEL,
    ),
    Metric(
        name="chosen_score",
        group="pairs",
        unit="score",
        reduction="mean",
        denominator=PAIRS_OF_STEP,
        meaning="as the head gives it, without a zero and a unit of its own",
        algorithms=REWARD_MODEL,
    ),
    Metric(
        name="rejected_score",
        group="pairs",
        unit="score",
        reduction="mean",
        denominator=PAIRS_OF_STEP,
        meaning="the same for the rejected side",
        algorithms=REWARD_MODEL,
    ),
)
"""In the order in which they are shown."""

OPTIMISER_METRICS = (
    Metric(
        name="loss",
        group="optimiser",
        unit="",
        reduction="sum",
        denominator="rows, divided by the denominator of the whole update",
        meaning="what is minimised. Near 0 under GRPO with one update, whatever is learned: its advantages sum to 0",
    ),
    Metric(
        name="grad_norm",
        group="optimiser",
        unit="",
        reduction="norm",
        denominator="the gradient of all trained weights",
        meaning="before it is clipped to optim.max_grad_norm",
    ),
    Metric(
        name="update_norm",
        group="optimiser",
        unit="",
        reduction="norm",
        denominator="the change of all trained weights",
        meaning="how far the step moved them, all its updates together. Exact up to 262144 trained weights, above that "
        "estimated from a fixed sample of 65536",
    ),
    Metric(
        name="weights_moved_frac",
        group="optimiser",
        unit="0..1",
        reduction="share",
        denominator="trained weights (the same sample)",
        meaning="the stored value changed. Far below 1 with AdamW: updates are smaller than the spacing of the number "
        "format, as with bfloat16 and a small rate; embeddings of tokens that no gradient reaches count as not moved",
    ),
    Metric(
        name="lr",
        group="optimiser",
        unit="",
        reduction="value",
        meaning="learning rate of the step, by its schedule",
    ),
    Metric(
        name="updated",
        group="optimiser",
        unit="0 or 1",
        reduction="value",
        meaning="1 for a step; 0 for a collection without a gradient, which is none",
    ),
    Metric(
        name="policy_version",
        group="optimiser",
        unit="updates",
        reduction="value",
        meaning="optimizer updates that the weights contain after the step, earlier stages included",
    ),
)
"""In the order in which they are shown."""
