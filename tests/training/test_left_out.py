"""Why a rollout has no place in the loss: in the batch, on record, and in what a collection that is no step leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from training_cases import MAX_TOKENS, FakeEngine, ListRecorder, SaysYes, group, mixed_groups, said, small_policy
from training_cases import tasks_and_prompts as tasks_of

from groupwise.curation import PromptLedger
from groupwise.models import tree_scores
from groupwise.rollout import Sampling
from groupwise.training import GrpoOptions, OptimOptions, StageOptions, grpo, run_stage
from groupwise.training.grpo import StepSampling
from groupwise.training.grpo_batch import make_batch, reasons_left_out, step_advantages
from groupwise.types import Group, Stop


def cut(one: Group, *rows: int) -> Group:
    """The group with these rollouts cut at the limit."""
    rollouts = [
        replace(r, completion=replace(r.completion, stop=Stop.LENGTH)) if i in rows else r
        for i, r in enumerate(one.rollouts)
    ]
    return replace(one, rollouts=tuple(rollouts))


def reasons(groups: Sequence[Group], options: GrpoOptions) -> list[list[str]]:
    """And the batch holds exactly those without a reason."""
    advantages = step_advantages(groups, options)
    found = reasons_left_out(groups, advantages, options)
    batch = make_batch(groups, advantages, options, max_completion_tokens=MAX_TOKENS)
    trained = [
        g.prompt.token_ids + r.completion.token_ids
        for g, why in zip(groups, found, strict=True)
        for r, reason in zip(g.rollouts, why, strict=True)
        if not reason
    ]
    assert ([] if batch is None else [s.token_ids for s in batch.sequences]) == trained
    return [list(why) for why in found]


def test_each_reason_and_which_comes_first() -> None:
    live, solved, part, none = mixed_groups()
    groups = [cut(live, 1), cut(solved, 0), part, none]
    dead = ["dead_group"] * 4
    assert reasons(groups, GrpoOptions()) == [[""] * 4, dead, ["", "unscored", "", ""], dead]
    masked = [["", "truncated", "", ""], ["truncated", *dead[1:]], ["", "unscored", "", ""], dead]
    assert reasons(groups, GrpoOptions(mask_truncated=True)) == masked


def test_a_kl_or_an_entropy_gives_dead_groups_a_place() -> None:
    for options in (GrpoOptions(beta=0.1), GrpoOptions(entropy_coef=0.1), GrpoOptions(skip_dead_groups=False)):
        assert reasons(mixed_groups(), options) == [[""] * 4, [""] * 4, ["", "unscored", "", ""], [""] * 4]


def test_where_nothing_has_an_advantage_nothing_is_trained() -> None:
    dead = [mixed_groups()[1], mixed_groups()[3]]
    for options in (GrpoOptions(), GrpoOptions(skip_dead_groups=False)):
        found = reasons_left_out(dead, step_advantages(dead, options), options)
        assert found == (("dead_group",) * 4,) * 2


def test_a_mixed_group_of_equal_rewards_has_no_advantage_either() -> None:
    """Dead for the gradient, though its outcomes differ: what decides is the advantage."""
    one = group(0, [0.5, 0.5], [2, 2])
    assert reasons([one, mixed_groups()[0]], GrpoOptions())[0] == ["dead_group"] * 2


def run(folder: Path, verdict_texts: str, *, extra_rounds: int) -> ListRecorder:
    """One step of 1 wanted group of 2; prompt number i of a call is answered "yes", and then verdict_texts[call]."""
    recorder = ListRecorder()
    tasks, prompts = tasks_of(len(verdict_texts))
    words = {"y": "yes", "n": "no", "b": "broken"}
    engine = FakeEngine(lambda p, c: said("", 5))
    engine.answer = lambda p, c: said("yes" if c == 0 else words[verdict_texts[len(engine.calls) - 1]], 5 + c, 1)
    algorithm = grpo(
        GrpoOptions(max_unscored_frac=1.0),
        engine=engine,
        verifier=SaysYes(),
        tasks=tasks,
        prompts=prompts,
        ledger=PromptLedger([t.id for t in tasks], seed=0),
        step_sampling=StepSampling(prompts_per_step=1, group_size=2, extra_rounds=extra_rounds),
        sampling=Sampling(max_tokens=8),
        seed=0,
    )
    run_stage(
        StageOptions(name="s", num_steps=1, optim=OptimOptions(lr=1e-3), checkpoints=folder, max_empty_steps=4),
        algorithm,
        small_policy(),
        scores=tree_scores,
        recorder=recorder,
        policy_version=0,
        on_new_weights=lambda version: None,
        on_step=lambda step, metrics: None,
        should_stop=lambda: False,
    )
    return recorder


def test_a_group_that_was_replaced_is_on_record_as_such(tmp_path: Path) -> None:
    recorder = run(tmp_path, "ybn", extra_rounds=2)
    assert recorder.left_out == [(("replaced", "replaced"), ("replaced", "replaced"), ("", ""))]
    assert recorder.rows[0]["num_trained_rollouts"] == 2


def test_what_is_no_step_says_why_too(tmp_path: Path) -> None:
    recorder = run(tmp_path, "ybn", extra_rounds=0)
    assert recorder.left_out == [(("dead_group", "dead_group"),), (("dead_group", "unscored"),), (("", ""),)]
    assert [row["num_trained_rollouts"] for row in recorder.rows] == [0, 0, 2]
    assert [row["updated"] for row in recorder.rows] == [0, 0, 1]


@pytest.mark.parametrize("options", [GrpoOptions(), GrpoOptions(beta=0.1)])
def test_advantages_decide_and_not_the_truth_of_them(options: GrpoOptions) -> None:
    """A rollout at the mean of a live group has advantage 0 and a place all the same."""
    one = group(0, [1.0, 0.5, 0.0], [2, 2, 2])
    assert step_advantages([one], options)[0][1] == 0
    assert reasons([one], options) == [["", "", ""]]
