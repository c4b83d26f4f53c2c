"""A value network: one linear head that says, before each token of a completion, what the completion will still earn.

    value[t] = w . hidden state of the token before t + b            [D] -> 1

Two places for the head: on a body of its own (ValueModel), a copy of the policy's or that of a reward model, or on the
policy's own last hidden states (`with_value_head`). All completions of a prompt share its nodes of a token tree, so
that one forward serves them all; a right-padded batch is the oracle, and the fallback for models that a tree cannot
serve. A head begins at zero: it then predicts 0 everywhere, and the first advantages are what was earned.

Differs from a reward model (reward_model.py): a score is read once, behind the last token of a completion.

On disk a value model is an ordinary Hugging Face folder, the body without an LM head, with value_head.safetensors in it
(weight [1, D] and bias [1], float32). A head on the policy is that one file, beside the policy's own.

Source of the zero start: "The N implementation details of RLHF with PPO", 2023, of the code of arXiv:1909.08593.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from groupwise.errors import EngineError
from groupwise.models.body import copied_body
from groupwise.models.logprobs import ScoredSequence, ScoreFunction, TokenScores, loss_mask
from groupwise.models.lora import adapted_layers, merged_state_dict
from groupwise.models.reward_model import RewardModel, why_no_reward_tree
from groupwise.models.token_tree import TokenTree
from groupwise.models.trained_layers import training_forward
from groupwise.models.tree_attention import tree_plan

HEAD_FILE = "value_head.safetensors"


class ValueHead(nn.Module):
    """Hidden states [.., D] of any dtype to values [.., 1] in float32: a value in bfloat16 has two digits."""

    def __init__(self, width: int) -> None:
        """Zero weight and bias."""
        super().__init__()
        self.linear = nn.Linear(width, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        """[.., D] -> [.., 1]."""
        values: Tensor = self.linear(states.float())
        return values


class ValueModel(nn.Module):
    """A body and its head.

    Example:
        critic = value_model_from(policy.model)
        tree_values(critic, sequences)               # [B, L], zeros at the start
    """

    def __init__(self, body: PreTrainedModel, head: ValueHead) -> None:
        """body gives last hidden states [.., D] without an LM head."""
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


class ValueFunction(Protocol):
    """tree_values or padded_values."""

    def __call__(self, model: ValueModel, sequences: Sequence[ScoredSequence]) -> Tensor:
        """[B, L] float32: the value of the state before each completion token, 0 where a row has ended."""
        ...


def value_head_for(model: PreTrainedModel) -> ValueHead:
    """A new head for the model's last hidden states, on its device."""
    return ValueHead(model.config.get_text_config().hidden_size).to(model.device)


def value_model_from(model: PreTrainedModel) -> ValueModel:
    """A copy of a language model's body, as trainable as the model is, with a new head; the model stays as it is.

    Frozen weights, the base below adapters, are shared with the model, not copied.
    """
    return ValueModel(copied_body(model), value_head_for(model)).eval()


def tree_values(model: ValueModel, sequences: Sequence[ScoredSequence]) -> Tensor:
    """[B, L] values by one forward over the sequences' token tree. Equal to padded_values up to rounding.

    Raises:
        UnsupportedAttentionError: if the body cannot be served by a tree.
    """
    _refuse_empty_prompts(sequences)
    tree = TokenTree.build([s.token_ids for s in sequences])
    device = model.device
    plan = tree_plan(tree, device=device)
    hidden = training_forward(model.body, tree.token_ids.to(device), tree.depth.to(device), plan)
    nodes = [path[s.prompt_length :] for path, s in zip(tree.paths, sequences, strict=True)]
    before = tree.parent[torch.cat(nodes)].to(device)
    return _by_token(model.head(hidden).squeeze(-1)[before], sequences)


