"""How hard each token of a wrong answer is pushed, measured on one real group: does its answer's length matter?

    normalize    gradient of the loss with respect to the log-probability of a token of completion i
    -----------  -----------------------------------------------------------------------------------
    sequence     -A[i] / (completions length[i])        a long wrong answer is pushed less a token
    token        -A[i] / tokens of the group
    constant     -A[i] / (completions limit)

The table is what the algebra says at a ratio of 1. The numbers here come from the loss that training uses, by autograd,
and from the gradient that reaches the weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from groupwise.models import LoadedModel
from groupwise.models.logprobs import ScoreFunction, loss_mask
from groupwise.objective.reduction import NORMALIZATIONS
from groupwise.training.batch import Batch, padded, rows_of
from groupwise.training.grpo_batch import make_batch, step_advantages
from groupwise.training.grpo_loss import loss_function
from groupwise.training.grpo_options import GrpoOptions
from groupwise.training.step import LossRows
from groupwise.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPush:
    """What one normalization does to a token of a short and of a long wrong answer of one group.

    Example:
        TokenPush(normalize="sequence", short_tokens=10, long_tokens=40, short=0.012, long=0.003,
                  short_norm=0.9, long_norm=0.2)
    """

    normalize: str
    short_tokens: int
    """Length of the short wrong answer."""
    long_tokens: int
    short: float
    """d loss / d log-probability of each of its tokens; above 0: the token becomes less likely."""
    long: float
    short_norm: float | None = None
    """Norm of the gradient that the answer puts on the weights, divided by its tokens; None where not measured."""
    long_norm: float | None = None

    @property
    def ratio(self) -> float:
        """The push on a token of the long answer, in units of that on a token of the short one."""
        return self.long / self.short


def most_different(groups: Sequence[Group]) -> Group | None:
    """The group with a right answer whose longest wrong answer is most times as long as its shortest; None where no
    group has two wrong answers of different lengths beside a right one."""

    def spread(group: Group) -> float:
        lengths = [len(group.rollouts[i].completion.token_ids) for i in wrong_by_length(group)]
        usable = lengths and group.num_solved > 0 and group.num_scored == len(group.rollouts)
        return lengths[-1] / lengths[0] if usable else 1.0

    best = max(groups, key=spread, default=None)
    return None if best is None or spread(best) == 1 else best


def wrong_by_length(group: Group) -> list[int]:
    """The numbers of the rollouts that do not solve the task, the shortest first."""
    wrong = [i for i, r in enumerate(group.rollouts) if r.verdict.outcome is False and r.completion.token_ids]
    return sorted(wrong, key=lambda i: len(group.rollouts[i].completion.token_ids))


def token_pushes(
    group: Group,
    *,
    max_completion_tokens: int,
    temperature: float = 1.0,
    loaded: LoadedModel | None = None,
    scores: ScoreFunction | None = None,
) -> tuple[TokenPush, ...]:
    """One row a normalization, for the shortest and the longest wrong answer of a group from `most_different`.

    Everything else is the same in all rows: clipped loss, advantages divided by the group's std, no KL, the group as
    the whole step. With loaded and scores the gradient of each answer is also taken to the weights, which stay as they
    are.
    """
    wrong = wrong_by_length(group)
    short, long = wrong[0], wrong[-1]
    rows = []
    for normalize in NORMALIZATIONS:
        options = GrpoOptions(normalize=normalize)  # type: ignore[arg-type]
        batch = make_batch(
            [group], step_advantages([group], options), options, max_completion_tokens=max_completion_tokens
        )
        assert batch is not None, "a group with right and wrong answers has a gradient"
        weights = _token_weights(batch, options)
        row = TokenPush(
            normalize=normalize,
            short_tokens=batch.sequences[short].num_trained,
            long_tokens=batch.sequences[long].num_trained,
            short=weights[short],
            long=weights[long],
        )
        if loaded is not None and scores is not None:
            norms = [_weight_norm(batch, r, options, loaded, scores, temperature) for r in (short, long)]
            row = replace(row, short_norm=norms[0] / row.short_tokens, long_norm=norms[1] / row.long_tokens)
        rows.append(row)
    return tuple(rows)


def _token_weights(batch: Batch, options: GrpoOptions) -> list[float]:
    """d loss / d log-probability, which is the same for all tokens of a row: by row."""
    mask = loss_mask(batch.sequences)
    assert batch.sampler_logprobs is not None, "rollouts carry them"
    logprobs = padded(batch.sampler_logprobs, mask).requires_grad_()
    rows = LossRows(policy_logprobs=logprobs, mask=mask, denominator=batch.denominator, advantages=batch.advantages)
    total, _ = loss_function(options)(rows)
    (gradient,) = torch.autograd.grad(total, logprobs)
    return [float(row[cells].double().mean()) for row, cells in zip(gradient, mask, strict=True)]


def _weight_norm(
    batch: Batch, row: int, options: GrpoOptions, loaded: LoadedModel, scores: ScoreFunction, temperature: float
) -> float:
    """Norm of the gradient of one row's part of the loss with respect to all trainable weights."""
    part = rows_of(batch, [row], batch.denominator)
    found = scores(loaded.model, part.sequences, temperature=temperature)
    mask = loss_mask(part.sequences, device=found.logprobs.device)
    advantages = None if part.advantages is None else part.advantages.to(mask.device)
    rows = LossRows(policy_logprobs=found.logprobs, mask=mask, denominator=part.denominator, advantages=advantages)
    total, _ = loss_function(options)(rows)
    trained = [p for p in loaded.model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(total, trained, allow_unused=True)
    return math.sqrt(math.fsum(float(g.double().square().sum()) for g in gradients if g is not None))
