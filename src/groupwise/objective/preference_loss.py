"""Learn from pairs, one completion preferred to the other: a policy directly (DPO and its kin), or a reward model.

    policy_logprobs --sequence_logprobs--> one number a completion --dpo_loss--> one loss a pair

A loss here is one number a pair. `at_first_token` takes it to `aggregate`, with normalize="constant" and the number of
pairs of the whole optimizer step as denominator. `policy_*` and the scores of a reward model carry the gradient;
`ref_*` are constants.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import logsigmoid

from groupwise.objective.reduction import masked_mean, masked_sum

DPO_LOSSES = ("sigmoid", "robust", "ipo", "hinge")


class PairSummary(NamedTuple):
    """Of all pairs of a step: PairSummary(accuracy=0.75, margin=0.2, calibration_error=0.05)."""

    accuracy: float
    """Share of pairs whose preferred completion has the higher score; a tie counts half."""
    margin: float
    """Mean score of the preferred minus mean score of the other."""
    calibration_error: float
    """How far sigmoid(margin) is from how often the preferred one wins: 0 where they agree, under 1 always."""


class ReliabilityBin(NamedTuple):
    """Pairs of which the scores are about equally sure: ReliabilityBin(num_pairs=40, sure=0.83, right=0.78)."""

    num_pairs: int
    sure: float
    """Mean of sigmoid(|margin|), 0.5 to 1."""
    right: float
    """Share of pairs whose preferred completion has the higher score; a tie counts half."""


def sequence_logprobs(
    policy_logprobs: Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    average: bool = False,
) -> Float[Tensor, " batch"]:
    """Log-probability of each completion: the sum over its trained tokens, or with average=True their mean.

    The sum is that of DPO; the mean, of SimPO, IPO and length-normalised DPO, does not favour short completions.
    A row without a trained token is 0. Masked cells pass no gradient, whatever stands there.
    """
    reduce = masked_mean if average else masked_sum
    return reduce(policy_logprobs, loss_mask, dim=1)


def dpo_loss(
    policy_chosen: Float[Tensor, " pairs"],
    policy_rejected: Float[Tensor, " pairs"],
    ref_chosen: Float[Tensor, " pairs"] | None = None,
    ref_rejected: Float[Tensor, " pairs"] | None = None,
    *,
    beta: float = 0.1,
    loss: str = "sigmoid",
    label_smoothing: float = 0.0,
    margin: float = 0.0,
) -> Float[Tensor, " pairs"]:
    """Raise the preferred completion's log-probability above the other's, relative to the reference.

        D = (policy_chosen - ref_chosen) - (policy_rejected - ref_rejected)
        x = beta D - margin

        loss       value, with e = label_smoothing                       known as
        ---------  ----------------------------------------------------  ------------------------------------
        "sigmoid"  -(1 - e) log sigma(x) - e log sigma(-x)               DPO; with e > 0 conservative DPO
        "robust"   (-(1 - e) log sigma(x) + e log sigma(-x)) / (1 - 2e)  unbiased where a share e is mislabelled
        "ipo"      (D - 1 / (2 beta))^2                                  IPO: stops at a finite margin
        "hinge"    max(0, 1 - x)                                         SLiC

    The inputs are `sequence_logprobs`: sums for DPO, means for IPO (which its authors recommend), length-normalised
    DPO (beta about 5) and SimPO. Without ref_* the reference counts as 0: SimPO is that with means, beta = 2 to 2.5
    and margin = 0.3 to 0.5 times beta.

    Where the policy is the reference the sigmoid loss is ln 2 = 0.6931 with gradient -beta/2 on policy_chosen and
    +beta/2 on policy_rejected (times 1 - 2e). ref_* are constants. The loss can fall while both log-probabilities do:
    watch `implicit_rewards` of each side.

    Source: DPO, arXiv:2305.18290, eq. 7; robust: arXiv:2403.00409; IPO, arXiv:2310.12036, eq. 17; hinge: SLiC,
    arXiv:2305.10425; SimPO, arXiv:2405.14734, eq. 6.

    Raises:
        ValueError: if loss is unknown, beta is not positive, label_smoothing is not from 0 to under 0.5 or is given for
            a loss without it, a margin is given for "ipo", or only one of ref_chosen and ref_rejected is given.
    """
    _check_dpo(beta=beta, loss=loss, label_smoothing=label_smoothing, margin=margin)
    if (ref_chosen is None) != (ref_rejected is None):
        raise ValueError("dpo_loss: give both ref_chosen and ref_rejected, or neither for a loss without a reference")
    difference = policy_chosen - policy_rejected
    if ref_chosen is not None and ref_rejected is not None:
        difference = (policy_chosen - ref_chosen.detach()) - (policy_rejected - ref_rejected.detach())
    if loss == "ipo":
        return (difference - 1 / (2 * beta)).square()
    logits = beta * difference - margin
    if loss == "hinge":
        return (1 - logits).clamp(min=0)
    if loss == "robust":
        right, wrong = -logsigmoid(logits), -logsigmoid(-logits)
        return ((1 - label_smoothing) * right - label_smoothing * wrong) / (1 - 2 * label_smoothing)
    return _smoothed(logits, label_smoothing)


def implicit_rewards(
    policy_logprobs: Float[Tensor, " batch"], ref_logprobs: Float[Tensor, " batch"] | None = None, *, beta: float = 0.1
) -> Float[Tensor, " batch"]:
    """The reward that a policy trained by DPO stands for: beta times its log-ratio to the reference; no gradient.

    Up to a number that depends on the prompt only. Without a reference, beta times the log-probability (SimPO).

    Source: DPO, arXiv:2305.18290, eq. 5.
    """
    values = policy_logprobs.detach()
    return beta * (values if ref_logprobs is None else values - ref_logprobs.detach())


def bradley_terry_loss(
    chosen_scores: Float[Tensor, " pairs"],
    rejected_scores: Float[Tensor, " pairs"],
    *,
    margin: float | Float[Tensor, " pairs"] = 0.0,
    label_smoothing: float = 0.0,
    center_coef: float = 0.0,
) -> Float[Tensor, " pairs"]:
    """The loss of a reward model: the preferred completion should win.

        x = chosen - rejected - margin
        loss = -(1 - e) log sigma(x) - e log sigma(-x) + center_coef (chosen + rejected)^2

    e is label_smoothing. Equal scores give ln 2, and gradient -1/2 and +1/2 (times 1 - 2e). A margin may differ from
    pair to pair: more where the preference is clearer. Scores are determined up to a constant; center_coef (0.01 is
    usual) holds them around 0.

    Source: Bradley and Terry, 1952; for language models: InstructGPT, arXiv:2203.02155, eq. 1; margin: Llama 2,
    arXiv:2307.09288, eq. 2; centring: arXiv:2312.09244.

    Raises:
        ValueError: if label_smoothing is not from 0 to under 0.5, or center_coef is negative.
    """
    if not 0 <= label_smoothing < 0.5 or center_coef < 0:
        raise ValueError(
            f"bradley_terry_loss: label_smoothing = {label_smoothing} must be from 0 to under 0.5 and "
            f"center_coef = {center_coef} 0 or more"
        )
    loss = _smoothed(chosen_scores - rejected_scores - margin, label_smoothing)
    return loss + center_coef * (chosen_scores + rejected_scores).square() if center_coef else loss


@torch.no_grad()
def summarise_pairs(
    chosen_scores: Float[Tensor, " pairs"], rejected_scores: Float[Tensor, " pairs"], *, num_bins: int = 5
) -> PairSummary:
    """How often and by how much the preferred completion wins; scores of a reward model, or `implicit_rewards`.

    The calibration error reads sigmoid(margin) as the probability that the preferred one wins. The surer side of each
    pair is sure by c = sigmoid(|margin|) from 1/2 to 1, and right with 1, 0 or, in a tie, 1/2:

        calibration error = sum over bins of c of (pairs in the bin / pairs) |mean of right - mean of c|

    All 0 without a pair. One call sees all pairs: the parts of a bin do not follow from those of its pairs.

    Source: expected calibration error, arXiv:1706.04599, section 2.
    """
    num_pairs = chosen_scores.numel()
    if not num_pairs:
        return PairSummary(0.0, 0.0, 0.0)
    margin = chosen_scores.double() - rejected_scores.double()
    bins = reliability_bins(chosen_scores, rejected_scores, num_bins=num_bins)
    off = sum(one.num_pairs * abs(one.right - one.sure) for one in bins) / num_pairs
    return PairSummary(((margin.sign() + 1) / 2).mean().item(), margin.mean().item(), off)


@torch.no_grad()
def reliability_bins(
    chosen_scores: Float[Tensor, " pairs"], rejected_scores: Float[Tensor, " pairs"], *, num_bins: int = 5
) -> tuple[ReliabilityBin, ...]:
    """How often pairs are right that are sure by sigmoid(|margin|) = c, in num_bins equal steps of c from 1/2 to 1.

    Bins without a pair are left out. Right where sure: calibrated; right less often than sure: over-confident.

    Source: reliability diagrams, arXiv:1706.04599, section 2.
    """
    margin = chosen_scores.double() - rejected_scores.double()
    right = (margin.sign() + 1) / 2
    sure = margin.abs().sigmoid()
    which = ((sure - 0.5) * 2 * num_bins).long().clamp(max=num_bins - 1)
    return tuple(
        ReliabilityBin(int(inside.sum()), sure[inside].mean().item(), right[inside].mean().item())
        for inside in (which == number for number in range(num_bins))
        if inside.any()
    )


def _smoothed(logits: Float[Tensor, " pairs"], label_smoothing: float) -> Float[Tensor, " pairs"]:
    """Minus the log-likelihood of a label that is wrong with probability label_smoothing."""
    if not label_smoothing:
        return -logsigmoid(logits)
    return -(1 - label_smoothing) * logsigmoid(logits) - label_smoothing * logsigmoid(-logits)


def _check_dpo(*, beta: float, loss: str, label_smoothing: float, margin: float) -> None:
    """Refuse options that no loss has."""
    if loss not in DPO_LOSSES:
        raise ValueError(f"dpo_loss: loss = {loss!r} is not known; use one of {', '.join(DPO_LOSSES)}")
    if not beta > 0:
        raise ValueError(f"dpo_loss: beta = {beta} must be positive, such as 0.1")
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"dpo_loss: label_smoothing = {label_smoothing} must be from 0 to under 0.5")
    if label_smoothing and loss in ("ipo", "hinge"):
        raise ValueError(f"dpo_loss: loss = {loss!r} has no label_smoothing; leave it at 0, or use sigmoid or robust")
    if margin and loss == "ipo":
        raise ValueError("dpo_loss: ipo has a target of its own, 1 / (2 beta), and no margin; leave margin at 0")
