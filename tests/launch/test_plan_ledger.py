"""What a plan takes from a ledger, and the ledgers that it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import Recipe
from groupwise.curation import CuratedRow, CurateOptions, Curation, Exclusion, Reason, decide
from groupwise.curation.curation_file import Identity, write_ledger
from groupwise.curation.decision import task_key
from groupwise.data import load_tasks
from groupwise.errors import DataError
from groupwise.launch.plan import make_plan
from groupwise.launch.plan_ledger import read_measured
from groupwise.launch.verifiers import build_verifier
from groupwise.planning.pass_rates import BetaRates
from plan_job import GRPO, SFT, write_plan_job

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_completion_tokens": 4, "stop": []}


def identity_of(recipe: Recipe, **changes: Any) -> Identity:
    verifier = build_verifier(recipe)
    known = Identity(model="model", weights="w", verifier=verifier.version, sampling=SAMPLING)
    verifier.close()
    return dataclasses.replace(known, **changes)


def write(recipe: Recipe, identity: Identity, **more: Any) -> Path:
    """Two rows for the recipe's training tasks: solved 3 of 16 and 0 of 16 times; and a row of another file."""
    tasks = load_tasks(recipe.data, recipe.folder, recipe.seed).train
    lengths = {"num_samples": 16, "prompt_tokens": 6, "completion_tokens": 40, "longest_tokens": 4}
    rows = tuple(
        CuratedRow(id=task.id, key=task_key(task), solved=solved, scored=16, **lengths)
        for task, solved in zip(tasks, (3, 0), strict=True)
    )
    other = CuratedRow(id="o", key="another", solved=8, scored=16, **lengths)
    duplicate = CuratedRow(id="d", key="more", excluded=Exclusion(reason=Reason.DUPLICATE, detail="of o"))
    path = recipe.folder / "curated" / "ledger.jsonl"
    write_ledger(path, Curation(rows=(*rows, other, duplicate), options=CurateOptions()), identity, more)
    return path


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return write_plan_job(tmp_path, ("enabled = false", "enabled = true"), stages=GRPO)


def test_kept_prompts_of_the_recipe_carry_the_plan(recipe: Recipe) -> None:
    path = write(recipe, identity_of(recipe), trunk_tokens=2)
    tasks = load_tasks(recipe.data, recipe.folder, recipe.seed).train
    measured = read_measured(recipe, path.parent, tasks)
    prior = measured.ledger.prior
    assert measured.rates == BetaRates(alpha=prior.alpha, beta=prior.beta)
    kept = [row for row in measured.ledger.rows[:2] if decide(row, prior, CurateOptions()).reason is Reason.KEPT]
    assert [row.solved for row in kept] == [3]  # the other one is never solved, the third belongs to other tasks
    assert measured.kept == (prior.posterior(solved=3, scored=16),)
    plan = make_plan(recipe, ledger=str(path), hardware="l4")
    assert plan.live_share == pytest.approx(1 - measured.kept[0].zero_variance_probability(2))
    assert plan.rates_measured
    assert "3 prompts with 48 completions of model" in plan.rates_source
    lengths = plan.lengths
    assert (lengths.prompt, lengths.trunk, lengths.completion, lengths.longest) == (6, 2, 2.5, 4)
    assert plan.notes == ()


def test_the_recipe_s_own_ledger_is_read_and_saves_the_measuring(recipe: Recipe) -> None:
    path = write(recipe, identity_of(recipe))
    outside = make_plan(recipe, ledger=str(path), hardware="l4")
    inside = recipe.model_copy(
        update={"curation": recipe.curation.model_copy(update={"ledger": "curated/ledger.jsonl"})}
    )
    plan = make_plan(inside, hardware="l4")
    assert plan.rates == outside.rates
    assert plan.stages[0].before_s == 0 < outside.stages[0].before_s


def test_given_rates_win_over_the_ledger(recipe: Recipe) -> None:
    plan = make_plan(recipe, ledger=str(write(recipe, identity_of(recipe))), pass_rates=[0.5], hardware="l4")
    assert plan.live_share == pytest.approx(0.5)
    assert plan.rates_source == "given: 0.5"


