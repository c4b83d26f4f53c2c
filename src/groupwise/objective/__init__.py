"""The math of a step: tensors in, tensors out, nothing else.

    rewards --group_advantages--> advantages --clipped_policy_loss--> per token --aggregate--> scalar

Read in this order: reduction, advantages, importance, policy_loss, kl, mismatch, supervised_loss. Three conventions
hold everywhere. `loss_mask` is True where a token is trained (a 0/1 mask of any dtype is read as its truth value), and
what stands in the other cells never matters. Only `policy_logprobs` carries a gradient; every other input is a
constant. Log-probabilities are in nats, float32 or float64.
"""

from groupwise.objective.advantages import group_advantages, leave_one_out
from groupwise.objective.importance import importance_ratio
from groupwise.objective.kl import kl_estimate
from groupwise.objective.mismatch import GapSummary, logprob_gap, summarise_gap, truncated_importance_weight
from groupwise.objective.part_advantages import gdpo_advantages, length_shaped
from groupwise.objective.policy_loss import ClipShares, clip_shares, clipped_policy_loss
from groupwise.objective.reduction import aggregate, masked_mean, masked_sum
from groupwise.objective.supervised_loss import negative_log_likelihood

__all__ = [
    "ClipShares",
    "GapSummary",
    "aggregate",
    "clip_shares",
    "clipped_policy_loss",
    "gdpo_advantages",
    "group_advantages",
    "importance_ratio",
    "kl_estimate",
    "leave_one_out",
    "length_shaped",
    "logprob_gap",
    "masked_mean",
    "masked_sum",
    "negative_log_likelihood",
    "summarise_gap",
    "truncated_importance_weight",
]
