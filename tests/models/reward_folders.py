"""Folders with tiny reward models for tests."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from groupwise.models.reward_files import save_reward_model
from groupwise.models.reward_model import reward_model_from
from groupwise.models.tiny import byte_tokenizer


def saved(folder, loaded, model=None, **options):
    """A reward model on the loaded policy's body, or the given one, as we write it."""
    model = model or reward_model_from(loaded.model, seed=0)
    return save_reward_model(folder, model, loaded.tokenizer, end_token_id=loaded.end_token_ids[0], **options)


def classifier(folder, *, labels=1, family=LlamaForSequenceClassification):
    """A sequence classification model as transformers writes it."""
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_labels=labels,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    model = family(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model
