"""The second grader: proved before training, in time or unscored, and never a reason to stop."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from fakes import FakeVerifier, fake_task
from groupwise.config import Recipe, load_recipe
from groupwise.errors import VerifierError
from groupwise.launch import local
from groupwise.launch.held_back import judge_again, judge_in_time, proves_golds, refuse_unusable_held_back
from groupwise.types import Status, Task, Verdict
from tiny_job import everything_in, replaced, write_job

TWO = 'snapshots = ["one.sqlite", "two.sqlite"]\nnum_workers = 1\n'
WEAK = replaced(TWO, f'snapshots = ["one.sqlite"]\nnum_workers = 1\n\n[monitor.held_back]\nkind = "sql"\n{TWO}')


def job(folder: Path, monitor: str = "") -> Recipe:
    """The verifier sees one snapshot, the held-back grader two, or what `monitor` says."""
    change = replaced(TWO, f'snapshots = ["one.sqlite"]\nnum_workers = 1\n\n{monitor}') if monitor else WEAK
    return load_recipe(write_job(folder, change))


def heldout(number: int, gold: str = "SELECT a FROM t") -> Task:
    return Task(id=f"h{number}", prompt="all of a?", columns={"gold": gold})


def test_golds_that_it_pays_are_proved_in_silence(tmp_path: Path) -> None:
    refuse_unusable_held_back(job(tmp_path), [heldout(0)])


def test_a_gold_that_it_does_not_pay_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    recipe = job(tmp_path, '[monitor.held_back]\nkind = "sql"\nsnapshots = ["one.sqlite", "missing.sqlite"]\n')
    before = everything_in(tmp_path)
    with pytest.raises(VerifierError, match=r"(?s)monitor\.held_back does not pay 3 of 3 held-out golds.*missing"):
        local.train(recipe.model_copy(update={"model": recipe.model.model_copy(update={"name": "no-model"})}))
    assert everything_in(tmp_path) == before


def test_tasks_may_be_left_out_instead_unless_none_is_left(tmp_path: Path) -> None:
    drop = '[monitor.held_back]\nkind = "sql"\nunusable_gold = "drop"\nsnapshots = ["one.sqlite", "two.sqlite"]\n'
    recipe = job(tmp_path, drop)
    refuse_unusable_held_back(recipe, [heldout(0), heldout(1, "SELECT nothing")])
    with pytest.raises(VerifierError, match="1 of 1 held-out golds"):
        refuse_unusable_held_back(recipe, [heldout(1, "SELECT nothing")])


def test_only_the_tasks_that_are_measured_must_be_proved(tmp_path: Path) -> None:
    recipe = job(tmp_path)
    few = recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update={"num_prompts": 1})})
    refuse_unusable_held_back(few, [heldout(0), heldout(1, "SELECT nothing")])


def test_it_judges_in_order(tmp_path: Path) -> None:
    recipe = job(tmp_path)
    texts = ["SELECT a FROM t", "VALUES (3), (1)", "SELECT a FROM t WHERE a < 4"]
    assert [v.outcome for v in judge_again(recipe, [(heldout(0), text) for text in texts])] == [True, False, False]


def test_one_that_cannot_be_built_any_more_leaves_everything_unscored(tmp_path: Path) -> None:
    recipe = job(tmp_path, '[monitor.held_back]\nkind = "reward_model"\npath = "gone"\n')
    (verdict,) = judge_again(recipe, [(heldout(0), "text")])
    assert (verdict.status, verdict.outcome) == (Status.UNSCORED, None)
    assert verdict.reason.startswith("held_back_unscored: it cannot be built: ")


def test_one_that_breaks_is_unscored_and_the_others_are_judged() -> None:
    verifier = FakeVerifier(raises={"bad": RuntimeError("broke")})
    pairs = [(fake_task(n), text) for n, text in enumerate(["right", "bad", "wrong"])]
    assert [v.outcome for v in judge_in_time(verifier, pairs, time.monotonic() + 60)] == [True, None, False]


def test_one_that_hangs_costs_its_own_completion_and_no_more_than_the_time_limit() -> None:
    release = threading.Event()

    class Hangs(FakeVerifier):
        def judge(self, task: Task, completion_text: str) -> Verdict:
            if completion_text == "hang":
                release.wait(20)
            return super().judge(task, completion_text)

    pairs = [(fake_task(0), "hang"), (fake_task(1), "right"), (fake_task(2), "wrong")]
    began = time.monotonic()
    verdicts = judge_in_time(Hangs(), pairs, began + 0.3)
    release.set()
    assert time.monotonic() - began < 5
    assert [v.outcome for v in verdicts] == [None, True, False]
    assert "time_limit_s" in verdicts[0].reason


def test_nothing_is_begun_after_the_time_limit() -> None:
    class Slow(FakeVerifier):
        def judge(self, task: Task, completion_text: str) -> Verdict:
            time.sleep(0.05)
            return super().judge(task, completion_text)

    verifier = Slow()
    verdicts = judge_in_time(verifier, [(fake_task(n), "right") for n in range(200)], time.monotonic() + 0.1)
    assert 0 < sum(v.outcome is True for v in verdicts) < 100
    time.sleep(0.2)
    assert len(verifier.judged) < 100


def test_nothing_to_judge_takes_no_thread() -> None:
    assert judge_in_time(FakeVerifier(), [], time.monotonic() + 1) == []


class Together(FakeVerifier):
    """Judges many at once, and not where one of them is "bad"."""

    def judge_many(self, pairs: list[tuple[Task, str]]) -> list[Verdict]:
        assert len({task.id for task, _ in pairs}) == 1
        if any(text == "bad" for _, text in pairs):
            raise RuntimeError("broke")
        return [self.judge(task, text) for task, text in pairs]


def test_a_grader_of_groups_is_asked_by_task_and_one_by_one_where_that_breaks() -> None:
    verifier = Together(raises={"bad": RuntimeError("broke")})
    pairs = [(fake_task(n % 2), text) for n, text in enumerate(["right", "bad", "wrong", "right"])]
    assert [v.outcome for v in judge_in_time(verifier, pairs, time.monotonic() + 60)] == [True, None, False, True]


def test_what_proves_golds(tmp_path: Path) -> None:
    function = '[monitor.held_back]\nkind = "function"\npath = "judge.py:f"\n'
    judged = [job(tmp_path / str(n), text).monitor.held_back for n, text in enumerate(["", function])]
    assert [proves_golds(s) for s in judged if s is not None] == [True, False]
    named = job(tmp_path / "named", function + 'gold_column = "gold"\n').monitor.held_back
    assert named is not None
    assert proves_golds(named)
