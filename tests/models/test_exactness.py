"""The token tree against the padded batch: equal log-probabilities and an equal gradient of every trained parameter.

The cases are the shapes that a batch of groups can have; the rows of the matrix are model families, gradient
checkpointing, LoRA, sizes of the blocks that attention and LM head work in, and random trees.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from groupwise.models import (
    LoadedModel,
    ScoredSequence,
    TokenTree,
    padded_logprobs,
    trained_layers,
    tree_logprobs,
    why_no_tree,
)
from groupwise.models import block_attention as attention_module
from groupwise.models import head_logprobs as head_module
from groupwise.models.gradient_checkpointing import with_gradient_checkpointing

TinyModel = Callable[..., LoadedModel]
TREE_FAMILIES = ["llama", "qwen2", "qwen3", "gpt2"]
OTHER_FAMILIES = ["gemma2", "mistral_window"]

LOGPROB_TOLERANCE = 1e-5
"""Nats: a few roundings of logits between -20 and 20 in float32; a temperature below 1 makes them larger."""
GRADIENT_TOLERANCE = 1e-5
"""Of the largest gradient of the same parameter."""
GRADIENT_FLOOR = 1e-6
"""Below this a gradient is rounding of the cells' weights, which are about 1: some are 0 in exact arithmetic, such as
that of a key bias, which shifts all scores of a query alike."""


def group(prompt: Sequence[int], *completions: Sequence[int]) -> list[ScoredSequence]:
    return [ScoredSequence(token_ids=(*prompt, *c), prompt_length=len(prompt)) for c in completions]


SYSTEM = tuple(range(100, 120))
FIRST, SECOND = (*SYSTEM, 1, 2, 3), (*SYSTEM, 4)

CASES = {
    "one sequence": group(FIRST, (7, 8, 9)),
    "a completion of no token": group(FIRST, (), (7, 8)),
    "a completion of one token": group(FIRST, (7,), (8, 9, 10)),
    "equal completions": group(FIRST, (7, 8, 9), (7, 8, 9), (6,)),
    "a completion that begins another": group(FIRST, (7, 8), (7, 8, 9, 10)),
    "completions that share a first part": group(FIRST, (7, 8, 9), (7, 8, 10, 11), (7, 12)),
    "prompts under one system turn": [*group(FIRST, (7, 8), (9,)), *group(SECOND, (7, 8), (10, 11))],
    "a prompt that begins another": [*group(SYSTEM, (1, 2, 9), (5,)), *group(FIRST, (7, 8), (9,))],
    "a prompt that is another's prompt and completion": [*group(FIRST, (7, 8)), *group((*FIRST, 7, 8), (9, 10))],
    "equal prompts in two groups": [*group(FIRST, (7, 8), (9,)), *group(FIRST, (7, 10))],
    "prompts that share nothing": [*group((1,), (7, 8)), *group((2, 3), (7, 8, 9))],
    "a completion longer than a block": group(FIRST, tuple(i % 90 for i in range(150)), (7, 8)),
    "more completions than fill a block": group(FIRST, *((i, i + 1, i + 2) for i in range(40))),
}


def cell_weights(shape: torch.Size) -> Tensor:
    """Another weight for every cell, so that no two errors cancel."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(5))


def value_and_gradients(
    logprobs: Callable[..., Tensor], model: PreTrainedModel, sequences: list[ScoredSequence], temperature: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """The log-probabilities, and the gradient of their weighted sum for every trained parameter (0 where unused)."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = logprobs(model, sequences, temperature=temperature)
    total = (found * cell_weights(found.shape)).sum()
    gradients = torch.autograd.grad(total, list(trained.values()), allow_unused=True, materialize_grads=True)
    return found.detach(), dict(zip(trained, gradients, strict=True))


def assert_exact(
    model: PreTrainedModel,
    sequences: list[ScoredSequence],
    *,
    temperature: float = 1.0,
    logprobs: Callable[..., Tensor] = tree_logprobs,
) -> None:
    found, gradients = value_and_gradients(logprobs, model, sequences, temperature)
    expected, expected_gradients = value_and_gradients(padded_logprobs, model, sequences, temperature)
    torch.testing.assert_close(found, expected, atol=LOGPROB_TOLERANCE / min(temperature, 1.0), rtol=0)
    for name, gradient in gradients.items():
        largest = expected_gradients[name].abs().max().item()
        error = (gradient - expected_gradients[name]).abs().max().item()
        assert error <= GRADIENT_TOLERANCE * largest + GRADIENT_FLOOR, f"{name}: off by {error} of {largest}"
    assert max(g.abs().max().item() for g in expected_gradients.values()) > 0.1


def with_lora(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of the model with adapters that do something: B is 0 at the start, and with it the gradient of A."""
    pytest.importorskip("peft", reason="needs peft")
    from groupwise.models.lora import add_lora

    adapted = copy.deepcopy(model)
    add_lora(adapted, rank=4, alpha=8.0, seed=0, source="tiny")
    generator = torch.Generator().manual_seed(1)
    for name, parameter in adapted.named_parameters():
        if ".lora_B." in name:
            parameter.data.normal_(std=0.1, generator=generator)
    return adapted


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_every_shape_of_a_batch(tiny_model: TinyModel, family: str, case: str) -> None:
    assert_exact(tiny_model(family).model, CASES[case])


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.5])
@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_every_temperature(tiny_model: TinyModel, family: str, temperature: float) -> None:
    assert_exact(tiny_model(family).model, CASES["prompts under one system turn"], temperature=temperature)


