"""`groupwise bakeoff`: every stage of a recipe as an arm of one comparison, from the same start, for the same budget.

    FOLDER/start/           the start model, measured once: recipe.toml, start.json, log.txt
    FOLDER/arms/ppo-1/      one arm with one seed: recipe.toml (derived), runs/, log.txt, result.json
    FOLDER/bakeoff.json     everything that was measured
    FOLDER/bakeoff.html     the page

Every (arm, seed) is a `groupwise train` in a process of its own, so that the peak of its memory is its own, one after
the other, so that seconds can be compared. Those with a result.json are kept: the same command goes on where it
stopped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.config import Recipe, StageSection, dump_toml
from groupwise.config.algorithm_reward_model import RewardModelSection
from groupwise.config.budget import BudgetSection
from groupwise.errors import ConfigError, DataError, GroupwiseError
from groupwise.launch.bakeoff_result import RunResult, failed_result, run_result
from groupwise.launch.display import Display
from groupwise.runs import write_atomic

NUM_LINES_SHOWN = 6
"""Of a failed run's log, its last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BakeoffPlan:
    """What is compared.

    Example:
        BakeoffPlan(recipe=recipe, seeds=(1, 2, 3), arms=recipe.stages, folder=Path("bakeoff"), accept_audit=False)
    """

    recipe: Recipe
    """With the budget in it; its stages are those of the file."""
    arms: tuple[StageSection, ...]
    seeds: tuple[int, ...]
    folder: Path
    accept_audit: bool
    keep_checkpoints: bool = False
    """False: the weights of a run are removed once it is measured; fifteen of them fill a disk."""

    @property
    def budget(self) -> BudgetSection:
        """Of every run."""
        assert self.recipe.budget is not None, "plan_bakeoff refuses others"
        return self.recipe.budget

    def folder_of(self, arm: StageSection, seed: int) -> Path:
        """Of one run."""
        return self.folder / "arms" / f"{arm.name}-{seed}"

    def recipe_of(self, arm: StageSection, seed: int) -> Recipe:
        """What `groupwise train` is given for one run: the arm alone, with absolute paths. Audit and base are left to
        the start."""
        recipe = self.recipe.with_absolute_paths()
        return recipe.model_copy(
            update={
                "name": f"{arm.name}-{seed}",
                "seed": seed,
                "output_dir": str((self.folder_of(arm, seed) / "runs").absolute()),
                "stages": tuple(stage for stage in recipe.stages if stage.name == arm.name),
                "audit": recipe.audit.model_copy(update={"fast_tasks": 0}),
                "evaluation": recipe.evaluation.model_copy(update={"base": False}),
            }
        )


def plan_bakeoff(
    recipe: Recipe,
    *,
    seeds: Sequence[int],
    folder: Path,
    arms: Sequence[str] | None = None,
    budget: BudgetSection | None = None,
    model: str | None = None,
    accept_audit: bool = False,
    keep_checkpoints: bool = False,
) -> BakeoffPlan:
    """Checks what is asked for; writes nothing. budget and model replace those of the recipe.

    Raises:
        ConfigError: no budget, unknown arms or fewer than two, equal seeds or none, a stage that trains no policy.
    """
    if model is not None:
        where = Path(model).expanduser()
        name = str(where.absolute()) if where.exists() else model
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"name": name})}).in_folder(
            recipe.folder
        )
    budget = budget or recipe.budget
    if budget is None:
        raise ConfigError(
            "a bake-off gives every arm the same budget, and there is none; give one of --rollout-tokens, --seconds "
            "and --flops, or a [budget] in the recipe."
        )
    names = [stage.name for stage in recipe.stages]
    if unknown := [arm for arm in arms or () if arm not in names]:
        raise ConfigError(f"--arms {unknown[0]}: the recipe has no such stage; it has {', '.join(names)}.")
    chosen = tuple(stage for stage in recipe.stages if arms is None or stage.name in arms)
    if len(chosen) < 2:
        raise ConfigError(
            f"a bake-off compares 2 arms or more, got {len(chosen)} ({', '.join(s.name for s in chosen)}); every "
            "[[stages]] of the recipe is an arm."
        )
    if any(isinstance(stage.algorithm, RewardModelSection) for stage in chosen):
        raise ConfigError("a reward_model stage trains no policy that could be compared; leave it out with --arms.")
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ConfigError(
            f"--seeds {','.join(map(str, seeds))}: give different numbers, each 0 or more, such as 1,2,3."
        )
    return BakeoffPlan(
        recipe=recipe.model_copy(update={"budget": budget}).in_folder(recipe.folder),
        arms=chosen,
        seeds=tuple(seeds),
        folder=folder,
        accept_audit=accept_audit,
        keep_checkpoints=keep_checkpoints,
    )


