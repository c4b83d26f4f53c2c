"""Evaluations as they are read: of a run by name, from counts alone, from a folder of results, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluated_run import evaluate_into, group, groups_of, new_run, rollout, write_results
from groupwise.errors import DataError
from groupwise.runs import read_run
from groupwise.runs.evaluation_record import evaluation_names, evaluation_of, evaluation_of_run, with_short_labels


def test_a_run_is_its_last_evaluation_and_others_have_names(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    evaluate_into(run, "base", groups_of({"a": [False, False], "b": [True, None]}))
    evaluate_into(run, "grpo step 5", groups_of({"a": [True, False]}), groups_of({"a": [True]}), version=5)
    last = evaluation_of(run.path)
    assert last.label == f"{run.path.name} grpo step 5"
    assert (last.sampled["a"].solved, last.sampled["a"].scored, last.greedy["a"].rate) == (1, 2, 1.0)
    assert last.settings["verifier_version"] == "v1"
    assert last.settings["max_completion_tokens"] == 20
    base = evaluation_of(f"{run.path}:base")
    assert (base.sampled["b"].solved, base.sampled["b"].scored) == (1, 1)
    assert base.num_unscored == 1
    assert base.sampled["a"].answers[0].text == "answer False"
    assert base.sampled["a"].answers[0].num_tokens == 4
    assert evaluation_names(read_run(run.path)) == ["base", "grpo step 5"]


def test_counts_are_enough_where_no_rollouts_were_kept(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    groups = groups_of({"a": [True, False], "b": [None, None]})
    evaluate_into(run, "base", groups, with_rollouts=False, scored={"a": 2, "b": 0}, samples_per_prompt=2)
    found = evaluation_of(run.path)
    assert (found.sampled["a"].solved, found.sampled["a"].scored) == (1, 2)
    assert "b" not in found.sampled  # nothing of it was scored, so that it has no rate
    assert found.sampled["a"].answers == ()


def test_an_older_event_has_the_samples_of_the_recipe(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    evaluate_into(run, "base", groups_of({"a": [True, False]}), with_rollouts=False)
    assert evaluation_of(run.path).sampled["a"].scored == 2


def test_a_folder_of_results_is_its_newest(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "out", {"a": [True, None, False]})
    found = evaluation_of(folder)
    assert (found.sampled["a"].solved, found.sampled["a"].scored) == (1, 2)
    assert found.greedy["a"].solved == 1
    assert found.num_unscored == 1
    assert found.label == "out eval"
    assert found.settings == {"success": "outcome", "temperature": 1.0, "max_completion_tokens": 20}
    assert [a.text for a in found.sampled["a"].answers] == ["a\u2028b"] * 3
    assert [a.num_tokens for a in found.sampled["a"].answers] == [3] * 3
    assert found.prompts == {"a": "question a"}
    write_results(folder, {"a": [False]}, day=2, greedy=False)
    assert evaluation_of(folder).sampled["a"].scored == 1
    assert evaluation_of(folder).greedy == {}


def test_damaged_results_are_refused_by_name(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "out", {"a": [True]})
    next(folder.glob("samples_*")).unlink()
    with pytest.raises(DataError, match=r"results_.*cannot be read"):
        evaluation_of(folder)
    next(folder.glob("results_*")).write_text(json.dumps([]))
    with pytest.raises(DataError, match="cannot be read"):
        evaluation_of(folder)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder"):
        evaluation_of(tmp_path / "nothing")
    run = new_run(tmp_path)
    with pytest.raises(DataError, match="no evaluation is finished"):
        evaluation_of(run.path)
    evaluate_into(run, "base", groups_of({"a": [True]}))
    with pytest.raises(DataError, match=r"no evaluation 'sft'; it has base"):
        evaluation_of(f"{run.path}:sft")


def test_labels_are_as_short_as_they_can_be(tmp_path: Path) -> None:
    run = new_run(tmp_path, "one")
    evaluate_into(run, "base", [group("a", [rollout(True)])])
    evaluate_into(run, "grpo", [group("a", [rollout(True)])], version=1)
    other = new_run(tmp_path, "two")
    evaluate_into(other, "grpo", [group("a", [rollout(True)])])
    records = [evaluation_of(f"{run.path}:base"), evaluation_of_run(read_run(run.path)), evaluation_of(other.path)]
    assert [r.label for r in with_short_labels(records[:2])] == ["base", "grpo"]
    assert [r.label for r in with_short_labels(records)] == ["one base", "one grpo", "two grpo"]
    assert with_short_labels([records[0], records[0]]) == [records[0], records[0]]
