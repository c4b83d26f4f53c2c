"""Weights and what is computed with them: loading, the token tree, tree attention, log-probabilities."""

from groupwise.models.loading import LoadedModel, load_model
from groupwise.models.logprobs import (
    ScoredSequence,
    TokenScores,
    loss_mask,
    padded_logprobs,
    padded_scores,
    tree_logprobs,
    tree_scores,
    why_no_tree,
)
from groupwise.models.token_tree import TokenTree

__all__ = [
    "LoadedModel",
    "ScoredSequence",
    "TokenScores",
    "TokenTree",
    "load_model",
    "loss_mask",
    "padded_logprobs",
    "padded_scores",
    "tree_logprobs",
    "tree_scores",
    "why_no_tree",
]
