"""What a model says of the completion tokens of sequences: by token tree, and by padded batch as oracle and fallback.

Both ways return the same [B, L] matrices, 0 where a row has ended: the log-probabilities (nats, float32) of the
*completion* tokens of each sequence at the temperature that sampled them, and where they are asked for the entropies of
the distributions that these tokens were drawn from and the values of a value head. The tree way forwards each distinct
prefix once, sends only positions whose successor is trained through the LM head, and takes the log-softmax in chunks
that are recomputed in the backward pass, so that no [tokens, vocabulary] tensor is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from groupwise.models.head_logprobs import selected_logprobs, selected_logprobs_and_entropies
from groupwise.models.token_tree import TokenTree
from groupwise.models.trained_layers import training_forward
from groupwise.models.tree_attention import UnsupportedAttentionError, tree_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSequence:
    """A prompt and one completion: the log-probabilities of `token_ids[prompt_length:]` are wanted."""

    token_ids: tuple[int, ...]
    prompt_length: int

    @property
    def num_trained(self) -> int:
        """Completion tokens."""
        return len(self.token_ids) - self.prompt_length


class TokenScores(NamedTuple):
    """What a model says of each completion token; [B, L] float32 each, 0 where a row has ended."""

    logprobs: Tensor
    """Nats."""
    entropies: Tensor | None = None
    """Nats, of the whole distribution that the token was drawn from; None where they were not asked for."""
    values: Tensor | None = None
    """Value of the state before the token; None without a value head."""


class ScoreFunction(Protocol):
    """tree_scores or padded_scores."""

    def __call__(
        self, model: PreTrainedModel, sequences: Sequence[ScoredSequence], *, temperature: float, entropy: bool = False
    ) -> TokenScores:
        """The scores of the completions."""
        ...


def loss_mask(sequences: Sequence[ScoredSequence], *, device: torch.device | None = None) -> Tensor:
    """[B, L] bool: True where a row has a completion token. L is the longest completion, at least 1."""
    lengths = torch.tensor([s.num_trained for s in sequences], device=device)
    longest = max([1, *(s.num_trained for s in sequences)])
    return torch.arange(longest, device=device)[None, :] < lengths[:, None]


def tree_logprobs(model: PreTrainedModel, sequences: Sequence[ScoredSequence], *, temperature: float) -> Tensor:
    """[B, L] log-probabilities of the completions, see tree_scores."""
    return tree_scores(model, sequences, temperature=temperature).logprobs


def padded_logprobs(model: PreTrainedModel, sequences: Sequence[ScoredSequence], *, temperature: float) -> Tensor:
    """[B, L] log-probabilities of the completions, see padded_scores."""
    return padded_scores(model, sequences, temperature=temperature).logprobs


def tree_scores(
    model: PreTrainedModel,
    sequences: Sequence[ScoredSequence],
    *,
    temperature: float,
    entropy: bool = False,
    value_head: nn.Module | None = None,
) -> TokenScores:
    """The scores of the completions, by one forward over their token tree.

    Equal to `padded_scores` in value and gradient up to rounding (1e-5 relative in float32). value_head maps [N, D]
    last hidden states to [N, 1].

    Raises:
        UnsupportedAttentionError: if the model cannot be served by a tree.
    """
    tree = TokenTree.build([s.token_ids for s in sequences])
    device = model.device
    plan = tree_plan(tree, device=device)
    hidden = training_forward(model, tree.token_ids.to(device), tree.depth.to(device), plan)
    nodes = [path[s.prompt_length :] for path, s in zip(tree.paths, sequences, strict=True)]
    trained, row_of_node = torch.unique(torch.cat(nodes), return_inverse=True)
    parents, row_of_parent = torch.unique(tree.parent[trained], return_inverse=True)
    if trained.numel() and int(parents[0]) < 0:
        raise ValueError("tree_scores: a completion needs a prompt of at least 1 token")
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear:
        raise UnsupportedAttentionError(f"its LM head is a {type(head).__name__}, not a plain linear layer")
    rows, states = row_of_parent.to(device), hidden[parents.to(device)]
    inputs = (states / temperature, head.weight, head.bias, rows, tree.token_ids[trained].to(device))
    mask = loss_mask(sequences, device=device)
    row_of_node = row_of_node.to(device)

    def by_token(of_node: Tensor) -> Tensor:
        return torch.zeros(mask.shape, device=device).masked_scatter(mask, of_node[row_of_node])

    values = None if value_head is None else by_token(value_head(states).float().squeeze(-1)[rows])
    if not entropy:
        return TokenScores(by_token(selected_logprobs(*inputs)), None, values)
    logprobs, entropies = selected_logprobs_and_entropies(*inputs)
    return TokenScores(by_token(logprobs), by_token(entropies[rows]), values)


def padded_scores(
    model: PreTrainedModel,
    sequences: Sequence[ScoredSequence],
    *,
    temperature: float,
    entropy: bool = False,
    value_head: nn.Module | None = None,
) -> TokenScores:
    """The scores of the completions, by a right-padded batch through the model's own attention.

    Serves every causal model; costs sum(len) tokens and a [B, length, vocabulary] tensor of logits.
    """
    device = model.device
    width = max(len(s.token_ids) for s in sequences)
    ids = torch.zeros((len(sequences), width), dtype=torch.long)
    present = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence.token_ids)] = torch.tensor(sequence.token_ids)
        present[row, : len(sequence.token_ids)] = 1
    output = model(
        input_ids=ids.to(device),
        attention_mask=present.to(device),
        use_cache=False,
        output_hidden_states=value_head is not None,
    )
    distribution = torch.log_softmax(output.logits[:, :-1].float() / temperature, dim=-1)
    mask = loss_mask(sequences, device=device)

    def by_token(of_place: Tensor) -> Tensor:
        """of_place[r, t] belongs to the token at t + 1."""
        completions = [of_place[r, s.prompt_length - 1 : len(s.token_ids) - 1] for r, s in enumerate(sequences)]
        return torch.zeros(mask.shape, device=device).masked_scatter(mask, torch.cat(completions))

    return TokenScores(
        by_token(distribution.gather(-1, ids[:, 1:, None].to(device)).squeeze(-1)),
        by_token(-(distribution.exp() * distribution).sum(dim=-1)) if entropy else None,
        None if value_head is None else by_token(value_head(output.hidden_states[-1][:, :-1]).float().squeeze(-1)),
    )


def why_no_tree(model: PreTrainedModel) -> str | None:
    """The reason why a model needs the padded path, or None. Runs two nodes through the tree path to find out."""
    config = model.config.get_text_config()
    for name, neutral in (("final_logit_softcapping", None), ("logit_scale", 1.0), ("logits_scaling", 1.0)):
        if getattr(config, name, None) not in (None, neutral):
            return f"its logits are changed after the LM head ({name})"
    probe = [ScoredSequence(token_ids=(0, 1), prompt_length=1), ScoredSequence(token_ids=(0, 2), prompt_length=1)]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            tree, padded = (f(model, probe, temperature=1.0) for f in (tree_logprobs, padded_logprobs))
    except UnsupportedAttentionError as error:
        return str(error)
    except (AttributeError, TypeError) as error:
        return f"its attention cannot be exchanged ({error})"
    finally:
        model.train(was_training)
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.1
    if not torch.allclose(tree, padded, atol=tolerance):
        return "the tree path gives other log-probabilities than its own attention"
    return None
