"""A reward model: the body of a causal model and one linear head, read at the last token of a completion.

    score(prompt, completion) = w . hidden state of the last token        [D] -> 1, no bias

A bias would do nothing: learning from pairs determines scores up to a constant. Both sides of a pair, and all answers
to one prompt, share the prompt's nodes of a token tree, so that one forward serves them all; a right-padded batch is
the oracle, and the fallback for models that a tree cannot serve.

Differs from a value head (logprobs.py): a value is read before a token, for each token; a score is read once, behind
the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from groupwise.models.body import copied_body
from groupwise.models.logprobs import ScoredSequence, ScoreFunction, TokenScores, loss_mask
from groupwise.models.lora import adapted_layers
from groupwise.models.token_tree import TokenTree
from groupwise.models.trained_layers import training_forward
from groupwise.models.tree_attention import UnsupportedAttentionError, tree_plan


class RewardModel(nn.Module):
    """A body and its head.

    Example:
        model = reward_model_from(policy.model, seed=0)
        tree_rewards(model, [(5, 7, 8), (5, 7, 9)])     # tensor([0.31, -0.20])
    """

    def __init__(self, body: PreTrainedModel, head: nn.Linear) -> None:
        """body gives last hidden states [.., D] without an LM head; head maps [.., D] to [.., 1] in float32."""
        super().__init__()
        self.body = body
        self.head = head

    @property
    def device(self) -> torch.device:
        """Where the body is."""
        return self.body.device

    @property
    def config(self) -> Any:
        """The body's."""
        return self.body.config


class RewardFunction(Protocol):
    """tree_rewards or padded_rewards."""

    def __call__(self, model: RewardModel, sequences: Sequence[Sequence[int]]) -> Tensor:
        """[B] float32 scores of whole sequences of token ids, each of 1 token or more."""
        ...


def reward_model_from(model: PreTrainedModel, *, seed: int) -> RewardModel:
    """A copy of a language model's body, as trainable as the model is, with a new head; the model stays as it is.

    Frozen weights, the base below adapters, are shared with the model, not copied. The head is drawn from
    N(0, 1 / (D + 1)), so that scores begin at about the size of one.

    Source of the head's size: Stiennon et al., arXiv:2009.01325, as released.
    """
    body: Any = copied_body(model)
    if adapted_layers(model):
        body.peft_config = model.peft_config  # what saves adapters looks for it on the model that it is given
    width: int = model.config.get_text_config().hidden_size
    head = nn.Linear(width, 1, bias=False)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.weight.copy_(torch.randn(1, width, generator=generator) / (width + 1) ** 0.5)
    return RewardModel(body, head.to(model.device)).eval()


def tree_rewards(model: RewardModel, sequences: Sequence[Sequence[int]]) -> Tensor:
    """[B] scores by one forward over the sequences' token tree. Equal to padded_rewards up to rounding.

    Raises:
        UnsupportedAttentionError: if the body cannot be served by a tree.
    """
    tree = TokenTree.build(sequences)
    device = model.device
    plan = tree_plan(tree, device=device)
    hidden = training_forward(model.body, tree.token_ids.to(device), tree.depth.to(device), plan)
    last = torch.stack([path[-1] for path in tree.paths])
    return _scores(model, hidden[last.to(device)])


def padded_rewards(model: RewardModel, sequences: Sequence[Sequence[int]]) -> Tensor:
    """[B] scores by a right-padded batch through the body's own attention."""
    device = model.device
    lengths = torch.tensor([len(s) for s in sequences])
    ids = torch.zeros((len(sequences), int(lengths.max())), dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
    present = (torch.arange(ids.shape[1])[None, :] < lengths[:, None]).long()
    output = model.body(input_ids=ids.to(device), attention_mask=present.to(device), use_cache=False)
    return _scores(model, output.last_hidden_state[torch.arange(len(sequences)), lengths - 1])


def _scores(model: RewardModel, states: Tensor) -> Tensor:
    """[B, D] -> [B], in float32 whatever the body's dtype: a score in bfloat16 has two digits."""
    scores: Tensor = model.head(states.float())
    return scores.squeeze(-1)


def score_function(rewards: RewardFunction) -> ScoreFunction:
    """The scores as `values` [B, L] of a ScoreFunction: each row's score at its last completion token, 0 elsewhere.

    A reward model has no next-token distribution: logprobs are 0, and neither temperature nor entropy means anything.
    """

    def scores(
        model: Any, sequences: Sequence[ScoredSequence], *, temperature: float, entropy: bool = False
    ) -> TokenScores:
        found = rewards(model, [s.token_ids for s in sequences])
        mask = loss_mask(sequences, device=found.device)
        last = torch.tensor([s.num_trained - 1 for s in sequences], device=found.device)
        nothing = torch.zeros(mask.shape, device=found.device)
        return TokenScores(nothing, None, nothing.scatter(1, last[:, None], found[:, None]))

    return scores


def why_no_reward_tree(model: RewardModel) -> str | None:
    """The reason why a reward model needs padded batches, or None. Runs two nodes through both ways to find out."""
    probe = [(0, 1), (0, 2)]
    try:
        with torch.no_grad():
            tree, padded = tree_rewards(model, probe), padded_rewards(model, probe)
    except UnsupportedAttentionError as error:
        return str(error)
    except (AttributeError, TypeError) as error:
        return f"its attention cannot be exchanged ({error})"
    tolerance = 1e-3 if model.body.dtype == torch.float32 else 0.1
    if not torch.allclose(tree, padded, atol=tolerance, rtol=tolerance):
        return "the tree path gives other scores than its own attention"
    return None


def rewards_of(model: RewardModel) -> RewardFunction:
    """The fastest way that serves a model."""
    return tree_rewards if why_no_reward_tree(model) is None else padded_rewards
