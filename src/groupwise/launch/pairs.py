"""`groupwise pairs`: preference pairs of judged completions, from a run or sampled now, as a file for data.pairs.

    {"prompt": ..., "chosen": "SELECT 1", "rejected": "SELECT 2", "complete_prompt": true, "task_id": "train-0007", ...}

The prompt is the task's as the recipe builds it. The other columns say where the completions come from.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from transformers import AutoTokenizer

from groupwise.config import Recipe
from groupwise.curation.preference import ChosenPair, NoPair, PairRule, choose_pairs
from groupwise.data import load_tasks, render_prompt
from groupwise.data.pairs import COMPLETE, REJECTED_TRUNCATED
from groupwise.errors import DataError, EngineError
from groupwise.launch import local
from groupwise.launch.assemble import sampling
from groupwise.launch.display import Display
from groupwise.launch.verifiers import build_verifier
from groupwise.models.loading import resolve_source
from groupwise.models.lora import base_of_adapter
from groupwise.rollout import collect_groups
from groupwise.runs import RunDirectory, write_atomic
from groupwise.training.batch import derive_seed
from groupwise.training.grpo import refuse_unscored
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePairs:
    """The pairs of all prompts, and why the other prompts gave none."""

    pairs: tuple[ChosenPair, ...]
    rows: tuple[Mapping[str, Any], ...]
    """The lines of the file; rows[i] belongs to pairs[i]."""
    num_prompts: int
    reasons: Mapping[NoPair, int]

    def summary(self) -> str:
        """One line: how many prompts gave pairs, why the others did not, and whether the pairs differ in length."""
        num_giving = len({pair.group.task.id for pair in self.pairs})
        text = f"{len(self.pairs)} pairs from {num_giving} of {self.num_prompts} prompts"
        if self.reasons:
            shown = sorted(self.reasons.items(), key=lambda item: (-item[1], item[0]))
            text += "; the others: " + ", ".join(f"{reason} {count}" for reason, count in shown)
        if self.pairs:
            difference = fmean(pair.length_difference for pair in self.pairs)
            text += f". Chosen minus rejected: {difference:+.1f} tokens on average"
        return text + "."


def pairs_by_sampling(recipe: Recipe, samples: int | None, rule: PairRule, display: Display) -> MadePairs:
    """Samples the recipe's model on every training prompt, as training would, and pairs what the verifier has judged.

    samples is the number of completions a prompt; None = rollout.group_size.

    Raises:
        GroupwiseError: for anything the user can mend.
    """
    verifier = build_verifier(recipe)
    try:
        policy, sets = local.prepare(recipe, verifier, display)
        _refuse_no_tasks(sets.train.tasks)
        with display.working(f"sampling {len(sets.train.tasks)} training prompts") as advance:
            groups = collect_groups(
                policy.engine,
                verifier,
                sets.train.tasks,
                sets.train.prompts,
                group_size=samples or recipe.rollout.group_size,
                sampling=sampling(recipe),
                seed=derive_seed(recipe.seed, "pairs"),
                progress=advance,
            ).groups
        refuse_unscored(groups, recipe.curation.max_unscored_frac)
        source = {"model": policy.loaded.source, "verifier_version": verifier.version}
        return make_pairs(sets.train.tasks, {group.task.id: [group] for group in groups}, rule, source)
    finally:
        verifier.close()


def pairs_of_run(recipe: Recipe, run: Path, rule: PairRule) -> MadePairs:
    """Pairs of the rollouts that a run has recorded of the recipe's training tasks; evaluations are left out.

    Raises:
        DataError: no run, no rollouts of these tasks, or rollouts of other prompts under the same ids.
    """
    directory = RunDirectory.open(run)
    tasks = load_tasks(recipe.data, recipe.folder, recipe.seed).train
    _refuse_no_tasks(tasks)
    known = {task.id: task for task in tasks}
    tokenizer = _tokenizer(recipe)
    prompts = {task.id: render_prompt(task, tokenizer) for task in tasks}
    groups: dict[str, list[Group]] = {}
    for rows in _recorded_groups(directory):
        task = known.get(rows[0]["task_id"])
        if task is None or rows[0]["stage"].startswith("evaluation-"):
            continue
        prompt = prompts[task.id]
        if tuple(rows[0]["prompt_ids"]) != prompt.token_ids:
            raise DataError(
                f"{run}: the prompt of {task.id!r} is another one than in this recipe, so that its completions answer "
                "something else.\n  Give the recipe (and the data) that the run was trained with."
            )
        groups.setdefault(task.id, []).append(_group(task, prompt, rows))
    if not groups:
        raise DataError(
            f"{run}: no rollouts of this recipe's {len(tasks)} training tasks are recorded; give a run with a stage "
            "that samples (such as grpo), or sample now with --samples."
        )
    environment = json.loads(directory.environment.read_text()) if directory.environment.is_file() else {}
    source = {"model": environment.get("model_source"), "verifier_version": environment.get("verifier_version")}
    return make_pairs(tasks, groups, rule, source | {"run": directory.path.name})


def make_pairs(
    tasks: Sequence[Task], groups: Mapping[str, Sequence[Group]], rule: PairRule, source: Mapping[str, Any]
) -> MadePairs:
    """The pairs of each task's groups (oldest first); `source` is written into every row."""
    pairs: list[ChosenPair] = []
    reasons: Counter[NoPair] = Counter()
    for task in tasks:
        chosen = choose_pairs(groups.get(task.id, ()), rule)
        if isinstance(chosen, NoPair):
            reasons[chosen] += 1
        else:
            pairs += chosen
    return MadePairs(
        pairs=tuple(pairs),
        rows=tuple(_row(pair, source) for pair in pairs),
        num_prompts=len(tasks),
        reasons=reasons,
    )


