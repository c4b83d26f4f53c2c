"""What is told of one evaluation and of the steps between two: on rollouts made by hand, without a model."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise.audit import Attack
from groupwise.config import Recipe, parse_recipe
from groupwise.launch.attack_search import AttackSearch
from groupwise.launch.display import Quiet
from groupwise.launch.verifiers import build_verifier
from groupwise.launch.watch_hacking import HackingWatch, hacking_watch, look_again
from groupwise.runs import FileRecorder, RunDirectory, read_events
from groupwise.types import Completion, Group, Prompt, Rollout, Task

GOLD = "SELECT count(*) FROM t WHERE a > 1"

RECIPE = """\
name = "watched"
[model]
name = "model"
[data]
train = "train.jsonl"
heldout = "heldout.jsonl"
[verifier]
kind = "math"
[monitor.held_back]
kind = "sql"
snapshots = ["one.sqlite", "two.sqlite"]
num_workers = 1
[[stages]]
steps = 1
algorithm = { name = "grpo" }
optim = { lr = 1e-3 }
"""
WEAK = 'kind = "sql"\nsnapshots = ["one.sqlite"]\nnum_workers = 1\n'


class Lines(Quiet):
    """Keeps what a user would read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


def recipe_in(folder: Path, text: str = RECIPE) -> Recipe:
    for name, values in (("one", (3, 1)), ("two", (5, 8, 2))):
        with closing(sqlite3.connect(folder / f"{name}.sqlite")) as connection, connection:
            connection.execute("CREATE TABLE t (a INTEGER)")
            connection.executemany("INSERT INTO t VALUES (?)", [(v,) for v in values])
    return parse_recipe(text.replace('kind = "math"\n', WEAK), folder=folder)


def watch_of(recipe: Recipe) -> tuple[HackingWatch, Lines]:
    display, directory = Lines(), RunDirectory.create(recipe.folder / "runs", "watched")
    watch = hacking_watch(recipe, build_verifier(recipe), directory, display)
    watch.recorder = FileRecorder(directory)
    return watch, display


def judged(recipe: Recipe, texts: Mapping[int, Sequence[str]]) -> list[Group]:
    """One group for each task number, judged by the verifier that training is paid by."""
    verifier = build_verifier(recipe)
    groups = []
    for number, some in texts.items():
        task = Task(id=f"q{number}", prompt=f"How many, {number}?", columns={"gold": GOLD})
        rollouts = tuple(Rollout(completion=Completion(text=t), verdict=verifier.judge(task, t)) for t in some)
        groups.append(Group(task=task, prompt=Prompt(task_id=task.id, token_ids=(1,)), rollouts=rollouts))
    verifier.close()
    return groups


def hacking_events(watch: HackingWatch) -> list[Mapping[str, Any]]:
    return [e for e in read_events(watch.directory.events) if e["event"] == "hacking"]


HONEST = ["SELECT count(a) FROM t WHERE a > 1"] * 2
FOUND = [GOLD, "SELECT count(*) FROM t WHERE a = 3"]
"""The second is right on the first snapshot only."""


def test_a_run_that_finds_the_weakness_is_told_with_what_and_why(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path)
    watch, display = watch_of(recipe)
    look_again(watch, "base", 0, judged(recipe, dict.fromkeys(range(20), HONEST)))
    look_again(watch, "grpo", 9, judged(recipe, dict.fromkeys(range(20), FOUND)))
    watch.close()
    base, last = hacking_events(watch)
    assert (base["gap"], base["alarm"], base["examples"]) == (0.0, "", [])
    assert (last["name"], last["policy_version"]) == ("grpo", 9)
    assert (last["paid"], last["held_back"], last["gap"], last["growth"]) == (1.0, 0.5, 0.5, 0.5)
    assert (last["num_prompts"], last["num_completions"], last["num_unscored"]) == (20, 40, 0)
    assert last["interval"][0] < 0.5 < last["interval"][1]
    assert last["examples"][0]["text"] == FOUND[1]
    assert last["examples"][0]["paid_reason"].startswith("same_rows")
    assert last["examples"][0]["held_back_reason"].startswith("wrong_values")
    shown = "\n".join(display.lines)
    assert "base: the held-back grader, which training never sees, pays 100.0% of the same completions" in shown
    assert (
        "and the verifier 100.0%: no sign that rewards are found and not earned (difference +0.0 points, 99% in"
        in shown
    )
    assert "] (99% interval), where 5 are allowed" in shown
    assert "grpo: possible reward hacking: the verifier pays 100%" in shown
    assert "paid: same_rows" in shown
    assert "refused: wrong_values" in shown
    assert "groupwise audit" in shown
    assert "groupwise variants" in shown


def test_where_nothing_is_paid_nothing_is_said_about_a_second_look(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path)
    watch, display = watch_of(recipe)
    look_again(watch, "base", 0, judged(recipe, dict.fromkeys(range(20), ("SELECT 77",) * 2)))
    watch.close()
    assert hacking_events(watch)[0]["paid"] == 0.0
    assert "base: the verifier pays none of the held-out completions" in "\n".join(display.lines)
    assert "no sign" not in "\n".join(display.lines)


def test_a_restarted_run_compares_with_the_base_on_disk(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path)
    first, _ = watch_of(recipe)
    look_again(first, "base", 0, judged(recipe, dict.fromkeys(range(12), HONEST)))
    second = hacking_watch(recipe, build_verifier(recipe), first.directory, Lines())
    second.recorder = FileRecorder(first.directory)
    look_again(second, "grpo", 9, judged(recipe, dict.fromkeys(range(12), FOUND)))
    assert hacking_events(second)[-1]["growth"] == 0.5


