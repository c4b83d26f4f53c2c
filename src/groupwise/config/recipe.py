"""The whole recipe: every section, and the rules that hold between sections."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, PrivateAttr, model_validator

from .algorithm_grpo import GrpoSection
from .algorithm_grpo_rules import refuse_misfit
from .algorithm_ppo import PpoSection, with_critic_path
from .algorithm_reward_model import RewardModelSection
from .audit import AuditSection
from .budget import BudgetSection
from .curation import CurationSection
from .data import DataSection
from .evaluation import EvaluationSection
from .model import ModelSection
from .monitor import MonitorSection, decides_alike
from .rollout import RolloutSection
from .section import Many, Section, problem
from .stage import SftSection, StageSection
from .tracking import TrackingSection
from .verifier import ComposeVerifierSection, VerifierSection, with_paths


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
    monitor: MonitorSection = MonitorSection()
    """Watching for rewards that are not earned."""
    tracking: TrackingSection = TrackingSection()
    """Other places for the numbers of a run."""
    budget: BudgetSection | None = None
    """A limit of what training spends; None = every stage does all its steps."""
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
                "data": moved(self.data, "train", "heldout", "demonstrations", "pairs", "source", "schema_from"),
                "curation": moved(self.curation, "ledger"),
                "verifier": with_paths(self.verifier, moved),
                "monitor": self.monitor
                if self.monitor.held_back is None
                else self.monitor.model_copy(update={"held_back": with_paths(self.monitor.held_back, moved)}),
                "stages": tuple(
                    stage.model_copy(update={"algorithm": with_critic_path(stage.algorithm, moved)})
                    if isinstance(stage.algorithm, PpoSection)
                    else stage
                    for stage in self.stages
                ),
            }
        )

    @model_validator(mode="after")
    def _sections_agree(self) -> Recipe:
        if not self.evaluation.base and isinstance(self.stages[0].algorithm, RewardModelSection):
            raise problem(
                "evaluation.base", "is false, and the first stage repeats that measurement: it is a reward_model"
            )
        if self.monitor.held_back is not None and decides_alike(self.verifier, self.monitor.held_back):
            raise problem(
                "monitor.held_back",
                "decides as [verifier] does, so it can show nothing; give it more snapshots, stricter settings or "
                "another kind of grader, or leave it out",
            )
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
            if isinstance(stage.algorithm, GrpoSection):
                by_parts = isinstance(self.verifier, ComposeVerifierSection) and self.verifier.normalize_parts
                refuse_misfit(f"stages.{index}.algorithm", stage.algorithm, self.rollout, compares_parts=by_parts)
            if isinstance(stage.algorithm, PpoSection):
                self._ppo_fits(f"stages.{index}.algorithm", stage.algorithm)
        return self

    def _stage_can_shape_lengths(self, index: int, stage: StageSection) -> None:
        penalty = stage.algorithm.length_penalty if isinstance(stage.algorithm, GrpoSection) else None
        if penalty is not None and penalty.free_tokens >= self.rollout.max_completion_tokens:
            raise problem(
                f"stages.{index}.algorithm.length_penalty.free_tokens",
                "must be smaller than rollout.max_completion_tokens = {limit}, or no answer is ever long",
                limit=self.rollout.max_completion_tokens,
            )

    def _stage_knows_its_sampling(self, index: int, stage: StageSection) -> None:
        if not isinstance(stage.algorithm, GrpoSection) or stage.algorithm.importance_cap is not None:
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

    def _ppo_fits(self, place: str, ppo: PpoSection) -> None:
        if self.rollout.is_restricted:
            raise problem(
                f"{place}.name",
                "learns from tokens drawn from all tokens; rollout.top_p = {top_p} and rollout.top_k = {top_k} "
                "leave some out, which biases the gradient.\n"
                "  Sample from all (rollout.top_p = 1, rollout.top_k = 0), or sharpen with rollout.temperature, which "
                "the loss follows",
                top_p=self.rollout.top_p,
                top_k=self.rollout.top_k,
            )
        if ppo.retire and not self.curation.enabled:
            raise problem(f"{place}.retire", "leaves the choice of prompts to [curation], and curation.enabled = false")
        num_completions = self.rollout.prompts_per_step * ppo.completions_per_prompt
        if ppo.minibatches > num_completions:
            raise problem(
                f"{place}.minibatches",
                "must be at most the {num} completions of a step (rollout.prompts_per_step = {prompts} times "
                "completions_per_prompt = {each})",
                num=num_completions,
                prompts=self.rollout.prompts_per_step,
                each=ppo.completions_per_prompt,
            )

    def _stage_has_data(self, index: int, stage: StageSection) -> None:
        if isinstance(stage.algorithm, SftSection) and stage.algorithm.source == "demonstrations":
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
        elif stage.learns_from_pairs:
            if self.data.pairs is None:
                raise problem(
                    f"stages.{index}.algorithm.name",
                    "learns from pairs and there are none; set data.pairs (`groupwise pairs` makes such a file)",
                )
        elif self.data.source is None and self.data.train is None:
            raise problem(f"stages.{index}.algorithm.name", "learns from tasks and there are none; set data.train")
