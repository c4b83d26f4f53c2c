"""From the [verifier] section to the object that judges."""

from __future__ import annotations

from groupwise.config import Recipe
from groupwise.verifiers import SqlVerifier, TaskVerifier


def build_verifier(recipe: Recipe) -> TaskVerifier:
    """The one verifier that serves audit, curation, training, evaluation and scoring alike."""
    section = recipe.verifier
    return SqlVerifier(
        snapshots=section.snapshots,
        gold_column=section.gold_column,
        answer_in=section.answer_in,
        time_limit_s=section.time_limit_s,
        memory_limit_mb=section.memory_limit_mb,
        num_workers=section.num_workers,
        base_folder=recipe.folder,
    )
