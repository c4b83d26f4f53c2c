"""From the steps of a run to one answer, and how wrong names are answered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import DataError
from groupwise.runs import FileRecorder, RunDirectory, RunRecord, read_run
from groupwise.runs.rollout_view import (
    groups_named,
    groups_of,
    history_of,
    left_out_counts,
    left_out_sentence,
    overview,
    printable,
    resolve_step,
)
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict


def answer(solved: bool | None, tokens: int = 3, stop: Stop = Stop.END) -> Rollout:
    status = Status.UNSCORED if solved is None else Status.SCORED
    reward = None if solved is None else float(solved)
    return Rollout(
        completion=Completion(text="x", token_ids=(1,) * tokens, sampler_logprobs=(-0.1,) * tokens, stop=stop),
        verdict=Verdict(status=status, reward=reward, outcome=solved, reason="because"),
    )


def group(task_id: str, *answers: Rollout) -> Group:
    return Group(task=Task(id=task_id, prompt="?"), prompt=Prompt(task_id=task_id, token_ids=(1,)), rollouts=answers)


LIVE = group("q1", answer(True, 2), answer(False, 7, Stop.LENGTH), answer(None))
WRONG = group("q2", answer(False), answer(False))


def recorded(folder: Path, *files: tuple[str, int, Sequence[Group]]) -> RunRecord:
    run = RunDirectory.create(folder, "r")
    for stage, step, groups in files:
        zeros = [[0.0] * len(g.rollouts) for g in groups]
        reasons = [["" if r.verdict.reward is not None else "unscored" for r in g.rollouts] for g in groups]
        FileRecorder(run).rollouts(stage, step, groups, zeros, left_out=reasons)
    return read_run(run.path)


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return recorded(
        tmp_path,
        ("grpo", 1, [LIVE, WRONG]),
        ("grpo", 2, [WRONG]),
        ("grpo-no-signal", 2, [WRONG]),
        ("evaluation-sft", 2, [group("h1", answer(True))]),
    )


def test_a_group_by_hand(record: RunRecord) -> None:
    live, wrong = groups_of(record, "grpo", 1)
    assert (live.num_solved, live.num_scored, live.reward_mean, live.state) == (1, 2, 0.5, "live")
    assert (live.lengths, live.num_cut) == ((2, 4.0, 7), 1)  # 2, 7 and 3 tokens
    assert (wrong.num_solved, wrong.state) == (0, "dead: all wrong")
    assert left_out_counts([live, wrong]) == {"unscored": 1}
    assert "verifier failed" in left_out_sentence(live.rollouts[2])
    assert left_out_sentence(live.rollouts[0]) == ""
    assert live.answers_json()["prompt"] == "?"
    assert [one["left_out"] for one in live.answers_json()["rollouts"]] == ["", "", "unscored"]


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        ([answer(True), answer(True)], "dead: all right"),
        ([answer(None), answer(None)], "dead: not scored"),
        ([answer(True), answer(None)], "dead: all right"),
        ([answer(True)], "right"),
        ([answer(False)], "wrong"),
        ([answer(None)], "not scored"),
    ],
)
def test_the_states_of_a_group(tmp_path: Path, answers: list[Rollout], state: str) -> None:
    record = recorded(tmp_path, ("grpo", 1, [group("q", *answers)]))
    assert groups_of(record, "grpo", 1)[0].state == state
    assert groups_of(record, "grpo", 1)[0].reward_mean in (1.0, 0.0, None)


def test_one_prompt_twice_in_a_step_is_two_groups(tmp_path: Path) -> None:
    record = recorded(tmp_path, ("grpo", 1, [LIVE, LIVE]))
    assert [len(found.rollouts) for found in groups_named(groups_of(record, "grpo", 1), "q1")] == [3, 3]


def test_the_overview_counts(record: RunRecord) -> None:
    lines = {(one.stage, one.step): one for one in overview(record)}
    first = lines["grpo", 1]
    assert (first.num_groups, first.num_live, first.num_rollouts, first.num_scored, first.num_solved) == (2, 1, 5, 4, 1)
    assert [one.step for one in overview(record, "grpo")] == [1, 2]


def test_a_damaged_file_is_a_line_that_says_so(record: RunRecord) -> None:
    path = record.directory.rollouts_of("grpo", 2)
    path.write_bytes(path.read_bytes()[:-9])
    good, bad = overview(record, "grpo")
    assert (good.num_groups, bad.num_groups) == (2, None)
    assert "cannot be read" in bad.problem
    with pytest.raises(DataError, match="cannot be read"):
        groups_of(record, "grpo", 2)
    assert [found.step for found in history_of(record, "q2", "grpo")] == [1]


def test_a_parquet_file_of_somebody_else_is_refused(record: RunRecord) -> None:
    pq.write_table(pa.table({"stage": ["grpo"], "step": [1]}), record.directory.rollouts_of("grpo", 3))
    with pytest.raises(DataError, match=r"KeyError.*not written by groupwise"):
        groups_of(record, "grpo", 3)


def test_what_may_be_left_out_of_a_question(record: RunRecord) -> None:
    assert resolve_step(record, None, 1) == ("grpo", 1)
    assert resolve_step(record, "evaluation-sft", None) == ("evaluation-sft", 2)
    assert resolve_step(record, None, 2) == ("grpo", 2)  # trained on, unlike the others of that number
    assert resolve_step(record, "grpo-no-signal", 2) == ("grpo-no-signal", 2)
    assert [found.step for found in history_of(record, "q2", "grpo")] == [1, 2]


def test_what_is_not_there_is_answered_with_what_is(tmp_path: Path, record: RunRecord) -> None:
    with pytest.raises(DataError, match=r"stage 'grop' .*; there are grpo, "):
        overview(record, "grop")
    with pytest.raises(DataError, match=r"step 7 of stage 'grpo' .* steps 1-2$"):
        resolve_step(record, "grpo", 7)
    with pytest.raises(DataError, match=r"step 7 of any stage"):
        resolve_step(record, None, 7)
    with pytest.raises(DataError, match=r"several steps on record: 1-2; add --step"):
        resolve_step(record, "grpo", None)
    with pytest.raises(DataError, match=r"no prompt 'q9' is in this step; there are q[12], q[12]$"):
        groups_named(groups_of(record, "grpo", 1), "q9")
    with pytest.raises(DataError, match=r"no rollouts of prompt 'q9' .*; there are "):
        history_of(record, "q9")
    two = recorded(tmp_path, ("a", 1, [LIVE]), ("b", 1, [LIVE]))
    with pytest.raises(DataError, match=r"several stages; add --stage: a, b"):
        resolve_step(two, None, 1)
    with pytest.raises(DataError, match="no rollouts on record yet"):
        overview(recorded(tmp_path))


def test_text_is_data() -> None:
    assert printable("a\tb\nc") == "a    b\nc"
    assert printable("\x1b[31mred\x1b[0m\r\x00") == r"\x1b[31mred\x1b[0m\r\x00"
    assert printable("\u202etxt.exe") == r"\u202etxt.exe"
    assert printable("\udcff") == r"\udcff"
    assert printable("[bold]naïve 日本 e\u0301 😀👩\u200d💻") == "[bold]naïve 日本 e\u0301 😀👩\u200d💻"


@given(st.text(alphabet=st.characters()))
def test_what_is_printed_commands_nothing(text: str) -> None:
    shown = printable(text)
    assert all(char == "\n" or ord(char) >= 0x20 for char in shown)
    assert not set(shown) & {chr(code) for code in range(0x7F, 0xA0)}
    shown.encode("utf-8")


@pytest.fixture
def long_run(tmp_path: Path) -> RunRecord:
    """Twelve stages and as many evaluations, whose names sort in another order than they happened."""
    names = [f"{letter}-stage" for letter in "lkjihgfedcba"]
    files = [(name, 1, [LIVE]) for name in names]
    files += [(f"evaluation-{name}", version, [WRONG]) for version, name in enumerate(names, start=1)]
    files += [("evaluation-zero", 0, [WRONG]), ("l-stage-best-of-n", 1, [LIVE])]
    made = recorded(tmp_path, *files)
    made.directory.recipe.write_text("".join(f'[[stages]]\nname = "{name}"\n' for name in names))
    return read_run(made.directory.path)


def test_stages_stand_in_the_order_of_the_recipe_and_evaluations_in_that_of_time(long_run: RunRecord) -> None:
    names = [one.stage for one in overview(long_run)]
    assert names[:3] == ["l-stage", "l-stage-best-of-n", "k-stage"]
    assert names[12:15] == ["a-stage", "evaluation-zero", "evaluation-l-stage"]
    assert names[-1] == "evaluation-a-stage"


def test_evaluations_of_one_version_stand_as_the_events_have_them(tmp_path: Path) -> None:
    made = recorded(tmp_path, *[(f"evaluation-{n}", 0, [WRONG]) for n in ("judge", "base", "base-greedy")])
    for name in ("base", "judge"):
        FileRecorder(made.directory).event("evaluation", {"name": name})
    names = [one.stage.removeprefix("evaluation-") for one in overview(read_run(made.directory.path))]
    assert names == ["base", "base-greedy", "judge"]


def test_a_wrong_stage_is_answered_with_every_training_stage_before_evaluations(long_run: RunRecord) -> None:
    with pytest.raises(DataError) as refused:
        overview(long_run, "evaluation-l-stag")
    trained, held_out = str(refused.value).split("; and of evaluations ")
    assert trained.split("there are ")[1].split(", ") == [
        "l-stage",
        "l-stage-best-of-n",
        *(f"{letter}-stage" for letter in "kjihgfedcba"),
    ]
    assert held_out.startswith("evaluation-l-stage, ")
    assert held_out.endswith("and 5 more")
    with pytest.raises(DataError, match="there are l-stage, l-stage-best-of-n, k-stage, "):
        resolve_step(long_run, "wrong", 1)
