"""The frozen model of a KL term: a copy, the base behind the adapters, or the adapters of an earlier stage."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from adapted import adapted, logits, move_adapters

from groupwise.models import LoadedModel
from groupwise.models import reference as reference_module
from groupwise.models.reference import frozen_reference

TinyModel = Callable[..., LoadedModel]


def test_of_a_model_trained_as_a_whole_it_is_a_frozen_copy(tiny_model: TinyModel) -> None:
    model = copy.deepcopy(tiny_model().model)
    reference = frozen_reference(model)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(2.0)
    with reference() as frozen:
        assert frozen is not model
        assert torch.equal(logits(frozen), logits(tiny_model().model))
        assert not any(p.requires_grad for p in frozen.parameters())


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_of_new_adapters_it_is_the_base_without_a_copy(
    tiny_model: TinyModel, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = adapted(tiny_model(family), move=False)
    monkeypatch.setattr(reference_module.copy, "deepcopy", None)
    reference = frozen_reference(model)
    move_adapters(model)
    trained = logits(model)
    for _ in range(2):
        with reference() as frozen:
            assert frozen is model
            assert torch.equal(logits(frozen), logits(tiny_model(family).model))
        assert torch.equal(logits(model), trained)
    assert not torch.allclose(trained, logits(tiny_model(family).model), atol=0.1)


def test_of_trained_adapters_it_is_the_model_as_it_is_now(tiny_model: TinyModel) -> None:
    model = adapted(tiny_model())
    start = logits(model)
    reference = frozen_reference(model)
    move_adapters(model, seed=2)
    trained = logits(model)
    with reference() as frozen:
        assert torch.equal(logits(frozen), start)
    assert torch.equal(logits(model), trained)
    assert not torch.allclose(trained, start, atol=0.1)
