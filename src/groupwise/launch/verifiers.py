"""From the [verifier] section to the object that judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from groupwise.config import ComposeVerifierSection, VerifierSection
from groupwise.config.section import Section
from groupwise.config.verifier import PartVerifierSection
from groupwise.config.verifier_reward_model import RewardModelVerifierSection
from groupwise.verifiers import SqlVerifier, TaskVerifier
from groupwise.verifiers.classification import ClassificationVerifier
from groupwise.verifiers.compose import ComposeVerifier, Part
from groupwise.verifiers.extraction import ExtractionVerifier
from groupwise.verifiers.function_verifier import FunctionVerifier
from groupwise.verifiers.math_verifier import MathVerifier
from groupwise.verifiers.tools import ToolVerifier


def _reward_model(**settings: Any) -> TaskVerifier:
    from groupwise.models.reward_verifier import RewardModelVerifier  # brings torch, which the other kinds do without

    return RewardModelVerifier(**settings)


BUILDERS: Mapping[str, Callable[..., TaskVerifier]] = {
    "sql": SqlVerifier,
    "tools": ToolVerifier,
    "extraction": ExtractionVerifier,
    "classification": ClassificationVerifier,
    "math": MathVerifier,
    "function": FunctionVerifier,
    "reward_model": _reward_model,
}
"""The class of each kind; its arguments are the fields of the kind's section."""


class HasVerifier(Protocol):
    """A Recipe, or the part of one that judging needs."""

    @property
    def verifier(self) -> VerifierSection:
        """The section."""
        ...

    @property
    def folder(self) -> Path:
        """Where its relative paths start."""
        ...


def build_verifier(recipe: HasVerifier) -> TaskVerifier:
    """The one verifier that serves audit, curation, training, evaluation and scoring alike.

    Raises:
        VerifierError: settings that cannot work together.
    """
    return verifier_of(recipe.verifier, recipe.folder)


def verifier_of(section: VerifierSection, folder: Path) -> TaskVerifier:
    """The verifier of a section whose relative paths start at `folder`.

    Raises:
        VerifierError: settings that cannot work together.
    """
    if not isinstance(section, ComposeVerifierSection):
        return _simple(section, folder)
    parts = [
        Part(
            name=part.name,
            role=part.role,
            weight=part.weight,
            verifier=_simple(part.verifier, folder),
            opinion=isinstance(part.verifier, RewardModelVerifierSection) and part.verifier.gold_column is None,
        )
        for part in section.parts
    ]
    return ComposeVerifier(parts=parts, partial_cap=section.partial_cap)


def _simple(section: PartVerifierSection, folder: Path) -> TaskVerifier:
    return BUILDERS[section.kind](**_settings(section), base_folder=folder)


def _settings(section: Section) -> dict[str, Any]:
    """The fields under the verifier's argument names; `kind` and `unusable_gold` are not its business."""
    return section.model_dump(exclude={"kind", "unusable_gold"})
