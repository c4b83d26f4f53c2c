"""A finished run of two stages as it would lie on disk, with numbers that a test can know: written in milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise.runs import FileRecorder, RunDirectory, StageLog, write_stage_log
from groupwise.runs.stage_log import FinishedStage
from groupwise.types import Check, Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict

HOSTILE = "<script>document.documentElement.dataset.hacked = 1</script>"
RECIPE = """name = "shop"
seed = 3

[model]
name = "tiny"

[evaluation]
samples_per_prompt = 4

[[stages]]
name = "sft"
steps = 3

[stages.algorithm]
name = "sft"

[[stages]]
name = "grpo"
steps = 4

[stages.algorithm]
name = "grpo"
normalize = "{normalize}"
"""
HELDOUT = [f"held-{i:02d}" for i in range(20)]


def group(task: str, outcomes: str, *, text: str = "SELECT 1", tokens: int = 10) -> Group:
    """One group by its outcomes: "1" right, "0" wrong, "?" not judged, "c" wrong and cut. Wrong ones are longer."""
    rollouts = []
    for i, sign in enumerate(outcomes):
        length = tokens + (0 if sign == "1" else 5) + i
        verdict = Verdict(
            status=Status.UNSCORED if sign == "?" else Status.SCORED,
            reward=None if sign == "?" else float(sign == "1"),
            outcome=None if sign == "?" else sign == "1",
            reason="same_rows" if sign == "1" else "wrong_rows",
            checks=() if sign == "1" else (Check(name="rows", passed=False, expected="3 rows", found="4 rows"),),
        )
        completion = Completion(
            text=f"{text} -- {task} {i}",
            token_ids=(7,) * length,
            sampler_logprobs=(-0.5,) * length,
            stop=Stop.LENGTH if sign == "c" else Stop.END,
        )
        rollouts.append(Rollout(completion=completion, verdict=verdict))
    return Group(
        task=Task(id=task, prompt=f"prompt of {task} {HOSTILE}"),
        prompt=Prompt(task_id=task, token_ids=(1, 2)),
        rollouts=tuple(rollouts),
    )


def evaluation(name: str, version: int, solved: int) -> dict[str, Any]:
    """An event in which `solved` of 4 samples of every held-out prompt are right, and greedy answers of half."""
    return {
        "name": name,
        "policy_version": version,
        "pass_rate": solved / 4,
        "greedy_pass_rate": 0.5,
        "seconds": 2.0,
        "solved": dict.fromkeys(HELDOUT, solved),
        "greedy_solved": {task: i % 2 for i, task in enumerate(HELDOUT)},
    }


def make_run(parent: Path, name: str = "shop", *, last_solved: int = 3, normalize: str = "token") -> RunDirectory:
    """base 1 of 4 right, after sft 2 of 4, after grpo last_solved of 4; grpo's groups come from GROUPS."""
    run = RunDirectory.create(parent, name)
    run.recipe.write_text(RECIPE.format(normalize=normalize))
    recorder = FileRecorder(run)
    recorder.event("evaluation", evaluation("base", 0, 1))
    recorder.rollouts("evaluation-base", 0, [group(t, "1000") for t in HELDOUT], [[0.0] * 4] * 20)
    for step in (1, 2, 3):
        row = {"loss": 3.0 - step, "grad_norm": 1.0, "lr": 1e-4, "seconds_train": 1.0, "seconds_step": 1.5}
        recorder.metrics("sft", step, row)
    recorder.event("evaluation", evaluation("sft", 3, 2))
    for step, groups in GROUPS.items():
        recorder.metrics("grpo", step, grpo_row(step, groups))
        recorder.rollouts("grpo", step, groups, [advantages(g) for g in groups])
    recorder.event("evaluation", evaluation("grpo", 7, last_solved))
    outcomes = "1" * last_solved + "0" * (4 - last_solved)
    recorder.rollouts("evaluation-grpo", 7, [group(t, outcomes) for t in HELDOUT], [[0.0] * 4] * 20)
    finished = tuple(
        FinishedStage(name=n, policy_version=v, weights=None, metrics_bytes=0, events_bytes=0, files=())
        for n, v in (("base", 0), ("sft", 3), ("grpo", 7))
    )
    write_stage_log(run, StageLog(groupwise="0", recipe="", inputs="", finished=finished))
    return run


GROUPS = {
    1: (group("lost", "1110"), group("won", "0000"), group("easy", "1111")),
    2: (group("hard", "0000"), group("won", "1100", text=HOSTILE), group("open", "????")),
    3: (group("hard", "000c"), group("lost", "0000"), group("easy", "1111")),
    4: (group("won", "1111"), group("mixed", "1010"), group("hard", "0000")),
}
"""grpo's groups by step. Visits: lost 3/4 0/4; won 0/4 2/4 4/4; easy 4/4 4/4; hard 0 0 0; mixed 2/4; open unscored."""


def advantages(of: Group) -> list[float]:
    """+1 for right and -1 for wrong answers of a group with both; else 0."""
    if of.is_dead:
        return [0.0] * len(of.rollouts)
    return [1.0 if r.verdict.outcome else -1.0 for r in of.rollouts]


def grpo_row(step: int, groups: tuple[Group, ...]) -> dict[str, float]:
    """Numbers of a step as training reports them."""
    dead = [g for g in groups if g.is_dead and g.num_scored]
    return {
        "pass_rate": sum(g.num_solved for g in groups) / 12,
        "reward_mean": sum(g.num_solved for g in groups) / 12,
        "num_groups": 3,
        "live_groups": sum(not g.is_dead for g in groups),
        "dead_groups_all_solved": sum(g.num_solved > 0 for g in dead),
        "dead_groups_none_solved": sum(g.num_solved == 0 for g in dead),
        "unscored_groups": sum(g.num_scored == 0 for g in groups),
        "mean_length_right": 10.0,
        "mean_length_wrong": 15.0,
        "loss": 0.1 / step,
        "grad_norm": 0.5,
        "seconds_generate": 2.0,
        "seconds_train": 1.0,
        "seconds_step": 3.5,
    }
