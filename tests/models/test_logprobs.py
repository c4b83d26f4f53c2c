from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from groupwise.models import (
    LoadedModel,
    ScoredSequence,
    TokenScores,
    loss_mask,
    padded_logprobs,
    padded_scores,
    tree_logprobs,
    tree_scores,
    why_no_tree,
)
from groupwise.models import logprobs as logprobs_module
from groupwise.models.head_logprobs import selected_logprobs
from groupwise.models.tree_attention import UnsupportedAttentionError

TinyModel = Callable[..., LoadedModel]
TREE_FAMILIES = ["llama", "qwen2", "qwen3", "gpt2"]

HEADER = (10, 11, 12, 13)
FIRST, SECOND = (*HEADER, 20, 21), (*HEADER, 30)


def sequence(prompt: tuple[int, ...], *completion: int) -> ScoredSequence:
    return ScoredSequence(token_ids=prompt + completion, prompt_length=len(prompt))


# Two prompts under one header. Completions: equal ones, ones that share a first part, of 1 token and of none; and one
# whose prompt is another's prompt and completion, so that one node is trained here and context there.
SEQUENCES = [
    sequence(FIRST, 40, 41, 42),
    sequence(FIRST, 40, 41, 43, 44, 45),
    sequence(SECOND, 40, 41, 42),
    sequence(FIRST, 40, 41, 42),
    sequence(SECOND),
    sequence(FIRST, 46),
    sequence((*FIRST, 40, 41), 47, 48),
    sequence((77,), 78),
]
# Distinct prefixes: header 4; 20 21; 40 41 42; 43 44 45; 46; 47 48; 30; 40 41 42; 77 78.
NUM_NODES = 4 + 2 + 3 + 3 + 1 + 2 + 1 + 3 + 2


def value_and_gradient(
    function: Callable[..., Tensor], model: PreTrainedModel, temperature: float
) -> tuple[Tensor, Tensor]:
    """The log-probabilities, and the gradient of a sum that weights every cell differently."""
    model.zero_grad()
    found = function(model, SEQUENCES, temperature=temperature)
    weights = torch.linspace(-1.0, 2.0, found.numel()).view_as(found)
    (found * weights).sum().backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found.detach(), gradient


@contextmanager
def rows_through(module: torch.nn.Module) -> Iterator[list[int]]:
    """Collects the number of rows of every call of the module."""
    rows: list[int] = []
    hook = module.register_forward_hook(lambda _, inputs, output: rows.append(output.shape[:-1].numel()))
    try:
        yield rows
    finally:
        hook.remove()


def largest_kept(run: Callable[[], Tensor]) -> int:
    """Elements of the largest tensor that the backward pass of run() keeps."""
    sizes = [0]

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return max(sizes)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_the_tree_equals_the_padded_batch(tiny_model: TinyModel, family: str, temperature: float) -> None:
    model = tiny_model(family).model
    tree, tree_gradient = value_and_gradient(tree_logprobs, model, temperature)
    padded, padded_gradient = value_and_gradient(padded_logprobs, model, temperature)
    torch.testing.assert_close(tree, padded, atol=1e-5, rtol=0)
    assert (tree_gradient - padded_gradient).norm() <= 1e-5 * padded_gradient.norm()
    assert padded_gradient.norm() > 0.1


