"""From per-token values to one number. Every loss of every algorithm is reduced here and nowhere else.

The denominator is handed in, not counted: it belongs to the whole optimizer step, while a call sees one micro-batch
of one rank. So the results of all calls of a step are simply added, and no split changes a gradient. Frameworks that
average gradients over ranks need the result times the number of ranks.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

NORMALIZATIONS = ("sequence", "token", "constant")


def masked_sum(
    values: Float[Tensor, "*shape"], mask: Shaped[Tensor, "*shape"], *, dim: int | None = None
) -> Float[Tensor, "..."]:
    """Sum over the cells where mask is True, over all cells or along one dimension.

    Selects instead of multiplying: NaN * 0 is NaN, in the value and in the gradient. Half precision is summed in
    float32.
    """
    kept = torch.where(mask.bool(), values, 0.0)
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    return kept.sum(dtype=dtype) if dim is None else kept.sum(dim=dim, dtype=dtype)


def masked_mean(
    values: Float[Tensor, "*shape"], mask: Shaped[Tensor, "*shape"], *, dim: int | None = None
) -> Float[Tensor, "..."]:
    """Mean over the cells where mask is True; exactly 0 where there is no such cell.

    The denominator is the number of True cells of this tensor (of this row, with dim). It is a count of one rollout
    or of a metric, never the denominator of a loss over a batch: see `aggregate`.
    """
    selected = mask.bool()
    count = selected.sum() if dim is None else selected.sum(dim=dim)
    return masked_sum(values, mask, dim=dim) / count.clamp(min=1)


def at_first_token(
    row_values: Float[Tensor, " batch"], loss_mask: Shaped[Tensor, "batch length"]
) -> Float[Tensor, "batch length"]:
    """One value a row, in the first trained cell of the row; exactly 0 in all others.

    So a loss of whole completions or pairs, which is no sum over tokens, passes through `aggregate` like the others:
    with normalize="constant" (or "token") and the number of completions or pairs of the step as denominator. A row
    without a trained token loses its value, and passes it no gradient.
    """
    trained = loss_mask.bool()
    first = trained & (trained.cumsum(1) == 1)
    return torch.where(first, row_values.unsqueeze(1), 0.0)


def aggregate(
    per_token: Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    normalize: str = "sequence",
    denominator: float | Tensor,
) -> Float[Tensor, ""]:
    """Sum of the given rows over the denominator of the whole optimizer step.

        normalize    numerator of a row           denominator counts, over the step      known as
        -----------  ---------------------------  -------------------------------------  ----------------
        "sequence"   mean over its own tokens     completions                            GRPO
        "token"      sum over its tokens          trained tokens                         DAPO
        "constant"   sum over its tokens          completions x a length fixed for a run  Dr. GRPO

    "sequence" gives a token of a long completion less weight than a token of a short one, so that long wrong answers
    are punished less per token; the other two weigh every token of the step equally. With "constant" the length only
    rescales the gradient, but it must not be the padded width of a batch, which changes from batch to batch.

    A row without a trained token contributes exactly 0. Whether it counts in the denominator is the caller's choice.
    A denominator of 0 is allowed when no token is trained at all and gives 0, so that such a step does no harm.

    Source: GRPO, arXiv:2402.03300, eq. 3; DAPO, arXiv:2503.14476; Dr. GRPO, arXiv:2503.20783, listing 1.

    Raises:
        ValueError: if normalize is unknown, or the denominator is negative, or is 0 although tokens are trained.
    """
    if normalize not in NORMALIZATIONS:
        raise ValueError(f"aggregate: normalize = {normalize!r} is not known; use one of {', '.join(NORMALIZATIONS)}")
    rows = (
        masked_mean(per_token, loss_mask, dim=1) if normalize == "sequence" else masked_sum(per_token, loss_mask, dim=1)
    )
    if denominator > 0:
        return rows.sum() / denominator
    if denominator == 0 and not loss_mask.any():
        return rows.sum()
    raise ValueError(
        f"aggregate: denominator = {denominator} must be positive while tokens are trained; "
        "count completions or trained tokens over the whole optimizer step, not over one micro-batch"
    )