def run_bakeoff(plan: BakeoffPlan, display: Display) -> tuple[dict[str, Any], list[RunResult]]:
    """Runs whatever is not there yet; returns start.json and the results, seed by seed, in the order of the arms.

    Raises:
        GroupwiseError: the folder holds another bake-off, or the start cannot be measured. A run that fails is a
            result.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    for arm in plan.arms:
        for seed in plan.seeds:
            _refuse_other(plan.folder_of(arm, seed), dump_toml(plan.recipe_of(arm, seed)))
    start = _start(plan, display)
    results = []
    number, total = 0, len(plan.arms) * len(plan.seeds)
    for seed in plan.seeds:
        for arm in plan.arms:
            number += 1
            results.append(_arm(plan, arm, seed, display, f"{number}/{total}"))
    return start, results


def _refuse_other(folder: Path, text: str) -> None:
    known = folder / "recipe.toml"
    if (folder / "result.json").exists() and known.read_text(encoding="utf-8") != text:
        raise DataError(
            f"{folder} was run with another recipe, model or budget, and could not be compared with the rest.\n"
            "  Give another --out, or remove that folder to run it again."
        )


def _start(plan: BakeoffPlan, display: Display) -> dict[str, Any]:
    folder = plan.folder / "start"
    folder.mkdir(exist_ok=True)
    recipe = plan.recipe.with_absolute_paths().model_copy(update={"stages": plan.arms, "budget": None})
    text = dump_toml(recipe)
    given = {"seeds": list(plan.seeds), "accept_audit": plan.accept_audit}
    written = folder / "start.json"
    if written.exists():
        before = (folder / "recipe.toml").read_text(), json.loads((folder / "seeds.json").read_text())["seeds"]
        if before == (text, given["seeds"]):
            return dict(json.loads(written.read_text()))
    written.unlink(missing_ok=True)
    write_atomic(folder / "recipe.toml", text)
    write_atomic(folder / "seeds.json", json.dumps(given))
    with display.working("measuring the start model"):
        failure = _process(["groupwise.launch.bakeoff_start", str(folder)], folder / "log.txt")
    if failure is not None:
        raise GroupwiseError(f"the start model could not be measured:\n{failure}\n  All of it: {folder / 'log.txt'}")
    return dict(json.loads(written.read_text()))


def _arm(plan: BakeoffPlan, arm: StageSection, seed: int, display: Display, number: str) -> RunResult:
    folder = plan.folder_of(arm, seed)
    kept = folder / "result.json"
    if kept.exists():
        result = RunResult.from_json(json.loads(kept.read_text()))
        display.line(f"{number} {arm.name}, seed {seed}: kept, {_told(result)}")
        return result
    shutil.rmtree(folder, ignore_errors=True)  # an attempt that was stopped or failed
    folder.mkdir(parents=True)
    write_atomic(folder / "recipe.toml", dump_toml(plan.recipe_of(arm, seed)))
    started = time.monotonic()
    with display.working(f"{number} {arm.name}, seed {seed}"):
        failure = _process(["groupwise.cli.main", "train", str(folder / "recipe.toml")], folder / "log.txt")
    wall_s = time.monotonic() - started
    method = str(arm.algorithm.name)
    try:
        if failure is not None:
            raise DataError(failure)
        (run,) = (folder / "runs").iterdir()
        result = run_result(
            run,
            arm=arm.name,
            seed=seed,
            method=method,
            num_steps=arm.steps,
            samples_per_prompt=plan.recipe.evaluation.samples_per_prompt,
            wall_s=wall_s,
        )
        write_atomic(kept, json.dumps(result.to_json(), indent=1))
        if not plan.keep_checkpoints:
            shutil.rmtree(run / "checkpoints")
    except (GroupwiseError, OSError) as error:
        result = failed_result(arm.name, seed, method, failure or f"no step was done ({error})", wall_s)
    display.line(f"{number} {arm.name}, seed {seed}: {_told(result)}")
    return result


def _told(result: RunResult) -> str:
    if result.ended_by == "failed":
        return f"failed. {result.failure}"
    rate = sum(result.rates.values()) / max(1, len(result.rates))
    return f"{rate:.1%} held out after {result.steps} steps, {result.wall_s / 60:.1f} min (ended by: {result.ended_by})"


def _process(arguments: Sequence[str], log: Path) -> str | None:
    """Runs a module of ours; None where it exits with 0, else the last lines of what it wrote."""
    with log.open("w", encoding="utf-8") as file:
        code = subprocess.run(
            [sys.executable, "-m", *arguments], stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False
        ).returncode
    if code == 0:
        return None
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return "\n".join(lines[-NUM_LINES_SHOWN:]) or f"exit code {code}"
