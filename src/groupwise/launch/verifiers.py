"""From the [verifier] section to the object that judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from groupwise.config import ComposeVerifierSection, SqlVerifierSection, VerifierSection
from groupwise.config.section import Section
from groupwise.config.verifier import PartVerifierSection
from groupwise.verifiers import SqlVerifier, TaskVerifier
from groupwise.verifiers.compose import ComposeVerifier, Part


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
        Part(name=part.name, role=part.role, weight=part.weight, verifier=_simple(part.verifier, folder))
        for part in section.parts
    ]
    return ComposeVerifier(parts=parts, partial_cap=section.partial_cap)


def _simple(section: PartVerifierSection, folder: Path) -> TaskVerifier:
    return SqlVerifier(**_settings(section), base_folder=folder)


def _settings(section: Section) -> dict[str, Any]:
    """The fields under the verifier's argument names; `kind` and `unusable_gold` are not its business."""
    return section.model_dump(exclude={"kind", "unusable_gold"})
