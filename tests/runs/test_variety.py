"""pass@k of two evaluations: by hand, and when it has something to say beside the pass rate."""

from __future__ import annotations

from pathlib import Path

from recorded_run import make_run

from groupwise.runs import FileRecorder, Interval, read_run
from groupwise.runs.comparison.compare import compare_evaluations, compare_many
from groupwise.runs.comparison.paired import PairedDifference, paired_difference
from groupwise.runs.comparison.variety import Counts, pass_at_differences, variety_sentence
from groupwise.runs.evaluation_record import Attempts, EvaluationRecord
from groupwise.runs.report.page import run_page

SPREAD: Counts = {f"q{i:03d}": (1, 4) for i in range(100)}
"""Every prompt once in four: pass@1 25 %, pass@4 100 %."""
NARROW: Counts = {f"q{i:03d}": (4 if i % 4 == 0 else 0, 4) for i in range(100)}
"""Every fourth prompt always: pass@1 25 %, pass@4 25 %."""


def rate(first: Counts, second: Counts) -> PairedDifference:
    shares = [{task: solved / scored for task, (solved, scored) in side.items()} for side in (first, second)]
    return paired_difference(*shares)


def told(first: Counts, second: Counts, who: str = "") -> str:
    return variety_sentence(rate(first, second), pass_at_differences(first, second), who=who)


def record(label: str, counts: Counts) -> EvaluationRecord:
    sampled = {task: Attempts(solved=solved, scored=scored) for task, (solved, scored) in counts.items()}
    return EvaluationRecord(label=label, sampled=sampled, greedy={}, settings={})


def test_pass_at_k_by_hand() -> None:
    at_two, at_four = pass_at_differences(SPREAD, NARROW)
    # one right of four: two draws hold it in 3 of 6 cases, four in all
    assert (at_two.k, at_two.first, at_two.second) == (2, 0.5, 0.25)
    assert (at_four.k, at_four.first, at_four.second) == (4, 1.0, 0.25)
    assert at_four.difference.difference == -0.75


def test_a_loss_of_variety_is_said_where_the_pass_rate_stays() -> None:
    sentence = told(SPREAD, NARROW)
    assert sentence.startswith(
        "fewer prompts are solved at all: pass@4 (solved at least once in 4 samples) fell from 100.0 to 25.0 %, "
        "-75.0 points ["
    )
    assert sentence.endswith("at 95 %; answers to a prompt vary less")
    assert told(NARROW, SPREAD, "B").startswith("B solves more prompts at all: pass@4")
    assert told(NARROW, SPREAD).endswith("vary more")


def test_what_moves_alike_has_nothing_to_add() -> None:
    better = dict.fromkeys(SPREAD, (4, 4))
    assert told(NARROW, better) == ""
    assert told(SPREAD, SPREAD) == ""


def test_answers_need_not_vary_less_where_the_rate_fell_too() -> None:
    pass_at = pass_at_differences(SPREAD, NARROW)
    fell = PairedDifference(difference=-0.02, interval=Interval(-0.05, 0.01), num_prompts=100)
    assert "fewer prompts" in variety_sentence(fell, pass_at)
    assert "vary" not in variety_sentence(fell, pass_at)


def test_the_largest_k_is_one_that_most_prompts_have() -> None:
    first = dict(SPREAD) | {"q000": (1, 8)}
    second = dict(NARROW) | {"q000": (0, 8)}
    assert [row.k for row in pass_at_differences(first, second)] == [2, 4, 8]
    assert "pass@4" in told(first, second)


def test_several_comparisons_need_a_wider_interval() -> None:
    first: Counts = {f"q{i}": (1, 2) for i in range(60)}
    second: Counts = dict(first) | {f"q{i}": (0, 2) for i in range(6)}
    assert pass_at_differences(first, second)[0].is_distinguishable
    assert not pass_at_differences(first, second, num_comparisons=20)[0].is_distinguishable


def test_a_comparison_says_it_below_its_verdict() -> None:
    first, second = record("A", SPREAD), record("B", NARROW)
    assert compare_evaluations(first, second).variety.startswith("B solves fewer prompts at all: pass@4")
    assert compare_many([first, second, first])[0].variety
    assert compare_evaluations(first, first).variety == ""


def test_a_run_that_lost_variety_says_so_at_the_top(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    tasks = [f"v{i:02d}" for i in range(40)]
    for name, solved in (("base", [1] * 40), ("sft", [1] * 40), ("grpo", [4] * 10 + [0] * 30)):
        counts = dict(zip(tasks, solved, strict=True))
        event = {"name": name, "pass_rate": 0.25, "samples_per_prompt": 4, "solved": counts}
        FileRecorder(run).event("evaluation", event | {"scored": dict.fromkeys(tasks, 4)})
    lead = run_page(read_run(run.path), "x").lead
    assert (
        "Fewer prompts are solved at all: pass@4 (solved at least once in 4 samples) fell from 100.0 to 25.0 %" in lead
    )
