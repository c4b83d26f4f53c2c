from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_run import GROUPS, make_run

from groupwise.runs import FileRecorder, Interval, PairedDifference, RunRecord, read_run
from groupwise.runs.report.curves import CURVES, metric_chart, phases_chart
from groupwise.runs.report.groups import groups_section, training_choices
from groupwise.runs.report.hacking import hacking_section
from groupwise.runs.report.lengths import lengths_section
from groupwise.runs.report.plan import plan_section
from groupwise.runs.report.prompts import Fate, pasts_of, prompts_section
from groupwise.runs.report.rollouts import digest_of
from groupwise.runs.report.settings import differing_settings
from groupwise.runs.report.steps import Steps, curve, markers_from, spread_evenly, steps_of
from groupwise.runs.report.words import cut, interval_of, points, seconds, share, size, with_interval


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return read_run(make_run(tmp_path_factory.mktemp("runs")).path)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(1, 50))
def test_a_thinned_curve_keeps_the_extremes_and_holds_its_means(values: list[float], most: int) -> None:
    rows = curve(enumerate(values, start=1), most)
    assert len(rows) <= most
    assert rows[-1]["x"] == len(values)
    if rows[0]["low"] is None:
        assert [row["y"] for row in rows] == values
    else:
        assert min(row["low"] for row in rows) == min(values)
        assert max(row["high"] for row in rows) == max(values)
        assert all(row["low"] <= row["y"] <= row["high"] for row in rows)


def test_what_is_no_number_has_no_place_on_a_curve() -> None:
    assert [row["x"] for row in curve([(1, None), (2, 1.0), (3, float("nan")), (4, True), (5, "x")])] == [2]


def test_steps_of_all_stages_are_on_one_axis(record: RunRecord) -> None:
    steps = steps_of(record)
    assert [(s.at, s.stage, s.step) for s in steps.rows[2:5]] == [(3, "sft", 3), (4, "grpo", 1), (5, "grpo", 2)]
    assert steps.markers == ((1, "sft"), (4, "grpo"))
    assert steps.at("grpo", 2) == 5
    assert markers_from(steps, 4) == ()  # a curve that begins with grpo needs no marker


def test_spread_evenly_keeps_both_ends() -> None:
    assert spread_evenly(list(range(100)), 4) == [0, 33, 66, 99]
    assert spread_evenly([1, 2], 4) == [1, 2]


def test_a_curve_has_the_meaning_of_its_metric(record: RunRecord) -> None:
    described = next(c for c in CURVES if "pass_rate" in c.metrics)
    drawn = metric_chart(described, [("", steps_of(record))])
    assert drawn is not None
    assert "solved or not" in drawn.caption
    assert [row["x"] for row in drawn.rows] == [4, 5, 6, 7]


def test_every_number_is_drawn_in_one_place() -> None:
    names = [name for described in CURVES for name in described.metrics]
    assert len(names) == len(set(names))


def test_phases_sum_to_the_step(record: RunRecord) -> None:
    drawn = phases_chart(steps_of(record))
    tops: dict[float, float] = {}
    for row in drawn.rows:
        tops[row["low"]] = max(tops.get(row["low"], 0.0), row["top"])
    # sft: 1.0 timed of 1.5; grpo: 2 + 1 timed of 3.5; what is not timed is other
    assert list(tops.values()) == pytest.approx([1.5, 1.5, 1.5, 3.5, 3.5, 3.5, 3.5])


def test_several_runs_keep_their_colours_where_one_is_missing(record: RunRecord) -> None:
    described = next(c for c in CURVES if "pass_rate" in c.metrics)
    empty = Steps(rows=(), markers=())
    drawn = metric_chart(described, [("a", empty), ("b", steps_of(record))])
    assert drawn is not None
    assert drawn.series_order == ("a", "b")
    assert {row["series"] for row in drawn.rows if "series" in row} <= {"b"}


def test_prompts_are_told_apart_by_what_became_of_them(record: RunRecord) -> None:
    fates = {past.task_id: past.fate for past in pasts_of(digest_of(record))}
    assert fates == {
        "lost": Fate.FORGOTTEN,
        "won": Fate.LEARNED,
        "easy": Fate.ALWAYS,
        "hard": Fate.NEVER,
        "mixed": Fate.SOMETIMES,
    }