def test_without_curation_every_prompt_is_sampled(recipe: Recipe) -> None:
    off = recipe.model_copy(update={"curation": recipe.curation.model_copy(update={"enabled": False})})
    plan = make_plan(off, ledger=str(write(off, identity_of(off))), hardware="l4")
    assert plan.live_share == pytest.approx(next(g.informative for g in plan.groups if g.group_size == 2))


def test_undecided_prompts_count_where_they_are_kept(recipe: Recipe) -> None:
    tasks = load_tasks(recipe.data, recipe.folder, recipe.seed).train
    path = recipe.folder / "ledger.jsonl"
    rows = tuple(
        CuratedRow(id=task.id, key=task_key(task), solved=solved, scored=4, num_samples=4)
        for task, solved in zip(tasks, (1, 0), strict=True)
    )
    curation = Curation(rows=rows, options=CurateOptions(budget=8))
    assert curation.decisions()[1].reason is Reason.UNDECIDED
    for keep, num in ((False, 1), (True, 2)):
        write_ledger(path, curation, identity_of(recipe), {"keep_undecided": keep})
        assert len(read_measured(recipe, path, tasks).kept) == num


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "owner/other"}, r"other weights \(then owner/other, now model\)"),
        ({"verifier": "older"}, "another verifier.*version older"),
        ({"sampling": {**SAMPLING, "temperature": 0.5}}, "rollout.temperature = 0.5, now 1.0"),
        ({"sampling": {**SAMPLING, "stop": [";"]}}, r"rollout.stop = \[';'\], now \[\]"),
    ],
)
def test_a_ledger_of_something_else_is_refused(recipe: Recipe, changes: dict[str, Any], told: str) -> None:
    path = write(recipe, identity_of(recipe, **changes))
    with pytest.raises(DataError, match=told) as refused:
        make_plan(recipe, ledger=str(path))
    assert "groupwise curate" in str(refused.value)


def test_one_folder_under_two_names_is_one_model(recipe: Recipe) -> None:
    path = write(recipe, identity_of(recipe, model=str(recipe.folder / "model")))
    assert make_plan(recipe, ledger=str(path)).rates_measured


def test_a_ledger_of_other_prompts_is_refused(recipe: Recipe) -> None:
    path = write(recipe, identity_of(recipe))
    text = (recipe.folder / "train.jsonl").read_text()
    (recipe.folder / "train.jsonl").write_text(text.replace('"gold": "1"', '"gold": "2"'))
    with pytest.raises(DataError, match="other prompts: none of the 2 training tasks"):
        make_plan(recipe, ledger=str(path))


def test_a_ledger_without_samples_or_that_is_none_is_refused(recipe: Recipe) -> None:
    path = recipe.folder / "ledger.jsonl"
    write_ledger(path, Curation(rows=(CuratedRow(id="a", key="k"),), options=CurateOptions()), identity_of(recipe))
    with pytest.raises(DataError, match="no prompt of this ledger was sampled"):
        make_plan(recipe, ledger=str(path))
    with pytest.raises(DataError, match="cannot be read"):
        make_plan(recipe, ledger=str(recipe.folder / "none.jsonl"))


def test_counts_of_the_start_model_before_a_later_stage_are_said_to_be_that(tmp_path: Path) -> None:
    recipe = write_plan_job(tmp_path, ("enabled = false", "enabled = true"), stages=SFT + GRPO)
    plan = make_plan(recipe, ledger=str(write(recipe, identity_of(recipe))), hardware="l4")
    assert "stage 'grpo' starts from the weights of stage 'sft'" in " ".join(plan.notes)


def test_a_ledger_that_keeps_nothing_is_said_to_do_so(recipe: Recipe) -> None:
    tasks = load_tasks(recipe.data, recipe.folder, recipe.seed).train
    rows = tuple(CuratedRow(id=t.id, key=task_key(t), solved=0, scored=64, num_samples=64) for t in tasks)
    path = recipe.folder / "ledger.jsonl"
    write_ledger(path, Curation(rows=rows, options=CurateOptions()), identity_of(recipe))
    plan = make_plan(recipe, ledger=str(path), hardware="l4")
    assert "keeps no prompt" in " ".join(plan.notes)
