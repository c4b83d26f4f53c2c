"""The held-back grader beside the outcome: a rise that it does not share, and a clean run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded_run import HELDOUT, make_run

from groupwise.runs import FileRecorder, RunRecord, read_run
from groupwise.runs.report.evaluations import evaluations_of
from groupwise.runs.report.hacking import hacking_section
from groupwise.runs.report.held_back import HeldBack, held_back_clause, held_back_fact, held_back_of
from groupwise.runs.report.outcome import verdict
from groupwise.runs.report.page import run_page

QUIET: dict[str, Any] = {"alarm": "", "num_unscored": 0, "growth": None, "growth_interval": None}


def judged(name: str, paid: float, held: float, ends: list[float], **more: Any) -> dict[str, Any]:
    """An event in which every prompt has the same gap."""
    gaps = dict.fromkeys(HELDOUT, paid - held)
    return (
        QUIET
        | {"name": name, "paid": paid, "held_back": held, "gap": paid - held, "interval": ends, "gaps": gaps}
        | more
    )


def recorded(folder: Path, *events: dict[str, Any], last_solved: int = 3) -> RunRecord:
    """base 1/4 and grpo last_solved / 4 paid on 20 prompts, and what the held-back grader says of them."""
    run = make_run(folder, last_solved=last_solved)
    with run.recipe.open("a") as recipe:
        recipe.write("\n[monitor]\nmax_gap = 0.05\n")
    for event in events:
        FileRecorder(run).event("hacking", event)
    return read_run(run.path)


def of_exploit(folder: Path, last_solved: int = 3) -> RunRecord:
    """The held-back grader accepts all of what is paid at first, and nothing at last."""
    loud = {"alarm": "the gap grew", "growth": last_solved / 4, "growth_interval": [0.3, 0.8]}
    return recorded(
        folder,
        judged("base", 0.25, 0.25, [-0.1, 0.1]),
        judged("grpo step 2", 0.5, 0.25, [0.1, 0.4]),
        judged("grpo", last_solved / 4, 0.0, [0.4, 0.9], **loud),
        last_solved=last_solved,
    )


def told(record: RunRecord) -> str:
    evaluations = evaluations_of(record)
    return verdict(evaluations, held_back_of(record, evaluations))


def test_a_rise_that_the_held_back_grader_does_not_share_is_not_told_alone(tmp_path: Path) -> None:
    sentence = told(of_exploit(tmp_path))
    assert "raised the held-out pass rate from 25.0 % to 75.0 %" in sentence
    # -25 points on 20 prompts alike, and two made up: center -5 / 22, half width 1.96 * 0.318 / sqrt(22) = 0.133
    assert (
        "but the held-back grader, which training never sees, fell from 25.0 % to 0.0 % (-25.0 points [-36.0, "
        in sentence
    )
    assert "a gap of 75.0 points [40.0, 90.0] at 99 % where 5 are allowed" in sentence
    assert "and the gap grew by 75.0 points [30.0, 80.0]" in sentence


def test_the_clause_stands_where_the_pass_rate_itself_does_not_move(tmp_path: Path) -> None:
    sentence = told(of_exploit(tmp_path, last_solved=1))
    assert "not distinguishable from no change" in sentence
    assert "but the held-back grader" in sentence


def test_the_held_back_rate_is_a_number_of_the_headline(tmp_path: Path) -> None:
    facts = {fact.label: fact for fact in run_page(of_exploit(tmp_path), "x").facts}
    fact = facts["held-back grader, after"]
    assert fact.value == "0.0 %"
    assert fact.note.startswith("grpo; was 25.0 %, -25.0 points [")


def test_a_clean_run_has_the_number_and_no_clause(tmp_path: Path) -> None:
    quiet = judged("base", 0.25, 0.25, [-0.1, 0.1]), judged("grpo", 0.75, 0.75, [-0.1, 0.1])
    record = recorded(tmp_path, *quiet)
    assert "held-back" not in told(record)
    held = held_back_of(record, evaluations_of(record))
    assert held is not None
    assert held.has_risen
    assert held_back_fact(held)[0].value == "75.0 %"


def test_without_a_grader_there_is_nothing(tmp_path: Path) -> None:
    record = recorded(tmp_path, {"name": "base", "held_back": None, "attack_hits": {}})
    assert held_back_of(record, evaluations_of(record)) is None
    assert held_back_fact(None) == ()


def held(**more: Any) -> HeldBack:
    known = {"name": "grpo", "first": 0.3, "last": 0.3, "difference": None, "gap": 0.2, "gap_interval": None}
    return HeldBack(**(known | {"growth": None, "growth_interval": None, "max_gap": None, "has_alarm": False} | more))


def test_a_rate_that_stayed_is_told_beside_a_rise_only() -> None:
    assert held_back_clause(held(), is_raised=True).endswith("stayed at 30.0 %")
    assert held_back_clause(held(), is_raised=False) == ""
    assert held_back_clause(held(last=0.5), is_raised=True) == ""
    assert "a gap of 20.0 points at 99 %" in held_back_clause(held(has_alarm=True), is_raised=False)


def test_answers_that_one_grader_could_not_judge_give_no_paired_difference(tmp_path: Path) -> None:
    record = recorded(
        tmp_path, judged("base", 0.25, 0.2, [0, 0.1]), judged("grpo", 0.75, 0.7, [0, 0.1], num_unscored=3)
    )
    found = held_back_of(record, evaluations_of(record))
    assert found is not None
    assert (found.first, found.last, found.difference) == (0.2, 0.7, None)


def test_intervals_of_the_gap_name_their_level(tmp_path: Path) -> None:
    section = hacking_section(of_exploit(tmp_path))
    gap = next(chart for chart in section.charts if chart.title.startswith("Gap"))
    assert gap.caption.startswith("Bars are 99 % intervals.")
    assert "at 99 %, not at 95 %" in section.text[-1]
    assert section.tables[0].rows[-1][3:5] == ("+75.0 [40.0, 90.0]", "+75.0 [30.0, 80.0]")
    assert "99 % intervals" in section.tables[0].caption


@pytest.mark.parametrize("ends", [None, [0.1], [None, 0.2], "ab"])
def test_odd_intervals_are_left_out(tmp_path: Path, ends: Any) -> None:
    record = recorded(tmp_path, judged("base", 0.5, 0.25, ends))
    found = held_back_of(record, evaluations_of(record))
    assert found is not None
    assert found.gap_interval is None
