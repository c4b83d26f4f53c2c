"""The part of a recipe that judging needs: the verifier, and the tasks where it names any. No model, no stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr, ValidationError

from groupwise.errors import ConfigError

from .audit import AuditSection
from .data import DataSection
from .lines import key_lines
from .load import parse_recipe, parse_toml, read_text
from .problems import describe
from .recipe import Recipe
from .section import Section
from .verifier import VerifierSection


class ScoringRecipe(Section):
    """What `groupwise score` and `groupwise audit` read of a recipe.

    Example:
        recipe = load_scoring_recipe("recipe.toml")     # [verifier] alone will do
        recipe.verifier.kind                            # "sql"
    """

    name: str = "scoring"
    """Name of the recipe."""
    seed: int = Field(default=0, ge=0)
    """Start of every random number, 0 or more."""
    data: DataSection | None = None
    """The tasks; None = each completion brings the columns of its own task."""
    verifier: VerifierSection
    """The truth."""
    audit: AuditSection = AuditSection()
    """Attacking the verifier."""

    _folder: Path = PrivateAttr(default=Path("."))

    @property
    def folder(self) -> Path:
        """Where relative paths start: the recipe file's folder."""
        return self._folder

    def in_folder(self, folder: Path) -> ScoringRecipe:
        """The same recipe with its relative paths starting at `folder`."""
        moved = self.model_copy()
        moved._folder = folder
        return moved


def load_scoring_recipe(path: str | Path) -> ScoringRecipe:
    """Read the judging part of a recipe file. A whole recipe is checked as a whole; a recipe without [model] or
    [[stages]] needs [verifier] only.

    Raises:
        ConfigError: as load_recipe.
    """
    path = Path(path)
    text = read_text(path)
    values = parse_toml(text, str(path))
    if {"model", "stages"} <= values.keys():
        return scoring_part(parse_recipe(text, folder=path.parent, file=str(path)))
    others = Recipe.model_fields.keys() - ScoringRecipe.model_fields.keys()
    try:
        recipe = ScoringRecipe.model_validate(_without(values, others))
    except ValidationError as error:
        raise ConfigError(describe(error.errors(), ScoringRecipe, key_lines(text), str(path))) from None
    return recipe.in_folder(path.parent)


def scoring_part(recipe: Recipe) -> ScoringRecipe:
    """The judging part of a whole recipe."""
    return ScoringRecipe(
        name=recipe.name, seed=recipe.seed, data=recipe.data, verifier=recipe.verifier, audit=recipe.audit
    ).in_folder(recipe.folder)


def _without(values: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
