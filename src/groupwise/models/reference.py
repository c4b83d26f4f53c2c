"""The frozen model that a KL term compares with: the policy as it is when the reference is taken."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from transformers import PreTrainedModel

from groupwise.models.lora import adapted_layers, adapter_weights, adapters_as, adapters_off

Reference = Callable[[], AbstractContextManager[PreTrainedModel]]
"""`with reference() as model:` gives the frozen model for as long as the block lasts; use no gradient inside.

It may be the policy itself, changed for the time of the block: finish with it before anything else uses the policy.
"""


def frozen_reference(model: PreTrainedModel) -> Reference:
    """The model's present function, whatever is trained afterwards.

    Trained as a whole, the model is copied. With adapters the base is shared and costs nothing: adapters that change
    nothing yet are switched off, and those of an earlier stage are copied (a few MB) and put in place for the block.
    """
    layers = adapted_layers(model)
    if not layers:
        copied = copy.deepcopy(model).eval().requires_grad_(False)
        return lambda: nullcontext(copied)
    weights = adapter_weights(model)
    if not any(tensor.any() for name, tensor in weights.items() if ".lora_B." in name):
        return lambda: adapters_off(model)
    return lambda: adapters_as(model, weights)
