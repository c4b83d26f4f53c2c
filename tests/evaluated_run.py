"""Writes run folders and result folders with chosen outcomes, for tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from groupwise.runs import FileRecorder, RunDirectory
from groupwise.runs.eval_files import EvaluatedModel, write_evaluation
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict

Outcomes = Sequence[bool | None]


def rollout(outcome: bool | None, *, num_tokens: int = 4, text: str = "", stop: Stop = Stop.END) -> Rollout:
    """One attempt; None = unscored."""
    status = Status.UNSCORED if outcome is None else Status.SCORED
    return Rollout(
        completion=Completion(
            text=text or f"answer {outcome}",
            token_ids=tuple(range(num_tokens)),
            sampler_logprobs=(-1.0,) * num_tokens,
            stop=stop,
        ),
        verdict=Verdict(
            status=status, reward=None if outcome is None else float(outcome), outcome=outcome, reason="rows"
        ),
    )


def group(task_id: str, rollouts: Sequence[Rollout]) -> Group:
    """All attempts at one prompt."""
    return Group(
        task=Task(id=task_id, prompt=f"question {task_id}"),
        prompt=Prompt(task_id=task_id, token_ids=(1, 2)),
        rollouts=tuple(rollouts),
    )


def groups_of(outcomes: Mapping[str, Outcomes], **options: Any) -> list[Group]:
    """One group a prompt."""
    return [group(task, [rollout(o, **options) for o in found]) for task, found in outcomes.items()]


def new_run(folder: Path, name: str = "job") -> RunDirectory:
    """An empty run folder with a recipe."""
    directory = RunDirectory.create(folder, name)
    directory.recipe.write_text(
        f'name = "{name}"\n[rollout]\nmax_completion_tokens = 20\n[evaluation]\nsamples_per_prompt = 2\n'
    )
    directory.environment.write_text(json.dumps({"verifier_version": "v1"}))
    return directory


def evaluate_into(
    directory: RunDirectory,
    name: str,
    sampled: Sequence[Group],
    greedy: Sequence[Group] = (),
    *,
    version: int = 0,
    with_rollouts: bool = True,
    **facts: Any,
) -> None:
    """Records one evaluation as a run does."""
    recorder = FileRecorder(directory)
    recorder.event(
        "evaluation",
        {
            "name": name,
            "policy_version": version,
            "solved": {g.task.id: g.num_solved for g in sampled},
            "greedy_solved": {g.task.id: g.num_solved for g in greedy},
            **facts,
        },
    )
    stage = f"evaluation-{name.replace(' ', '-')}"
    for recorded, groups in ((stage, sampled), (f"{stage}-greedy", greedy)):
        if groups and with_rollouts:
            recorder.rollouts(recorded, version, groups, [[0.0] * len(g.rollouts) for g in groups])
    assert recorder.num_failures == 0


def write_results(folder: Path, sampled: Mapping[str, Outcomes], *, day: int = 1, greedy: bool = True) -> Path:
    """What `groupwise eval --out` writes on that day; the greedy answer is as the first sampled one."""
    about = EvaluatedModel(
        task="job",
        model="tiny",
        kind="groupwise",
        verifier="sql",
        verifier_version="v1",
        samples_per_prompt=max(map(len, sampled.values())),
        num_original=len(sampled),
        seed=1,
        generation={"temperature": 1.0, "max_gen_toks": 20},
        versions={},
    )
    write_evaluation(
        folder,
        about,
        groups=groups_of(sampled, num_tokens=3, text="a\u2028b"),
        greedy_groups=groups_of({task: outcomes[:1] for task, outcomes in sampled.items()}) if greedy else [],
        golds={},
        facts={"name": "eval", "temperature": 1.0, "success": "outcome"},
        now=datetime(2026, 1, day),
    )
    return folder