@pytest.mark.parametrize("case", ["a prompt that begins another", "a completion longer than a block"])
@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_with_gradient_checkpointing(tiny_model: TinyModel, family: str, case: str) -> None:
    assert_exact(tiny_model(family).model, CASES[case], logprobs=with_gradient_checkpointing(tree_logprobs))


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_with_lora(tiny_model: TinyModel, family: str, checkpointed: bool) -> None:
    model = with_lora(tiny_model(family).model)
    logprobs = with_gradient_checkpointing(tree_logprobs) if checkpointed else tree_logprobs
    assert {name.split(".")[-2] for name, p in model.named_parameters() if p.requires_grad} == {"default"}
    for case in ("prompts under one system turn", "a prompt that begins another"):
        assert_exact(model, CASES[case], logprobs=logprobs)


@pytest.mark.parametrize("case", ["prompts under one system turn", "a completion longer than a block"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_with_the_models_own_modules(
    tiny_model: TinyModel, family: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU and half precision use: without the layers that are written out for training on a CPU."""
    monkeypatch.setattr(trained_layers, "has_fused_layers", lambda model: False)
    assert_exact(tiny_model(family).model, CASES[case])


@pytest.mark.parametrize("trained", [0, 1])
@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_with_every_other_parameter_frozen(tiny_model: TinyModel, family: str, trained: int) -> None:
    model = copy.deepcopy(tiny_model(family).model)
    for number, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(number % 2 == trained)
    assert_exact(model, CASES["prompts under one system turn"])


@pytest.mark.parametrize("block", [1, 4, 7, 1000])
@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
def test_every_block_size(tiny_model: TinyModel, family: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention in blocks of queries and the LM head in tiles of the vocabulary; 1000 is one block for all."""
    monkeypatch.setattr(attention_module, "QUERY_BLOCK", block)
    monkeypatch.setattr(head_module, "TILE_ELEMENTS", 40 * block)
    for case in ("a prompt that begins another", "completions that share a first part", "prompts that share nothing"):
        assert_exact(tiny_model(family).model, CASES[case])


token = st.integers(0, 2)
random_sequences = st.lists(
    st.tuples(st.lists(token, min_size=1, max_size=7), st.lists(token, max_size=7)), min_size=1, max_size=8
).map(lambda pairs: [s for prompt, completion in pairs for s in group(prompt, completion)])


@given(sequences=random_sequences)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_random_trees(tiny_model: TinyModel, sequences: list[ScoredSequence]) -> None:
    """Three tokens only, so that prefixes meet everywhere: inside prompts, inside completions, one in the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_module, "QUERY_BLOCK", 4)
        patch.setattr(head_module, "TILE_ELEMENTS", 100)
        always_trained = group((0, 1), (2, 1))
        assert_exact(tiny_model("qwen2").model, [*sequences, *always_trained])


@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_a_tree_that_sees_too_much_would_be_noticed(
    tiny_model: TinyModel, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The matrix can fail: plain causal attention over the nodes lets a completion see its siblings."""
    build = TokenTree.build

    def causal(sequences: Sequence[Sequence[int]]) -> Any:
        tree = build(sequences)
        tree.subtree_end.fill_(tree.num_nodes)
        return tree

    monkeypatch.setattr(TokenTree, "build", causal)
    with pytest.raises(AssertionError):
        assert_exact(tiny_model(family).model, CASES["completions that share a first part"])


@pytest.mark.parametrize("family", OTHER_FAMILIES)
def test_models_that_a_tree_cannot_serve_are_named(tiny_model: TinyModel, family: str) -> None:
    assert why_no_tree(tiny_model(family).model)


class LargestLogits(TorchDispatchMode):
    """Remembers the most numbers in a tensor [..., vocabulary] or [rows, any] that an operation makes, going forward or
    back, where `rows` is how many positions reach the LM head. The head's own weight, transposed, is not one of them.
    """

    def __init__(self, vocabulary: int, num_rows: int) -> None:
        super().__init__()
        self.vocabulary, self.num_rows = vocabulary, num_rows
        self.num_logits = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = function(*args, **(kwargs or {}))
        for tensor in output if isinstance(output, tuple | list) else (output,):
            if isinstance(tensor, Tensor) and not function.is_view and self._has_the_shape_of_logits(tensor.shape):
                self.num_logits = max(self.num_logits, tensor.numel())
        return output

    def _has_the_shape_of_logits(self, shape: torch.Size) -> bool:
        return len(shape) > 1 and (shape[-1] == self.vocabulary or shape[:-1].numel() == self.num_rows)


@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_no_operation_makes_the_logits_of_all_positions(
    tiny_model: TinyModel, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(family).model
    vocabulary, tile = model.config.vocab_size, 12_000
    monkeypatch.setattr(head_module, "TILE_ELEMENTS", tile)
    rows = group(FIRST, tuple(range(100)), tuple(range(1, 101)))
    num_rows = 1 + 2 * 99  # the prompt's last token, and every completion token but the last
    found = {}
    for logprobs in (tree_logprobs, padded_logprobs):
        with LargestLogits(vocabulary, num_rows) as largest:
            value_and_gradients(logprobs, model, rows, 1.0)
        found[logprobs] = largest.num_logits
    assert found[padded_logprobs] == 2 * (len(FIRST) + 100) * vocabulary
    assert tile / 2 < found[tree_logprobs] <= tile < num_rows * vocabulary
