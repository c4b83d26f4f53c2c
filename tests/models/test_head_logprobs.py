"""The LM head in tiles: log-softmax in value and gradient, without the logits of all positions at once."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from groupwise.models import head_logprobs
from groupwise.models.head_logprobs import selected_logprobs, selected_logprobs_and_entropies

ROWS = torch.tensor([0, 2, 2, 4])
TOKENS = torch.tensor([3, 0, 10, 3])


def tensors(with_bias: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(5, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(11, generator=generator, dtype=torch.float64, requires_grad=True) if with_bias else None
    return hidden, weight, bias


def test_by_hand() -> None:
    """hidden 1, weights 0, ln 2, ln 5: probabilities 1/8, 2/8, 5/8."""
    weight = torch.tensor([[0.0], [math.log(2)], [math.log(5)]])
    found = selected_logprobs(torch.ones(1, 1), weight, None, torch.tensor([0, 0]), torch.tensor([1, 2]))
    assert found.exp().tolist() == pytest.approx([0.25, 0.625])


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("elements", [1, 15, 20, 1000])  # 5 rows: tiles of 1, 3, 4 and all 11 tokens
def test_value_and_gradient_are_those_of_log_softmax(
    elements: int, with_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_logprobs, "TILE_ELEMENTS", elements)
    hidden, weight, bias = tensors(with_bias)
    leaves = [t for t in (hidden, weight, bias) if t is not None]
    upstream = torch.tensor([0.5, -1.0, 2.0, 0.25], dtype=torch.float64)
    found = selected_logprobs(hidden, weight, bias, ROWS, TOKENS)
    logits = hidden @ weight.t() if bias is None else hidden @ weight.t() + bias
    expected = torch.log_softmax(logits, -1)[ROWS, TOKENS]
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-6)
    grads = torch.autograd.grad((found * upstream).sum(), leaves)
    for grad, wanted in zip(grads, torch.autograd.grad((expected * upstream).sum(), leaves), strict=True):
        torch.testing.assert_close(grad, wanted, rtol=1e-5, atol=1e-6)


def test_an_entropy_by_hand() -> None:
    """Probabilities 1/8, 2/8, 5/8; and four equal ones: ln 4."""
    weight = torch.tensor([[0.0], [math.log(2)], [math.log(5)]])
    first = torch.tensor([0])
    logprobs, entropies = selected_logprobs_and_entropies(torch.ones(1, 1), weight, None, first, torch.tensor([2]))
    assert logprobs.exp().tolist() == pytest.approx([0.625])
    assert entropies.tolist() == pytest.approx([-sum(p * math.log(p) for p in (0.125, 0.25, 0.625))])
    _, even = selected_logprobs_and_entropies(torch.ones(1, 1), torch.ones(4, 1), None, first, first)
    assert even.tolist() == pytest.approx([math.log(4)])


@pytest.mark.parametrize("asked", ["both", "entropies", "logprobs"])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("elements", [1, 15, 20, 1000])
def test_entropies_in_value_and_gradient_are_those_of_log_softmax(
    elements: int, with_bias: bool, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each of the 5 rows, those too that no token is read from; also where only one of the two is used."""
    monkeypatch.setattr(head_logprobs, "TILE_ELEMENTS", elements)
    hidden, weight, bias = tensors(with_bias)
    leaves = [t for t in (hidden, weight, bias) if t is not None]
    of_tokens = torch.tensor([0.5, -1.0, 2.0, 0.25], dtype=torch.float64) * (asked != "entropies")
    of_rows = torch.tensor([1.0, -0.5, 0.25, 3.0, -2.0], dtype=torch.float64) * (asked != "logprobs")
    logprobs, entropies = selected_logprobs_and_entropies(hidden, weight, bias, ROWS, TOKENS)
    logits = hidden @ weight.t() if bias is None else hidden @ weight.t() + bias
    distribution = torch.log_softmax(logits, -1)
    wanted_logprobs, wanted_entropies = distribution[ROWS, TOKENS], -(distribution.exp() * distribution).sum(-1)
    torch.testing.assert_close(logprobs, wanted_logprobs.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(entropies, wanted_entropies.float(), rtol=1e-5, atol=1e-6)
    found, wanted = 0.0, 0.0
    if asked != "entropies":
        found, wanted = (logprobs * of_tokens).sum(), (wanted_logprobs * of_tokens).sum()
    if asked != "logprobs":
        found, wanted = found + (entropies * of_rows).sum(), wanted + (wanted_entropies * of_rows).sum()
    assert isinstance(found, Tensor)
    assert isinstance(wanted, Tensor)
    for grad, right in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(wanted, leaves), strict=True):
        torch.testing.assert_close(grad, right, rtol=1e-4, atol=2e-5)


def test_extreme_logits_have_no_entropy_and_a_finite_gradient() -> None:
    hidden = torch.tensor([[200.0]], requires_grad=True)
    first = torch.tensor([0])
    logprobs, entropies = selected_logprobs_and_entropies(hidden, torch.tensor([[1.0], [-1.0]]), None, first, first)
    (logprobs.sum() + entropies.sum()).backward()
    assert entropies.tolist() == [0.0]
    assert hidden.grad is not None
    assert hidden.grad.item() == 0.0


def test_a_row_that_nobody_reads_has_no_gradient() -> None:
    hidden, weight, _ = tensors(False)
    selected_logprobs(hidden, weight, None, ROWS, TOKENS).sum().backward()
    assert hidden.grad is not None
    assert hidden.grad[[1, 3]].abs().max() == 0


def test_no_token_at_all() -> None:
    none = torch.zeros(0, dtype=torch.long)
    weight = torch.ones(3, 2, requires_grad=True)
    found = selected_logprobs(torch.ones(0, 2, requires_grad=True), weight, None, none, none)
    found.sum().backward()
    assert found.shape == (0,)
    assert weight.grad is not None
    assert weight.grad.abs().max() == 0


def test_a_frozen_head_gets_no_gradient() -> None:
    hidden, weight, _ = tensors(False)
    weight.requires_grad_(False)
    selected_logprobs(hidden, weight, None, ROWS, TOKENS).sum().backward()
    assert weight.grad is None
    assert hidden.grad is not None


def test_extreme_logits_stay_finite() -> None:
    hidden = torch.tensor([[200.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]])
    found = selected_logprobs(hidden, weight, None, torch.tensor([0, 0]), torch.tensor([0, 1]))
    found.sum().backward()
    assert found.tolist() == [0.0, -400.0]
    assert hidden.grad is not None
    assert hidden.grad.item() == -2.0  # d/dh of (0) + (-2 h)