def test_the_ledger_counts_groups_by_what_they_show(record: RunRecord) -> None:
    section = prompts_section(record, digest_of(record))
    # live: lost 1, won 2, mixed 4 = 3 of 12; all solved: easy twice, won 4; none: won 1, hard 2 3 4, lost 3; open
    expected = "Of 12 groups: 25.0 % right and wrong answers, 25.0 % all solved, 41.7 % none solved, 8.3 % not judged."
    assert section.text[0].startswith(expected)
    captions = [table.caption for table in section.tables]
    assert captions == ["1 prompt solved, then lost.", "1 prompt never solved in more than one visit."]
    assert section.tables[1].rows == (("hard", 3, "0/4, 0/4, 0/4", "grpo 4"),)


def test_lengths_leave_out_what_was_cut(record: RunRecord) -> None:
    lengths = digest_of(record).lengths
    assert len(lengths.cut) == 1
    outcomes = [r.verdict.outcome for groups in GROUPS.values() for g in groups for r in g.rollouts]
    assert (len(lengths.right), len(lengths.wrong)) == (outcomes.count(True), outcomes.count(False) - 1)


def test_right_and_wrong_lengths_are_compared_on_the_same_prompts(record: RunRecord) -> None:
    section = lengths_section(record, steps_of(record), digest_of(record), [])
    assert section.charts
    gradient = section.tables[-1]
    assert [row[1:3] for row in gradient.rows] == [("sequence", ""), ("token", "used here"), ("constant", "")]


def test_groups_to_read_are_contested_best_worst_and_changed(record: RunRecord) -> None:
    choices = training_choices(digest_of(record))
    whys = {choice.why: choice.group.task_id for choice in choices}
    # 2 of 4 right in both; "won" was sampled first
    assert [c.group.task_id for c in choices if c.why == "most contested"] == ["won", "mixed"]
    assert whys["improved most, first visit"] == "won"
    assert whys["lost most, last visit"] == "lost"


def test_answers_stand_side_by_side_with_verdict_and_advantage(record: RunRecord) -> None:
    boards = groups_section(record, digest_of(record)).boards
    assert boards[0].is_open
    contested = boards[0]
    assert [card.title for card in contested.cards] == ["right", "right", "wrong", "wrong"]
    assert contested.cards[0].facts[0] == "advantage +1"
    assert contested.cards[2].notes[-1] == "Failed: rows: expected 3 rows, found 4 rows"
    assert contested.text.startswith("prompt of won")