def write_pairs(path: Path, made: MadePairs) -> None:
    """One JSON line a pair.

    Raises:
        DataError: if the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made.rows))
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error}); choose another --out.") from error


def _row(pair: ChosenPair, source: Mapping[str, Any]) -> dict[str, Any]:
    prompt = pair.group.task.prompt
    chosen, rejected = pair.chosen.completion, pair.rejected.completion
    return {
        "prompt": prompt if isinstance(prompt, str) else [dict(turn) for turn in prompt],
        "chosen": _encodable(chosen.text),
        "rejected": _encodable(rejected.text),
        COMPLETE: True,
        REJECTED_TRUNCATED: rejected.stop is Stop.LENGTH,
        "task_id": pair.group.task.id,
        "chosen_tokens": len(chosen.token_ids),
        "rejected_tokens": len(rejected.token_ids),
        "rejected_reason": _encodable(pair.rejected.verdict.reason),
        "policy_version": chosen.policy_version,
        **source,
    }


def _encodable(text: str) -> str:
    """A lone surrogate, which a decoder may emit for a cut byte sequence, has no UTF-8 form."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _refuse_no_tasks(tasks: Sequence[Task]) -> None:
    if not tasks:
        raise DataError("[data] names no training tasks to make pairs of; set data.train, or source and [data.split].")


def _tokenizer(recipe: Recipe) -> Any:
    name = recipe.model.name
    if (recipe.folder / name).exists():
        name = str(recipe.resolve(name))
    source = str(resolve_source(name))
    try:
        return AutoTokenizer.from_pretrained(base_of_adapter(Path(source)) or source, revision=recipe.model.revision)
    except (OSError, ValueError) as error:
        first = str(error).strip().split("\n")[0][:300]
        raise EngineError(f"model.name = {recipe.model.name!r}: its tokenizer cannot be loaded.\n  {first}") from error


def _recorded_groups(directory: RunDirectory) -> list[list[dict[str, Any]]]:
    """The rows of every recorded group, by the number of updates in the weights that sampled them."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for path in sorted(directory.rollouts.glob("*.parquet")):
        try:
            rows = pq.read_table(path).to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} cannot be read as parquet: {error}") from error
        for row in rows:
            groups.setdefault((path.name, row["group"]), []).append(row)
    return sorted(groups.values(), key=lambda rows: int(rows[0]["policy_version"]))


def _group(task: Task, prompt: Prompt, rows: Sequence[Mapping[str, Any]]) -> Group:
    return Group(
        task=task,
        prompt=prompt,
        rollouts=tuple(
            Rollout(
                completion=Completion(
                    text=row["text"],
                    token_ids=tuple(row["completion_ids"]),
                    sampler_logprobs=tuple(row["sampler_logprobs"]),
                    stop=Stop(row["stop"]),
                    policy_version=row["policy_version"],
                ),
                verdict=Verdict(
                    status=Status(row["status"]), reward=row["reward"], outcome=row["outcome"], reason=row["reason"]
                ),
            )
            for row in rows
        ),
    )
