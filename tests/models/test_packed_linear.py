"""Packed linear layers: the same products, and nothing left behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from groupwise.models.packed_linear import packed_linears


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 32, bias=False), nn.LayerNorm(32))


@pytest.mark.parametrize("num_rows", [1, 7, 300])
def test_the_products_are_equal_up_to_rounding(num_rows):
    model, inputs = layers(), torch.randn(num_rows, 48)
    with torch.inference_mode():
        expected = model(inputs)
        with packed_linears(model, num_rows=64):
            found = model(inputs)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_the_layers_are_their_own_again_even_after_an_error():
    model = layers()
    with pytest.raises(RuntimeError, match="shapes"), packed_linears(model, num_rows=4):
        model[1](torch.randn(2, 3) @ torch.randn(2, 3))
    assert all("forward" not in vars(layer) for layer in model)


def test_weights_changed_between_two_uses_are_seen():
    model, inputs = layers(), torch.randn(3, 48)
    with torch.inference_mode():
        with packed_linears(model, num_rows=3):
            before = model(inputs)
        model[0].weight.mul_(2)
        with packed_linears(model, num_rows=3):
            assert not torch.allclose(model(inputs), before)


def test_other_precisions_and_layers_are_left_alone():
    model = layers().double()
    with packed_linears(model, num_rows=4):
        assert all("forward" not in vars(layer) for layer in model)


def test_inside_the_linear_layers_are_replaced():
    model = layers()
    with packed_linears(model, num_rows=4):
        assert ["forward" in vars(layer) for layer in model] == [True, False, True, False]
