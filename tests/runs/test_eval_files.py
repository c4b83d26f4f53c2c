"""The files of an evaluation: the layout that lm-evaluation-harness writes, and what is ours in it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import DataError
from groupwise.runs.eval_files import EvaluatedModel, write_evaluation
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict

ABOUT = EvaluatedModel(
    task="shop sql",
    model="org/model",
    kind="groupwise",
    verifier="sql",
    verifier_version="abc",
    samples_per_prompt=4,
    num_original=5,
    seed=17,
    generation={"temperature": 1.0, "max_gen_toks": 8},
    versions={"python": "3"},
)
NOW = datetime(2026, 11, 30, 19, 31, 12, 123456)


def rollout(outcome: bool | None, text: str = "t") -> Rollout:
    lost = outcome is None
    verdict = Verdict(
        status=Status.UNSCORED if lost else Status.SCORED,
        reward=None if lost else float(outcome or 0),
        outcome=outcome,
        reason="engine_aborted" if lost else "same_rows",
    )
    completion = Completion(text=text, stop=Stop.ABORTED if lost else Stop.END)
    return Rollout(completion=completion, verdict=verdict)


def group(number: int, *outcomes: bool | None, text: str = "t") -> Group:
    turns = ({"role": "system", "content": "s"}, {"role": "user", "content": f"question {number}"})
    task = Task(id=f"q{number}", prompt=turns, columns={"gold": "SELECT 1", "odd": {1, 2}})
    return Group(
        task=task,
        prompt=Prompt(task_id=task.id, token_ids=()),
        rollouts=tuple(rollout(outcome, text) for outcome in outcomes),
    )


GROUPS = (group(1, True, True, False, False), group(2, False, False, False, False), group(3, True, None, None, True))
GREEDY = (group(1, True, text="greedy"), group(2, False, text="greedy"), group(3, None))


def written(folder: Path, **changes: Any) -> tuple[dict[str, Any], list[dict[str, Any]], tuple[Path, Path]]:
    how = {"groups": GROUPS, "greedy_groups": GREEDY, "golds": {"q1": "SELECT 1"}, "facts": {"pass_rate": 0.5}}
    paths = write_evaluation(folder, ABOUT, now=NOW, **(how | changes))
    results = json.loads(paths[0].read_text(), parse_constant=pytest.fail)
    return results, [json.loads(line) for line in paths[1].read_text().splitlines()], paths


def test_names_and_nothing_else_in_the_folder(tmp_path: Path) -> None:
    _, _, paths = written(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [
        "results_2026-11-30T19-31-12.123456.json",
        "samples_shop_sql_2026-11-30T19-31-12.123456.jsonl",
    ]
    assert sorted((tmp_path / "new" / "folder").iterdir()) == sorted(paths)


def test_rates_by_hand_with_sampled_and_greedy_apart(tmp_path: Path) -> None:
    results, _, _ = written(tmp_path)
    rates = results["results"]["shop_sql"]
    assert rates["pass@1,sampled"] == pytest.approx((1 / 2 + 0 + 1) / 3)  # the unscored two of q3 are in no rate
    assert rates["pass@2,sampled"] == pytest.approx((5 / 6 + 0 + 1) / 3)  # 1 - C(2, 2) / C(4, 2) = 5/6
    assert rates["pass^2,sampled"] == pytest.approx((1 / 6 + 0 + 1) / 3)
    assert rates["pass@4,sampled"] == pytest.approx(1 / 2)  # q3 has 2 scored ones: it is left out
    assert rates["pass@1,greedy"] == 1 / 2
    assert rates["pass@1_stderr,sampled"] == pytest.approx(0.5 / 3**0.5)  # sample variance 1/4 over 3 prompts
    assert "pass@3,sampled" not in rates


def test_the_parts_that_readers_of_the_layout_look_for(tmp_path: Path) -> None:
    results, _, paths = written(tmp_path)
    names = (
        "group_subtasks",
        "configs",
        "versions",
        "n-shot",
        "higher_is_better",
        "n-samples",
        "config",
        "task_hashes",
    )
    assert set(names) <= results.keys()
    assert results["n-samples"] == {"shop_sql": {"original": 5, "effective": 3}}
    assert results["config"]["limit"] == 3
    assert (results["config"]["random_seed"], results["git_hash"]) == (17, None)
    assert results["configs"]["shop_sql"]["repeats"] == 4
    assert results["higher_is_better"]["shop_sql"] == {
        "pass@1": True,
        "pass@2": True,
        "pass^2": True,
        "pass@4": True,
    } | {"pass^4": True}
    assert results["groupwise"]["pass_rate"] == 0.5
    assert results["groupwise"]["samples_file"] == paths[1].name


def test_a_sample_says_what_was_asked_said_and_judged(tmp_path: Path) -> None:
    _, lines, _ = written(tmp_path)
    first, _, third = lines
    assert [line["doc_id"] for line in lines] == [0, 1, 2]
    assert first["doc"]["gold"] == "SELECT 1"
    assert first["arguments"]["gen_args_0"]["arg_0"] == "question 1"
    assert first["resps"] == [["t"] * 4] == first["filtered_resps"]
    assert (first["target"], third["target"]) == ("SELECT 1", "")
    assert (first["pass@1"], third["pass@1"]) == (0.5, 1.0)
    assert first["task_id"] == "q1"
    assert third["outcomes"] == [True, None, None, True]
    assert third["stops"][1] == "aborted"
    assert (first["greedy_resp"], first["greedy_outcome"]) == ("greedy", True)
    assert third["greedy_outcome"] is None


def test_greedy_alone_stands_where_samples_would(tmp_path: Path) -> None:
    results, lines, _ = written(tmp_path, groups=())
    assert {name for name in results["results"]["shop_sql"] if "greedy" not in name} == {"alias"}
    assert lines[0]["resps"] == [["greedy"]]
    assert (lines[0]["filter"], lines[0]["outcomes"], lines[0]["greedy_outcome"]) == ("greedy", [], True)


def test_text_that_no_encoding_knows_is_kept_readable(tmp_path: Path) -> None:
    _, lines, _ = written(tmp_path, groups=(group(1, True, True, text="bad \ud800 ü"),))
    assert lines[0]["resps"][0][0].startswith("bad ")


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot hold an evaluation"):
        written(tmp_path / "file")
