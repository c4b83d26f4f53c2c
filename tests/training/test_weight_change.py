"""How far the weights moved: by hand, by a sample of many, and lost in the rounding of bfloat16."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from groupwise.training import OptimOptions, weight_change
from groupwise.training.optim import build_optimizer
from groupwise.training.weight_change import SAMPLED, WeightChange


def parameters(*sizes: tuple[int, ...], dtype: torch.dtype = torch.float32, scale: float = 0.02) -> nn.ParameterList:
    generator = torch.Generator().manual_seed(3)
    return nn.ParameterList(nn.Parameter((torch.randn(s, generator=generator) * scale).to(dtype)) for s in sizes)


def sgd(trained: nn.ParameterList) -> torch.optim.Optimizer:
    return torch.optim.SGD(trained.parameters(), lr=1.0)


@torch.no_grad()
def test_norm_and_share_by_hand() -> None:
    trained = parameters((3, 2), (4,))
    change = WeightChange(sgd(trained))
    assert change.metrics() == {"update_norm": 0.0, "weights_moved_frac": 0.0}
    trained[0][1, 0] = 3 + trained[0][1, 0]
    trained[1][2] = trained[1][2] - 4
    assert change.metrics() == {"update_norm": pytest.approx(5.0), "weights_moved_frac": 0.2}  # 2 of 6 + 4 weights
    assert change.metrics() == {"update_norm": 0.0, "weights_moved_frac": 0.0}  # against the last look


@torch.no_grad()
def test_a_sample_of_many_weights_stands_for_all_of_them() -> None:
    """A large tensor of which a third moves, a small one that moves as a whole, and a norm of 8 weights."""
    trained = parameters((900, 1000), (300, 300), (8,))
    change = WeightChange(sgd(trained))
    assert change._positions is not None
    assert sum(p.numel() for p in change._positions) <= SAMPLED + 16
    generator = torch.Generator().manual_seed(5)
    before = [p.clone() for p in trained]
    trained[0].add_(torch.randn(900, 1000, generator=generator) * (torch.rand(900, 1000, generator=generator) < 1 / 3))
    trained[1].add_(1.0)
    trained[2].mul_(2.0)
    found = change.metrics()
    exact = math.sqrt(sum(float((a - b).double().square().sum()) for a, b in zip(trained, before, strict=True)))
    moved = sum(int((a != b).sum()) for a, b in zip(trained, before, strict=True)) / (900_000 + 90_000 + 8)
    assert found["update_norm"] == pytest.approx(exact, rel=0.02)
    assert found["weights_moved_frac"] == pytest.approx(moved, abs=3 * 0.002)
    again = WeightChange(sgd(parameters((900, 1000), (300, 300), (8,))))
    assert again._positions is not None
    assert all(torch.equal(a, b) for a, b in zip(change._positions, again._positions, strict=True))


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(
    ("dtype", "lr", "low", "high"),
    [
        (torch.float32, 1e-6, 0.99, 1.0),
        (torch.bfloat16, 1e-6, 0.0, 0.05),  # half the spacing at 0.02 is 6e-5: only the weights near 0 move
        (torch.bfloat16, 1e-3, 0.95, 1.0),
    ],
)
def test_a_learning_rate_below_the_precision_of_the_weights_moves_almost_none(
    dtype: torch.dtype, lr: float, low: float, high: float, is_large: bool
) -> None:
    trained = parameters((600, 600) if is_large else (60, 60), dtype=dtype)
    optimizer = build_optimizer(trained, OptimOptions(lr=lr))
    change = WeightChange(optimizer)
    trained[0].grad = torch.ones_like(trained[0])
    optimizer.step()
    found = change.metrics()
    assert low <= found["weights_moved_frac"] <= high
    if dtype == torch.float32:  # AdamW's first update is lr in every weight
        assert found["update_norm"] == pytest.approx(lr * math.sqrt(trained[0].numel()), rel=0.02)


@torch.no_grad()
def test_formats_may_be_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (weight_change.EXACT_UP_TO, 8):
        monkeypatch.setattr(weight_change, "EXACT_UP_TO", limit)
        trained = nn.ParameterList([*parameters((8, 8)), *parameters((8, 8), dtype=torch.bfloat16)])
        change = WeightChange(sgd(trained))
        trained[1].add_(1.0)
        assert change.metrics()["weights_moved_frac"] == 0.5
