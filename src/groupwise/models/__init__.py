"""Weights and what is computed with them: loading, the token tree, tree attention, log-probabilities."""

from groupwise.models.loading import LoadedModel, load_model
from groupwise.models.logprobs import ScoredSequence, loss_mask, padded_logprobs, tree_logprobs, why_no_tree
from groupwise.models.token_tree import TokenTree

__all__ = [
    "LoadedModel",
    "ScoredSequence",
    "TokenTree",
    "load_model",
    "loss_mask",
    "padded_logprobs",
    "tree_logprobs",
    "why_no_tree",
]