def padded_values(model: ValueModel, sequences: Sequence[ScoredSequence]) -> Tensor:
    """[B, L] values by a right-padded batch through the body's own attention."""
    _refuse_empty_prompts(sequences)
    device = model.device
    lengths = torch.tensor([len(s.token_ids) for s in sequences])
    ids = torch.zeros((len(sequences), int(lengths.max())), dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence.token_ids)] = torch.tensor(sequence.token_ids)
    present = (torch.arange(ids.shape[1])[None, :] < lengths[:, None]).long()
    output = model.body(input_ids=ids.to(device), attention_mask=present.to(device), use_cache=False)
    of_place = model.head(output.last_hidden_state).squeeze(-1)
    before = [of_place[r, s.prompt_length - 1 : len(s.token_ids) - 1] for r, s in enumerate(sequences)]
    return _by_token(torch.cat(before), sequences)


def _by_token(values: Tensor, sequences: Sequence[ScoredSequence]) -> Tensor:
    """The values of all completion tokens, row after row, as [B, L]."""
    mask = loss_mask(sequences, device=values.device)
    return torch.zeros(mask.shape, device=values.device).masked_scatter(mask, values)


def _refuse_empty_prompts(sequences: Sequence[ScoredSequence]) -> None:
    if any(s.prompt_length < 1 for s in sequences):
        raise ValueError("values: a completion needs a prompt of at least 1 token, there is no state before it")


def values_of(model: ValueModel) -> ValueFunction:
    """The fastest way that serves a model: two nodes are run through both to find out."""
    width: int = model.config.get_text_config().hidden_size
    # the model's own head may be zero, and both ways would agree on that
    head = nn.Linear(width, 1, bias=False)
    nn.init.constant_(head.weight, width**-0.5)
    head.weight.data[:, ::2] *= -1
    reason = why_no_reward_tree(RewardModel(model.body, head.to(model.device)))
    return tree_values if reason is None else padded_values


def score_function(values: ValueFunction) -> ScoreFunction:
    """The values as a ScoreFunction. A value model has no next-token distribution: logprobs are 0, and neither
    temperature nor entropy means anything."""

    def scores(
        model: Any, sequences: Sequence[ScoredSequence], *, temperature: float, entropy: bool = False
    ) -> TokenScores:
        found = values(model, sequences)
        return TokenScores(torch.zeros_like(found), None, found)

    return scores


def with_value_head(scores: Callable[..., TokenScores], head: nn.Module) -> ScoreFunction:
    """tree_scores or padded_scores that also give the values of this head on the policy's last hidden states."""
    return functools.partial(scores, value_head=head)


def save_value_model(folder: Path, model: ValueModel) -> Path:
    """Writes a folder that `load_value_model` opens; adapters are added into the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    if adapted_layers(model.body):
        model.body.save_pretrained(folder, state_dict=merged_state_dict(model.body))
    else:
        model.body.save_pretrained(folder)
    save_value_head(folder, model.head)
    return folder


def save_value_head(folder: Path, head: ValueHead) -> None:
    """Writes the head's file into the folder."""
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in _state(head).items()}, folder / HEAD_FILE)


def load_value_model(folder: Path, *, device: torch.device, dtype: torch.dtype) -> ValueModel:
    """The value model of a folder, in evaluation mode.

    Raises:
        EngineError: if the folder holds none, or one that cannot be read.
    """
    try:
        body = AutoModel.from_pretrained(folder, dtype=dtype).to(device)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().split("\n")[0][:300]
        raise EngineError(f"value model: {folder} cannot be read.\n  {first}") from error
    head = value_head_for(body)
    load_value_head(folder, head)
    return ValueModel(body, head).eval()


def load_value_head(folder: Path, head: ValueHead) -> None:
    """Reads the head's file of the folder into `head`.

    Raises:
        EngineError: if there is none, or it has another width.
    """
    path = folder / HEAD_FILE
    if not path.is_file():
        raise EngineError(
            f"value model: {folder} holds no {HEAD_FILE}.\n  Give the critic/ folder of a ppo stage's checkpoint."
        )
    found = load_file(path)
    wanted = _state(head)
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
    if shapes != {name: tuple(tensor.shape) for name, tensor in wanted.items()}:
        raise EngineError(f"value model: {path} has shapes {shapes}, the body needs weight {wanted['weight'].shape}.")
    head.linear.load_state_dict(found)


def _state(head: ValueHead) -> dict[str, Tensor]:
    return dict(head.linear.state_dict())
