"""The body of a language model, without its LM head, as the start of a value or reward model."""

from __future__ import annotations

import copy

from transformers import PreTrainedModel


def copied_body(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of the model's body, as trainable as the model is; the model stays as it is.

    Frozen weights, the base below adapters, are shared with the model, not copied.
    """
    shared = {id(p): p for p in model.parameters() if not p.requires_grad}
    body: PreTrainedModel = copy.deepcopy(model.base_model, shared)  # type: ignore[assignment]
    return body.eval()
