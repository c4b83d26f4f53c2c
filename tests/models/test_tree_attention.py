from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from groupwise.models import LoadedModel, TokenTree
from groupwise.models.tree_attention import NAME, TreePlan, UnsupportedAttentionError, planned, planned_attention

TinyModel = Callable[..., LoadedModel]
LAYER = SimpleNamespace(layer_idx=1)


class RecordingPlan:
    """Remembers what it is asked; returns zeros."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        self.layer, self.scaling = layer, scaling
        return torch.zeros_like(query).transpose(1, 2)


def call(plan: RecordingPlan, **options: object) -> None:
    query = torch.zeros(1, 4, 3, 16)
    planned_attention(LAYER, query, query, query, None, attention_plan=plan, **options)  # type: ignore[arg-type]


def test_planned_exchanges_the_attention_and_puts_it_back(tiny_model: TinyModel) -> None:
    model = tiny_model().model
    before = model.config._attn_implementation
    assert before != NAME
    with planned(model):
        assert model.config._attn_implementation == NAME
    assert model.config._attn_implementation == before


def test_planned_puts_the_attention_back_after_an_error(tiny_model: TinyModel) -> None:
    model = tiny_model().model
    before = model.config._attn_implementation
    with pytest.raises(ZeroDivisionError), planned(model):
        _ = 1 / 0
    assert model.config._attn_implementation == before


def test_the_plan_gets_the_layer_and_the_scale() -> None:
    plan = RecordingPlan()
    call(plan)
    assert (plan.layer, plan.scaling) == (1, 0.25)  # width 16: 16 ** -0.5
    call(plan, scaling=0.5, sliding_window=None, softcap=None, is_causal=True)
    assert plan.scaling == 0.5


@pytest.mark.parametrize("option", ["sliding_window", "softcap", "s_aux", "position_bias"])
def test_what_a_plan_does_not_compute_is_refused(option: str) -> None:
    with pytest.raises(UnsupportedAttentionError, match=option):
        call(RecordingPlan(), **{option: 4})


def test_attention_dropout_is_refused() -> None:
    with pytest.raises(UnsupportedAttentionError, match="dropout"):
        call(RecordingPlan(), dropout=0.1)


def test_a_tree_plan_by_hand() -> None:
    """Keys that score 0 everywhere: each node averages the values of its ancestors and itself."""
    tree = TokenTree.build([(5, 7, 8), (5, 7, 9)])
    plan = TreePlan(tree, device=torch.device("cpu"), keep_keys=True)
    query, key = torch.ones(1, 4, 4, 2), torch.zeros(1, 2, 4, 2)
    value = torch.tensor([1.0, 2.0, 6.0, 9.0])[None, None, :, None].expand(1, 2, 4, 2)
    found = plan.attend(0, query, key, value, 1.0)
    assert found.shape == (1, 4, 4, 2)
    # Node 3 (the 9) has the ancestors 0 and 1: (1 + 2 + 9) / 3 = 4; its sibling gets (1 + 2 + 6) / 3 = 3.
    torch.testing.assert_close(found[0, :, 0, 0], torch.tensor([1.0, 1.5, 3.0, 4.0]))
    assert plan.kept[0][0] is key
    assert plan.kept[0][1] is value


def test_a_tree_plan_keeps_no_keys_unless_asked() -> None:
    tree = TokenTree.build([(5,)])
    plan = TreePlan(tree, device=torch.device("cpu"))
    plan.attend(0, *(torch.zeros(1, 1, 1, 2),) * 3, 1.0)
    assert plan.kept == {}