@pytest.mark.parametrize("read", ["logprobs", "entropies", "values"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_entropies_and_values_of_the_tree_equal_those_of_the_padded_batch(
    tiny_model: TinyModel, family: str, read: str
) -> None:
    """In value and in the gradients of model and value head."""
    model = tiny_model(family).model
    torch.manual_seed(3)
    head = torch.nn.Linear(model.config.hidden_size, 1)

    def of(function: Callable[..., TokenScores]) -> Callable[..., Tensor]:
        def one(model: PreTrainedModel, sequences: Any, *, temperature: float) -> Tensor:
            scores = function(model, sequences, temperature=temperature, entropy=True, value_head=head)
            assert all(found is not None for found in scores)
            chosen: Tensor = getattr(scores, read)
            return chosen

        return one

    head.zero_grad()
    tree, tree_gradient = value_and_gradient(of(tree_scores), model, 0.7)
    of_head = None if head.weight.grad is None else head.weight.grad.clone()
    head.zero_grad()
    padded, padded_gradient = value_and_gradient(of(padded_scores), model, 0.7)
    torch.testing.assert_close(tree, padded, atol=1e-5, rtol=0)
    assert (tree_gradient - padded_gradient).norm() <= 1e-5 * padded_gradient.norm()
    assert padded_gradient.norm() > 0.01
    assert (of_head is not None) == (read == "values")
    if of_head is not None:
        torch.testing.assert_close(of_head, head.weight.grad, atol=1e-5, rtol=1e-5)


def test_entropies_and_values_equal_one_forward_per_sequence(tiny_model: TinyModel) -> None:
    """Of the distribution that the token was drawn from, at the temperature; the value of the state before it."""
    model = tiny_model().model
    head = torch.nn.Linear(model.config.hidden_size, 1)
    with torch.no_grad():
        scores = tree_scores(model, SEQUENCES, temperature=1.3, entropy=True, value_head=head)
        for row, scored in enumerate(SEQUENCES):
            output = model(torch.tensor([scored.token_ids]), output_hidden_states=True)
            before = slice(scored.prompt_length - 1, len(scored.token_ids) - 1)
            probabilities = torch.softmax(output.logits[0, before] / 1.3, dim=-1)
            wanted = -(probabilities * probabilities.log()).sum(dim=-1)
            values = head(output.hidden_states[-1][0, before]).squeeze(-1)
            assert scores.entropies is not None
            assert scores.values is not None
            torch.testing.assert_close(scores.entropies[row, : scored.num_trained], wanted, atol=1e-5, rtol=0)
            torch.testing.assert_close(scores.values[row, : scored.num_trained], values, atol=1e-5, rtol=0)
            assert not scores.entropies[row, scored.num_trained :].any()
            assert not scores.values[row, scored.num_trained :].any()


@pytest.mark.parametrize("function", [tree_scores, padded_scores])
def test_what_was_not_asked_for_is_none(tiny_model: TinyModel, function: Callable[..., TokenScores]) -> None:
    scores = function(tiny_model().model, SEQUENCES, temperature=1.0)
    assert (scores.entropies, scores.values) == (None, None)


def test_both_ways_equal_one_forward_per_sequence(tiny_model: TinyModel) -> None:
    """A third way, without batch, padding or tree: the two above could share a mistake."""
    model = tiny_model().model
    temperature = 1.3
    found = tree_logprobs(model, SEQUENCES, temperature=temperature).detach()
    for row, scored in enumerate(SEQUENCES):
        logits = model(torch.tensor([scored.token_ids])).logits[0].detach() / temperature
        for column, position in enumerate(range(scored.prompt_length, len(scored.token_ids))):
            probability = torch.softmax(logits[position - 1], dim=-1)[scored.token_ids[position]]
            assert float(found[row, column]) == pytest.approx(float(probability.log()), abs=1e-5)
        assert not found[row, scored.num_trained :].any()


def test_the_order_of_the_sequences_does_not_matter(tiny_model: TinyModel) -> None:
    model = tiny_model().model
    with torch.no_grad():
        forwards = tree_logprobs(model, SEQUENCES, temperature=1.0)
        backwards = tree_logprobs(model, SEQUENCES[::-1], temperature=1.0)
    torch.testing.assert_close(backwards.flip(0), forwards, atol=1e-6, rtol=0)


@pytest.mark.parametrize("function", [tree_logprobs, padded_logprobs])
def test_completions_of_no_tokens_give_zeros(tiny_model: TinyModel, function: Callable[..., Tensor]) -> None:
    found = function(tiny_model().model, [sequence(FIRST), sequence(SECOND)], temperature=1.0)
    assert found.tolist() == [[0.0], [0.0]]


def test_a_completion_without_a_prompt_is_refused(tiny_model: TinyModel) -> None:
    with pytest.raises(ValueError, match="prompt of at least 1 token"):
        tree_logprobs(tiny_model().model, [sequence(FIRST, 1), sequence((), 1, 2)], temperature=1.0)


def test_every_distinct_prefix_is_forwarded_once(tiny_model: TinyModel) -> None:
    model = tiny_model().model
    with rows_through(model.get_input_embeddings()) as rows, torch.no_grad():
        tree_logprobs(model, SEQUENCES, temperature=1.0)
    assert rows == [NUM_NODES]


def test_only_positions_before_a_trained_token_reach_the_head(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Parents of trained nodes: under FIRST its last token, 40, 41, 43, 44 and 47; under SECOND its last token, 40, 41;
    # and 77. Under FIRST 40 and 46 share a parent, and so do 42, 43 and 47.
    num_parents = 6 + 3 + 1
    rows: list[int] = []

    def counted(hidden: Tensor, *arguments: Any) -> Tensor:
        rows.append(len(hidden))
        return selected_logprobs(hidden, *arguments)

    monkeypatch.setattr(logprobs_module, "selected_logprobs", counted)
    with torch.no_grad():
        tree_logprobs(tiny_model().model, SEQUENCES, temperature=1.0)
    assert rows == [num_parents]


def test_no_logits_are_kept_for_the_backward_pass(tiny_model: TinyModel) -> None:
    model = tiny_model().model
    one_group = [sequence(FIRST, *range(40, 60)), sequence(FIRST, *range(60, 90))]
    num_trained, vocabulary = 50, model.config.vocab_size
    assert largest_kept(lambda: padded_logprobs(model, one_group, temperature=1.0)) >= num_trained * vocabulary
    # The largest thing kept is the head's or a layer's weight or activation, all below [57, 64] and [259, 32].
    assert largest_kept(lambda: tree_logprobs(model, one_group, temperature=1.0)) < num_trained * vocabulary


def test_loss_mask_by_hand() -> None:
    found = loss_mask([sequence((1, 2), 3), sequence((1,), 2, 3, 4), sequence((1,))])
    assert found.tolist() == [[True, False, False], [True, True, True], [False, False, False]]
    assert loss_mask([sequence((1, 2))]).tolist() == [[False]]


@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_a_tree_serves_full_attention(tiny_model: TinyModel, family: str) -> None:
    assert why_no_tree(tiny_model(family).model) is None


@pytest.mark.parametrize(("family", "reason"), [("gemma2", "final_logit_softcapping"), ("mistral_window", "window")])
def test_a_tree_serves_no_soft_cap_and_no_window(tiny_model: TinyModel, family: str, reason: str) -> None:
    assert reason in str(why_no_tree(tiny_model(family).model))


@pytest.mark.parametrize("sliding_window", [4, None])
def test_a_soft_cap_inside_the_attention_is_found(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, sliding_window: int | None
) -> None:
    model = tiny_model("gemma2").model
    monkeypatch.setattr(model.config, "final_logit_softcapping", None)
    for layer in model.base_model.layers:
        monkeypatch.setattr(layer.self_attn, "sliding_window", sliding_window)
    assert ("sliding_window" if sliding_window else "softcap") in str(why_no_tree(model))


def test_another_difference_is_found_by_comparing(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a model that scales its logits under a name that nobody listed."""
    model = tiny_model().model
    head = copy.deepcopy(model.get_output_embeddings())
    with torch.no_grad():
        head.weight.mul_(1.5)
    monkeypatch.setattr(model, "get_output_embeddings", lambda: head)  # what the model's own forward does not do
    assert why_no_tree(model) == "the tree path gives other log-probabilities than its own attention"


def test_a_head_that_is_no_linear_layer_is_found(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model().model
    monkeypatch.setattr(model, "get_output_embeddings", lambda: lambda hidden: hidden)
    assert "not a plain linear layer" in str(why_no_tree(model))


def test_a_window_in_a_family_with_fused_layers_is_found(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model("qwen2").model
    monkeypatch.setattr(model.base_model.layers[0].self_attn, "sliding_window", 4)
    assert "sliding_window" in str(why_no_tree(model))


def test_the_probe_leaves_training_mode_as_it_was(tiny_model: TinyModel) -> None:
    model = tiny_model().model
    model.train()
    try:
        assert why_no_tree(model) is None
        assert model.training
    finally:
        model.eval()


def test_a_model_that_the_tree_cannot_serve_raises(tiny_model: TinyModel) -> None:
    model = tiny_model("mistral_window").model
    before = model.config._attn_implementation
    with pytest.raises(UnsupportedAttentionError, match="sliding_window"):
        tree_logprobs(model, SEQUENCES, temperature=1.0)
    assert model.config._attn_implementation == before


@pytest.mark.parametrize("family", ["gemma2", "mistral_window"])
def test_padding_serves_every_model(tiny_model: TinyModel, family: str) -> None:
    model = tiny_model(family).model
    with torch.no_grad():
        found = padded_logprobs(model, SEQUENCES, temperature=1.0)
        for row, scored in enumerate(SEQUENCES):
            alone = torch.log_softmax(model(torch.tensor([scored.token_ids])).logits[0], dim=-1)
            ids = torch.tensor(scored.token_ids)[scored.prompt_length :]
            wanted = alone[scored.prompt_length - 1 : -1].gather(-1, ids[:, None]).squeeze(-1)
            torch.testing.assert_close(found[row, : scored.num_trained], wanted, atol=1e-5, rtol=0)