def test_hacking_events_become_alarm_gap_and_examples(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    quiet = {"name": "base", "paid": 0.2, "held_back": 0.2, "gap": 0.0, "interval": [-0.1, 0.1], "alarm": ""}
    examples = [{"task_id": "q1", "text": "SELECT 2", "paid_reason": "same_rows", "held_back_reason": "wrong_rows"}]
    loud = quiet | {"name": "grpo", "paid": 0.9, "gap": 0.7, "interval": [0.5, 0.8], "alarm": "The gap grew."}
    FileRecorder(run).event("hacking", quiet)
    assert hacking_section(read_run(run.path)).notices[0].tone == "good"
    FileRecorder(run).event("hacking", loud | {"examples": examples, "attack_hits": {"limit_trick": 4}})
    section = hacking_section(read_run(run.path))
    assert [notice.text for notice in section.notices] == [("The gap grew.",)]
    assert [row["x"] for row in section.charts[1].rows] == [0.0, 0.7]
    assert section.tables[1].rows == (("limit_trick", 0, 4),)
    assert section.boards[0].cards[0].notes == ("Paid: same_rows", "Held back: wrong_rows")


def test_the_plan_stands_beside_what_came(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.plan.write_text(
        '{"seconds": 20, "peak_bytes": 2000000000, "price": null, "rates_source": "measured", "hardware": null, '
        '"stages": [{"name": "grpo", "steps": 4, "seconds": 10.0, "step_seconds": 2.5, "peak_bytes": null, '
        '"live_share": 0.5}]}'
    )
    section = plan_section(read_run(run.path))
    assert section.text[0] == "Planned: 20 s, 2.0 GB at the peak; pass rates: measured."
    rows = {row[0]: row for row in section.tables[0].rows}
    assert rows["grpo"] == ("grpo", "4 (plan 4)", "14 s (plan 10 s)", "3.5 s (plan 2.5 s)", "-", "25.0 % (plan 50.0 %)")
    assert rows["sft"][1:3] == ("3", "4.5 s")


def test_only_settings_that_differ_are_listed() -> None:
    one = {"seed": 1, "stages": [{"name": "grpo", "optim": {"lr": 1e-5}}], "model": {"name": "m"}}
    two = {"seed": 1, "stages": [{"name": "grpo", "optim": {"lr": 1e-4}}], "model": {"name": "m"}}
    table = differing_settings([("a", one), ("b", two)])
    assert table is not None
    assert table.rows == (("stages[grpo].optim.lr", "1e-05", "0.0001"),)
    assert differing_settings([("a", one), ("b", one)]) is None


def test_numbers_become_words() -> None:
    assert (share(0.347), share(None)) == ("34.7 %", "-")
    assert (seconds(1.25), seconds(75.2), seconds(400), seconds(7500)) == ("1.2 s", "75 s", "6.7 min", "2.1 h")
    assert (size(3.5e9), size(140704)) == ("3.5 GB", "0.1 MB")
    assert cut("abcdef", 3) == "abc\n... (the first 3 of 6 characters)"


def test_no_interval_ends_at_minus_zero() -> None:
    around = PairedDifference(difference=-0.0001, interval=Interval(-0.0004, 0.031), num_prompts=9)
    assert points(around) == "+0.0 points [0.0, 3.1]"
    below = PairedDifference(difference=-0.02, interval=Interval(-0.041, -0.0001), num_prompts=9)
    assert points(below) == "-2.0 points [-4.1, 0.0]"
    assert with_interval(0.0, Interval(-0.0, 0.04)) == "0.0 % [0, 4]"
    assert interval_of([0.1, 0.2]) == Interval(0.1, 0.2)
    assert interval_of([0.1, None]) is interval_of(None) is None


def test_memory_far_from_its_plan_is_told_in_words(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.environment.write_text('{"device": "cpu"}')
    run.plan.write_text('{"peak_bytes": 600000000, "stages": [{"name": "grpo", "peak_bytes": 600000000}]}')
    recorder = FileRecorder(run)
    recorder.metrics("grpo", 5, {"memory_bytes": 650_000_000})
    assert len(plan_section(read_run(run.path)).text) == 1
    recorder.metrics("grpo", 6, {"memory_bytes": 1_080_000_000})
    assert plan_section(read_run(run.path)).text[1:] == (
        "Memory is not as planned: grpo took 1.1 GB, 1.8 times the 0.6 GB planned.",
    )
    recorder.event("memory", {"stage": "grpo", "bytes": {"policy": {"parameters": 3_000_000, "optimizer": 6_000_000}}})
    told = plan_section(read_run(run.path)).text[2]
    assert told.startswith("The networks with gradients and optimizer hold 9.0 MB of it.")
    assert told.endswith("and a plan knows it only as it is before the first stage.")
    recorder.event("memory", {"stage": "grpo", "bytes": {"policy": {"parameters": 900_000_000}}})
    assert len(plan_section(read_run(run.path)).text) == 2


def test_one_answer_a_prompt_makes_no_groups(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    single = [row | ({"num_rollouts": row["num_groups"]} if "num_groups" in row else {}) for row in lines]
    run.metrics.write_text("".join(f"{json.dumps(row)}\n" for row in single))
    record = read_run(run.path)
    rows = {row[0]: row for row in plan_section(record).tables[0].rows}
    assert rows["grpo"][-1] == "-"
    section = prompts_section(record, digest_of(record))
    assert section.text[0].startswith("grpo samples one answer a prompt")
    assert "Groups of a step" not in " ".join(chart.title for chart in section.charts)


def test_a_right_answer_stands_once_beside_the_answers(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for path in run.path.glob("rollouts/*.parquet"):
        table = pq.read_table(path)
        golds = [f"gold of {task}" if task == "won" else None for task in table["task_id"].to_pylist()]
        at = table.schema.get_field_index("gold")
        pq.write_table(table.set_column(at, "gold", pa.array(golds, pa.string())), path)
    record = read_run(run.path)
    boards = groups_section(record, digest_of(record)).boards
    won = next(board for board in boards if "won" in board.title)
    assert won.text.endswith("\n\nRight answer: gold of won")
    assert [board.text for board in boards if "Right answer" in board.text and " won," not in board.title] == []
