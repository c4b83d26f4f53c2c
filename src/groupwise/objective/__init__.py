"""The math of a step: tensors in, tensors out, nothing else.

    rewards --group_advantages--> advantages --clipped_policy_loss--> per token --aggregate--> scalar

Read in this order: reduction, advantages, importance, policy_loss, kl; then what some methods add: token_advantages and
value_loss (PPO), preference_loss (DPO, reward models), supervised_loss (SFT), mismatch, entropy, reward_shaping.

Three conventions hold everywhere. `loss_mask` is True where a token is trained (a 0/1 mask of any dtype is read as its
truth value), and what stands in the other cells never matters. Only `policy_logprobs` (and `values`, `entropies`, the
scores of a reward model) carry a gradient; every other input is a constant. Log-probabilities are in nats, float32 or
float64.
"""

from groupwise.objective.advantages import group_advantages, leave_one_out, max_rl_advantages
from groupwise.objective.clipping import ClipShares, clip_shares
from groupwise.objective.entropy import adapted_entropy_coef, entropy_covariance, entropy_loss
from groupwise.objective.importance import importance_ratio
from groupwise.objective.kl import adapted_kl_coef, kl_estimate, weighted_kl_estimate
from groupwise.objective.mismatch import (
    GapSummary,
    effective_share,
    logprob_gap,
    masked_importance_weight,
    summarise_gap,
    truncated_importance_weight,
)
from groupwise.objective.part_advantages import gdpo_advantages
from groupwise.objective.policy_loss import cispo_loss, clipped_policy_loss, reinforce_loss, sequence_policy_loss
from groupwise.objective.preference_loss import (
    PairSummary,
    ReliabilityBin,
    bradley_terry_loss,
    dpo_loss,
    implicit_rewards,
    reliability_bins,
    sequence_logprobs,
    summarise_pairs,
)
from groupwise.objective.reduction import aggregate, at_first_token, masked_mean, masked_sum
from groupwise.objective.reward_shaping import length_shaped, overlong_penalty, token_rewards
from groupwise.objective.supervised_loss import negative_log_likelihood
from groupwise.objective.token_advantages import ValueTargets, gae, process_advantages, returns_to_go, whiten
from groupwise.objective.value_loss import clipped_value_loss, explained_variance

__all__ = [
    "ClipShares",
    "GapSummary",
    "PairSummary",
    "ReliabilityBin",
    "ValueTargets",
    "adapted_entropy_coef",
    "adapted_kl_coef",
    "aggregate",
    "at_first_token",
    "bradley_terry_loss",
    "cispo_loss",
    "clip_shares",
    "clipped_policy_loss",
    "clipped_value_loss",
    "dpo_loss",
    "effective_share",
    "entropy_covariance",
    "entropy_loss",
    "explained_variance",
    "gae",
    "gdpo_advantages",
    "group_advantages",
    "implicit_rewards",
    "importance_ratio",
    "kl_estimate",
    "leave_one_out",
    "length_shaped",
    "logprob_gap",
    "masked_importance_weight",
    "masked_mean",
    "masked_sum",
    "max_rl_advantages",
    "negative_log_likelihood",
    "overlong_penalty",
    "process_advantages",
    "reinforce_loss",
    "reliability_bins",
    "returns_to_go",
    "sequence_logprobs",
    "sequence_policy_loss",
    "summarise_gap",
    "summarise_pairs",
    "token_rewards",
    "truncated_importance_weight",
    "weighted_kl_estimate",
    "whiten",
]