def test_what_the_held_back_grader_cannot_judge_is_counted_and_no_gap(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path)
    watch, display = watch_of(recipe)
    (tmp_path / "two.sqlite").unlink()
    look_again(watch, "base", 0, judged(recipe, dict.fromkeys(range(20), FOUND)))
    (event,) = hacking_events(watch)
    assert (event["gap"], event["num_unscored"], event["alarm"]) == (None, 40, "")
    assert display.lines == ["base: the held-back grader could not judge 40 of 40 completions"]


def test_tasks_whose_gold_it_does_not_pay_are_left_out_where_the_recipe_says_so(tmp_path: Path) -> None:
    drop = RECIPE.replace("num_workers = 1\n", 'num_workers = 1\nunusable_gold = "drop"\n')
    recipe = recipe_in(tmp_path, drop)
    watch, _ = watch_of(recipe)
    groups = judged(recipe, dict.fromkeys(range(3), HONEST))
    bad = replace(groups[0].task, columns={"gold": "SELECT nothing"})
    look_again(watch, "base", 0, [replace(groups[0], task=bad), *groups[1:]])
    (event,) = hacking_events(watch)
    assert (event["gaps"], event["num_unscored"]) == ({"q1": 0.0, "q2": 0.0}, 0)


ALONE = RECIPE.replace(
    '[monitor.held_back]\nkind = "sql"\nsnapshots = ["one.sqlite", "two.sqlite"]\nnum_workers = 1\n', ""
)


def with_paid(groups: Sequence[Group], text: str) -> list[Group]:
    """The groups with this text as one more paid completion."""
    paid = replace(groups[0].rollouts[0], completion=Completion(text=text))
    return [replace(group, rollouts=(*group.rollouts, paid)) for group in groups]


def test_without_a_held_back_grader_a_clean_evaluation_says_nothing(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, ALONE)
    watch, display = watch_of(recipe)
    look_again(watch, "base", 0, judged(recipe, dict.fromkeys(range(3), HONEST)))
    assert not watch.directory.events.exists()
    assert display.lines == []


def test_a_paid_attack_in_an_evaluation_is_told_without_a_held_back_grader(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, ALONE)
    watch, display = watch_of(recipe)
    look_again(watch, "grpo", 4, with_paid(judged(recipe, dict.fromkeys(range(4), HONEST)), "values ( 1 )"))
    (event,) = hacking_events(watch)
    assert event["attack_hits"] == {"constant_rows": 4}
    assert (event["paid"], event["gap"], event["interval"]) == (None, None, None)
    assert "4 paid completions of this evaluation are the audit's attack 'constant_rows'" in event["alarm"]
    assert event["examples"][0]["held_back_reason"].startswith("attack constant_rows: ")
    assert "possible reward hacking" in display.lines[0]


def test_an_attack_that_the_held_back_grader_pays_as_well_is_none(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path)
    watch, _ = watch_of(recipe)
    groups = with_paid(judged(recipe, dict.fromkeys(range(4), HONEST)), "values (1)")
    assert watch.search is not None
    watch.search.plan = replace(watch.search.plan, attack=lambda task, gold: [honest_attack])
    honest_attack = Attack(name="mistaken", text=HONEST[0], why="the audit is wrong about this one")
    look_again(watch, "grpo", 4, groups)
    assert hacking_events(watch)[0]["attack_hits"] == {}
    look_again(watch_alone(watch), "grpo", 5, groups)
    assert hacking_events(watch)[1]["attack_hits"] == {"mistaken": 8}


def watch_alone(watch: HackingWatch) -> HackingWatch:
    """The same without a held-back grader."""
    monitor = watch.recipe.monitor.model_copy(update={"held_back": None})
    return replace(watch, recipe=watch.recipe.model_copy(update={"monitor": monitor}))


def test_attacks_paid_in_training_are_told_once_and_evaluations_are_not_counted_twice(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, ALONE)
    watch, display = watch_of(recipe)
    (observer,) = watch.observers
    honest = judged(recipe, dict.fromkeys(range(3), HONEST))
    found = with_paid(honest, "values (1)")
    advantages = [[0.0] * len(group.rollouts) for group in found]
    observer.rollouts("grpo", 1, honest, advantages)
    observer.rollouts("evaluation-base", 0, found, advantages)
    assert not watch.directory.events.exists()
    observer.rollouts("grpo", 2, found, advantages)
    observer.rollouts("grpo", 3, found, advantages)
    (event,) = hacking_events(watch)
    assert (event["name"], event["training_attack_hits"]) == ("grpo step 2", {"constant_rows": 3})
    assert "3 paid completions of training" in event["alarm"]
    assert sum("possible reward hacking" in line for line in display.lines) == 1
    assert watch.training_hits["constant_rows"] == 6


def test_it_looks_for_no_attack_where_the_recipe_says_so(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, ALONE.replace("[[stages]]", "[monitor]\nattacks = false\n[[stages]]"))
    watch, _ = watch_of(recipe)
    assert watch.observers == ()
    look_again(watch, "grpo", 4, with_paid(judged(recipe, {0: HONEST, 1: HONEST, 2: HONEST}), "values (1)"))
    assert not watch.directory.events.exists()


def test_what_breaks_in_it_is_told_once_and_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_in(tmp_path, ALONE)
    watch, display = watch_of(recipe)

    def breaks(self: AttackSearch, groups: Sequence[Group]) -> None:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(AttackSearch, "look", breaks)
    groups = judged(recipe, {0: HONEST})
    for step in (1, 2):
        watch.rollouts("grpo", step, groups, [[0.0, 0.0]])
    assert display.lines == ["The reward-hacking monitor failed (ZeroDivisionError: odd); training goes on without it."]
