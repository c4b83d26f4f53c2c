"""Log-probabilities of sequences under a model: by token tree, and by padded batch as the oracle and the fallback.

Both ways return the same [B, L] matrix of the log-probabilities (nats, float32) of the *completion* tokens of each
sequence, at the temperature that sampled them. The tree way forwards each distinct prefix once, sends only positions
whose successor is trained through the LM head, and takes the log-softmax in chunks that are recomputed in the
backward pass, so that no [tokens, vocabulary] tensor is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from groupwise.models.head_logprobs import selected_logprobs
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


def loss_mask(sequences: Sequence[ScoredSequence], *, device: torch.device | None = None) -> Tensor:
    """[B, L] bool: True where a row has a completion token. L is the longest completion, at least 1."""
    lengths = torch.tensor([s.num_trained for s in sequences], device=device)
    longest = max([1, *(s.num_trained for s in sequences)])
    return torch.arange(longest, device=device)[None, :] < lengths[:, None]


def tree_logprobs(model: PreTrainedModel, sequences: Sequence[ScoredSequence], *, temperature: float) -> Tensor:
    """[B, L] log-probabilities of the completions, by one forward over their token tree; 0 where a row has ended.

    Equal to `padded_logprobs` in value and gradient up to rounding (1e-5 relative in float32).

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
        raise ValueError("tree_logprobs: a completion needs a prompt of at least 1 token")
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear:
        raise UnsupportedAttentionError(f"its LM head is a {type(head).__name__}, not a plain linear layer")
    by_node = selected_logprobs(
        hidden[parents.to(device)] / temperature,
        head.weight,
        head.bias,
        row_of_parent.to(device),
        tree.token_ids[trained].to(device),
    )
    mask = loss_mask(sequences, device=device)
    return torch.zeros(mask.shape, device=device).masked_scatter(mask, by_node[row_of_node.to(device)])


def padded_logprobs(model: PreTrainedModel, sequences: Sequence[ScoredSequence], *, temperature: float) -> Tensor:
    """[B, L] log-probabilities of the completions, by a right-padded batch through the model's own attention.

    Serves every causal model; costs sum(len) tokens and a [B, length, vocabulary] tensor of logits.
    """
    device = model.device
    width = max(len(s.token_ids) for s in sequences)
    ids = torch.zeros((len(sequences), width), dtype=torch.long)
    present = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence.token_ids)] = torch.tensor(sequence.token_ids)
        present[row, : len(sequence.token_ids)] = 1
    logits = model(input_ids=ids.to(device), attention_mask=present.to(device), use_cache=False).logits
    logprobs = torch.log_softmax(logits[:, :-1].float() / temperature, dim=-1)
    next_logprobs = logprobs.gather(-1, ids[:, 1:, None].to(device)).squeeze(-1)
    mask = loss_mask(sequences, device=device)
    completions = [next_logprobs[r, s.prompt_length - 1 : len(s.token_ids) - 1] for r, s in enumerate(sequences)]
    return torch.zeros(mask.shape, device=device).masked_scatter(mask, torch.cat(completions))


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
