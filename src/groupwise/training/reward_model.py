"""A reward model: learn from pairs which of two completions is the better one (Bradley and Terry, 1952).

    score at the last token of each side --bradley_terry_loss--> one loss a pair

The loss of a step is the mean over its pairs. Both sides of a pair share their prompt in one token tree. What is
reported of training pairs says how far the model has learned them by heart; how good it is, held-out pairs say, none of
whose prompts was trained on: `heldout_pairs` sets them aside, `pair_scores` scores them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from groupwise.models.logprobs import ScoredSequence, TokenScores
from groupwise.models.reward_model import RewardFunction, RewardModel, score_function
from groupwise.objective import aggregate, bradley_terry_loss, masked_sum
from groupwise.training.algorithm import Algorithm, Collected
from groupwise.training.batch import derive_seed, microbatches
from groupwise.training.epochs import rows_of_step
from groupwise.training.pairs import ScoredPair, pair_batch, sides
from groupwise.training.step import LossFunction, LossRows


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModelOptions:
    """The settings of config.algorithm_reward_model.RewardModelSection that training itself reads, under their names.

    Example:
        RewardModelOptions(pairs_per_step=64, center_coef=0.01)
    """

    pairs_per_step: int = 8
    margin: float = 0.0
    label_smoothing: float = 0.0
    center_coef: float = 0.0


class SplitPairs(NamedTuple):
    """Pairs that are trained on, and pairs of other prompts: SplitPairs(train=(...), heldout=(...))."""

    train: tuple[ScoredPair, ...]
    heldout: tuple[ScoredPair, ...]


def reward_model(
    pairs: Sequence[ScoredPair],
    options: RewardModelOptions,
    *,
    model: RewardModel,
    rewards: RewardFunction,
    seed: int,
    save: Callable[[Path], None] | None = None,
) -> Algorithm:
    """The algorithm over these pairs: each once an epoch, in an order that the seed decides.

    The loop trains `model.body` as its model, and the head beside it. save writes the head into a checkpoint's folder.
    """
    whole, scores_of_whole = model, score_function(rewards)

    def scores(
        model: PreTrainedModel, sequences: Sequence[ScoredSequence], *, temperature: float, entropy: bool = False
    ) -> TokenScores:
        assert model is whole.body, "the loop trains the reward model's body"
        return scores_of_whole(whole, sequences, temperature=temperature)  # type: ignore[arg-type]

    def collect(step: int) -> Collected:
        chosen = rows_of_step(len(pairs), options.pairs_per_step, step, seed)
        return Collected(batch=pair_batch([pairs[i] for i in chosen]), metrics={"num_pairs": len(chosen)})

    return Algorithm(
        collect=collect,
        loss=loss_function(options),
        temperature=1.0,
        scores=scores,
        heads=(model.head,),
        save=save,
    )


def loss_function(options: RewardModelOptions) -> LossFunction:
    """Pairs to the sum of their losses over the denominator, and what is reported of each pair.

    accuracy                         1 where the chosen side has the higher score, 1/2 in a tie
    margin                           chosen_score - rejected_score
    chosen_score, rejected_score     as the head gives them: without a zero and a unit of their own
    """

    def loss(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        assert rows.values is not None, "a reward model gives values"
        chosen, rejected = sides(rows)
        scores = masked_sum(rows.values, rows.mask, dim=1)  # one cell of a row holds its score, the others are 0
        losses = bradley_terry_loss(
            scores[chosen],
            scores[rejected],
            margin=options.margin,
            label_smoothing=options.label_smoothing,
            center_coef=options.center_coef,
        )
        ones = torch.ones_like(losses, dtype=torch.bool)[:, None]
        total = aggregate(losses[:, None], ones, normalize="constant", denominator=rows.denominator)
        found = scores.detach()
        margin = found[chosen] - found[rejected]
        return total, {
            "accuracy": (margin.sign() + 1) / 2,
            "margin": margin,
            "chosen_score": found[chosen],
            "rejected_score": found[rejected],
        }

    return loss


def heldout_pairs(pairs: Sequence[ScoredPair], share: float, *, seed: int) -> SplitPairs:
    """About `share` of the prompts, with all their pairs, on one side; the order of the pairs is kept.

    Split by prompt, because a prompt that was trained on tells which of its answers is liked. One prompt or more stands
    on each side where there are two or more.
    """
    prompts = sorted({_prompt(pair) for pair in pairs})
    random.Random(derive_seed(seed, "heldout pairs")).shuffle(prompts)
    number = min(max(1, round(share * len(prompts))), len(prompts) - 1)
    held = set(prompts[:number])
    return SplitPairs(
        train=tuple(pair for pair in pairs if _prompt(pair) not in held),
        heldout=tuple(pair for pair in pairs if _prompt(pair) in held),
    )


@torch.no_grad()
def pair_scores(
    model: RewardModel, pairs: Sequence[ScoredPair], *, rewards: RewardFunction, tokens_per_microbatch: int
) -> Tensor:
    """[pairs, 2] float32 on the CPU: the scores of the chosen and of the rejected side."""
    sequences = [side for pair in pairs for side in pair]
    found = torch.zeros(len(sequences))
    for rows in microbatches(sequences, tokens_per_microbatch):
        found[rows] = rewards(model, [sequences[r].token_ids for r in rows]).float().cpu()
    return found.reshape(-1, 2)


def _prompt(pair: ScoredPair) -> tuple[int, ...]:
    return pair.chosen.token_ids[: pair.chosen.prompt_length]
