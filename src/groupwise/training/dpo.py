"""Direct preference optimisation (arXiv:2305.18290) and its variants: of two completions, raise the better one.

    policy_logprobs --sum or mean of each row--> chosen, rejected --dpo_loss with the reference's--> one loss a pair

The loss of a step is the mean over its pairs. The reference is the model at the start of the stage. Its numbers are
taken once, before the first step, so that no second model is kept beside the policy while it learns.

Watch chosen_reward: the loss can fall while both completions become less likely, one only faster than the other. Below
0 the chosen ones are less likely than they were under the reference; nll_coef holds them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from groupwise.models.loading import LoadedModel
from groupwise.models.logprobs import ScoreFunction, loss_mask
from groupwise.objective import aggregate, dpo_loss, implicit_rewards, sequence_logprobs
from groupwise.training.algorithm import Algorithm, Collected
from groupwise.training.batch import microbatches
from groupwise.training.epochs import rows_of_step
from groupwise.training.pairs import ScoredPair, pair_batch, sides
from groupwise.training.step import LossFunction, LossRows

REFERENCE = "ref_sequence_logprobs"
"""[B] float32 in Batch.extra: the reference's log-probability of each completion, a sum or a mean as the policy's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DpoOptions:
    """The settings of config.algorithm_dpo.DpoSection, under the same names.

    Example:
        DpoOptions(beta=2.0, length_normalize=True, reference_free=True, margin=1.0)     # SimPO
    """

    pairs_per_step: int = 8
    loss: Literal["sigmoid", "robust", "ipo", "hinge"] = "sigmoid"
    beta: float = 0.1
    label_smoothing: float = 0.0
    length_normalize: bool = False
    """Means over the tokens are compared; False compares sums."""
    reference_free: bool = False
    margin: float = 0.0
    nll_coef: float = 0.0


def dpo(pairs: Sequence[ScoredPair], options: DpoOptions, *, seed: int, reference: Tensor | None) -> Algorithm:
    """The algorithm over these pairs: each once an epoch, in an order that the seed decides.

    reference is [pairs, 2] float32, the `reference_logprobs` of the model at the start; None without a reference.
    """
    assert (reference is None) == options.reference_free, "a reference is given exactly where the loss has one"
    ref_rows = None
    if reference is not None:
        lengths = torch.tensor([[side.num_trained for side in pair] for pair in pairs])
        ref_rows = reference / lengths if options.length_normalize else reference

    def collect(step: int) -> Collected:
        chosen = rows_of_step(len(pairs), options.pairs_per_step, step, seed)
        extra = {} if ref_rows is None else {REFERENCE: ref_rows[chosen].flatten()}
        return Collected(batch=pair_batch([pairs[i] for i in chosen], extra), metrics={"num_pairs": len(chosen)})

    return Algorithm(collect=collect, loss=loss_function(options), temperature=1.0)


def loss_function(options: DpoOptions) -> LossFunction:
    """Pairs to the sum of their losses over the denominator, and what is reported of each pair.

    reward_margin, chosen_reward, rejected_reward    beta times the log-ratio to the reference
    accuracy                                         1 where the chosen side has the higher reward, 1/2 in a tie
    chosen_logprob, rejected_logprob                 sums over the completion, in nats
    """

    def loss(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        chosen, rejected = sides(rows)
        sums = sequence_logprobs(rows.policy_logprobs, rows.mask)
        means = sequence_logprobs(rows.policy_logprobs, rows.mask, average=True)
        compared = means if options.length_normalize else sums
        reference = rows.extra.get(REFERENCE)
        losses = dpo_loss(
            compared[chosen],
            compared[rejected],
            None if reference is None else reference[chosen],
            None if reference is None else reference[rejected],
            beta=options.beta,
            loss=options.loss,
            label_smoothing=options.label_smoothing,
            margin=options.margin,
        )
        reported = _reported(implicit_rewards(compared, reference, beta=options.beta), sums.detach(), chosen, rejected)
        if options.nll_coef:
            # iterative RPO, arXiv:2404.19733, eq. 1
            nll = -means[chosen]
            losses = losses + options.nll_coef * nll
            reported["chosen_nll"] = nll.detach()
        ones = torch.ones_like(losses, dtype=torch.bool)[:, None]
        return aggregate(losses[:, None], ones, normalize="constant", denominator=rows.denominator), reported

    return loss


def _reported(rewards: Tensor, logprobs: Tensor, chosen: Tensor, rejected: Tensor) -> dict[str, Tensor]:
    margin = rewards[chosen] - rewards[rejected]
    return {
        "reward_margin": margin,
        "accuracy": (margin.sign() + 1) / 2,
        "chosen_reward": rewards[chosen],
        "rejected_reward": rewards[rejected],
        "chosen_logprob": logprobs[chosen],
        "rejected_logprob": logprobs[rejected],
    }


@torch.no_grad()
def reference_logprobs(
    loaded: LoadedModel, pairs: Sequence[ScoredPair], *, scores: ScoreFunction, tokens_per_microbatch: int
) -> Tensor:
    """[pairs, 2] float32 on the CPU: the model's log-probability of the chosen and the rejected completion, summed."""
    sequences = [side for pair in pairs for side in pair]
    found = torch.zeros(len(sequences))
    for rows in microbatches(sequences, tokens_per_microbatch):
        cut = [sequences[r] for r in rows]
        logprobs = scores(loaded.model, cut, temperature=1.0).logprobs
        found[rows] = sequence_logprobs(logprobs, loss_mask(cut, device=logprobs.device)).float().cpu()
    return found.reshape(-1, 2)
