"""The whole recipe: every section, and the rules that hold between sections."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, PrivateAttr, model_validator

from .audit import AuditSection
from .curation import CurationSection
from .data import DataSection
from .evaluation import EvaluationSection
from .model import ModelSection
from .rollout import RolloutSection
from .section import Many, Section, problem
from .stage import SftSection, StageSection
from .verifier import VerifierSection, with_paths


class Recipe(Section):
    """Everything that a run depends on. Paths in it are relative to `folder`.

    Example:
        recipe = load_recipe("recipe.toml")
        recipe.rollout.group_size            # 8
        recipe.resolve(recipe.data.source)   # <folder of recipe.toml>/rows.jsonl
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run; letters, digits, - _ and . only, and a letter or digit first."""
    seed: int = Field(default=0, ge=0)
    """Start of every random number in the run, 0 or more."""
    output_dir: str = Field(default="runs", min_length=1)
    """Folder that receives the run's own folder."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads of torch, 1 or more; None = torch's own choice."""
    model: ModelSection
    """The weights."""
    data: DataSection
    """The tasks."""
    verifier: VerifierSection
    """The truth."""
    rollout: RolloutSection = RolloutSection()
    """Sampling."""
    evaluation: EvaluationSection = EvaluationSection()
    """Measuring."""
    curation: CurationSection = CurationSection()
    """Selecting prompts."""
    audit: AuditSection = AuditSection()
    """Attacking the verifier before training."""
    stages: Many[StageSection] = Field(min_length=1)
    """Training, one stage after the other; 1 or more."""

    _folder: Path = PrivateAttr(default=Path("."))

    @property
    def folder(self) -> Path:
        """Where relative paths start: the recipe file's folder. Not part of the TOML text."""
        return self._folder

    def resolve(self, path: str) -> Path:
        """The place that a path of the recipe means: absolute ones as they are, others below `folder`."""
        return self._folder / Path(path).expanduser()

    def in_folder(self, folder: Path) -> Recipe:
        """The same recipe with its relative paths starting at `folder`."""
        moved = self.model_copy()
        moved._folder = folder
        return moved

    def with_absolute_paths(self) -> Recipe:
        """The same recipe for use from any folder: whatever exists below `folder` is named by its absolute path.

        Hub ids stay what they are. A template such as "db/{db_id}.sqlite" counts by the folder that it begins with.
        """

        def absolute(path: str) -> str:
            steady = path.split("{")[0]
            is_ours = self.resolve(steady if steady == path else str(Path(steady + "x").parent)).exists()
            return str(self.resolve(path).absolute()) if is_ours else path

        def moved(section: Section, *names: str) -> Section:
            given = {name: getattr(section, name) for name in names if getattr(section, name) is not None}
            return section.model_copy(
                update={n: absolute(v) if isinstance(v, str) else tuple(map(absolute, v)) for n, v in given.items()}
            )

        return self.model_copy(
            update={
                "output_dir": str(self.resolve(self.output_dir).absolute()),
                "model": moved(self.model, "name"),
                "data": moved(self.data, "train", "heldout", "demonstrations", "source", "schema_from"),
                "verifier": with_paths(self.verifier, moved),
            }
        )

    @model_validator(mode="after")
    def _sections_agree(self) -> Recipe:
        seen: dict[str, int] = {}
        for index, stage in enumerate(self.stages):
            if stage.name in seen:
                raise problem(
                    f"stages.{index}.name",
                    "is also the name of stages[{first}]; give each stage its own name",
                    first=seen[stage.name],
                )
            seen[stage.name] = index
            self._stage_has_data(index, stage)
            self._stage_knows_its_sampling(index, stage)
            self._stage_can_shape_lengths(index, stage)
        return self

    def _stage_can_shape_lengths(self, index: int, stage: StageSection) -> None:
        penalty = None if isinstance(stage.algorithm, SftSection) else stage.algorithm.length_penalty
        if penalty is not None and penalty.free_tokens >= self.rollout.max_completion_tokens:
            raise problem(
                f"stages.{index}.algorithm.length_penalty.free_tokens",
                "must be smaller than rollout.max_completion_tokens = {limit}, or no answer is ever long",
                limit=self.rollout.max_completion_tokens,
            )

    def _stage_knows_its_sampling(self, index: int, stage: StageSection) -> None:
        if isinstance(stage.algorithm, SftSection) or stage.algorithm.importance_cap is not None:
            return
        if self.rollout.is_restricted:
            raise problem(
                f"stages.{index}.algorithm.importance_cap",
                "is not given, which would correct for rollout.top_p = {top_p} and rollout.top_k = {top_k}: "
                "they leave tokens out that the loss counts as possible, and bias the gradient.\n"
                "  Write importance_cap = 2.0 in this algorithm to weigh each token for it, or sample from all tokens "
                "(rollout.top_p = 1, rollout.top_k = 0), or sharpen with rollout.temperature instead, which the loss "
                "follows",
                top_p=self.rollout.top_p,
                top_k=self.rollout.top_k,
            )

    def _stage_has_data(self, index: int, stage: StageSection) -> None:
        if isinstance(stage.algorithm, SftSection):
            if self.data.split is None and self.data.demonstrations is None:
                raise problem(
                    f"stages.{index}.algorithm.name",
                    "imitates demonstrations and there are none; set data.demonstrations",
                )
            if self.data.split is not None and self.data.split.demonstrations == 0:
                raise problem(
                    f"stages.{index}.algorithm.name",
                    "imitates demonstrations and there are none; set data.split.demonstrations to 1 or more",
                )
        elif self.data.source is None and self.data.train is None:
            raise problem(f"stages.{index}.algorithm.name", "learns from tasks and there are none; set data.train")
