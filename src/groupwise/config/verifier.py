"""[verifier]: what decides whether a completion is right. One class for each kind of truth, one file for each class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from .section import Many, Section, problem
from .verifier_classification import ClassificationVerifierSection
from .verifier_extraction import ExtractionVerifierSection
from .verifier_function import FunctionVerifierSection, with_function_file
from .verifier_math import MathVerifierSection
from .verifier_reward_model import RewardModelVerifierSection
from .verifier_sql import SqlVerifierSection
from .verifier_tools import ToolsVerifierSection

PartVerifierSection = Annotated[
    SqlVerifierSection
    | ToolsVerifierSection
    | ExtractionVerifierSection
    | ClassificationVerifierSection
    | MathVerifierSection
    | FunctionVerifierSection
    | RewardModelVerifierSection,
    Field(discriminator="kind"),
]
"""Every kind that can be a part of a composition, told apart by `kind`."""


class PartSection(Section):
    """One verifier of a composition."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """Unique among the parts; small letters, digits and _, a letter first. Reasons and checks carry it."""
    role: Literal["gate", "outcome", "shaping"] = "outcome"
    """gate = where it does not hold, the reward is 0; outcome = decides what is right; shaping = adds to the reward."""
    weight: float = Field(default=1.0, gt=0)
    """Share of the reward relative to the other weights, above 0. Without effect where role = "gate"."""
    verifier: PartVerifierSection
    """The verifier of this part, with its kind. Its unusable_gold is without effect: the composition's holds."""


class ComposeVerifierSection(Section):
    """Several verifiers: gates multiply, weights sum, and the outcome parts decide what is right."""

    kind: Literal["compose"]
    """The kind of truth: compose."""
    parts: Many[PartSection] = Field(min_length=1)
    """The parts, 1 or more; one or more of them with role = "outcome"."""
    partial_cap: float = Field(default=0.0, ge=0, lt=1)
    """The most that a wrong answer earns, 0 or more and under the outcome parts' share of the weights; 0 = nothing."""
    normalize_parts: bool = False
    """true = each part is compared inside its group before the weighted sum (GDPO); false = the sums are compared.
    Needs partial_cap = 0, or one part could put a wrong answer above a right one."""
    unusable_gold: Literal["refuse", "drop"] = "refuse"
    """What happens to tasks whose gold does not earn 1: refuse = stop and list them, drop = go on without them."""

    @model_validator(mode="after")
    def _decides_something(self) -> ComposeVerifierSection:
        names = [part.name for part in self.parts]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise problem(f"parts.{index}.name", "is also the name of another part; give each its own")
        if all(part.role != "outcome" for part in self.parts):
            raise problem("parts", 'hold no part with role = "outcome", so nothing would decide what is right')
        if self.normalize_parts and self.partial_cap > 0:
            raise problem("normalize_parts", "needs partial_cap = 0; got {cap}", cap=self.partial_cap)
        return self


VerifierSection = Annotated[
    SqlVerifierSection
    | ToolsVerifierSection
    | ExtractionVerifierSection
    | ClassificationVerifierSection
    | MathVerifierSection
    | FunctionVerifierSection
    | RewardModelVerifierSection
    | ComposeVerifierSection,
    Field(discriminator="kind"),
]
"""Every kind of [verifier], told apart by `kind`."""

PATHS: Mapping[str, tuple[str, ...]] = {
    "sql": ("snapshots",),
    "tools": ("world", "functions"),
    "extraction": ("schema_file",),
    "classification": ("rationale_examples",),
    "reward_model": ("path",),
}
"""The fields of each kind that name files; that of a function names what is in the file, too."""


def with_paths(section: VerifierSection, moved: Callable[..., Section]) -> Section:
    """The section with moved(section, *names of its path fields), in every part of a composition."""
    if isinstance(section, FunctionVerifierSection):
        return with_function_file(section, moved)
    if not isinstance(section, ComposeVerifierSection):
        return moved(section, *PATHS.get(section.kind, ()))
    parts = tuple(part.model_copy(update={"verifier": with_paths(part.verifier, moved)}) for part in section.parts)
    return section.model_copy(update={"parts": parts})
