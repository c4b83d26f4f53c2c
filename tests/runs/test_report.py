from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from recorded_run import HELDOUT, HOSTILE, evaluation, grpo_row, make_run

from groupwise.runs import FileRecorder, RunDirectory, read_run
from groupwise.runs.diagnosis.finding import Finding
from groupwise.runs.report.evaluations import evaluations_of
from groupwise.runs.report.findings import findings_section, worst_sentence
from groupwise.runs.report.outcome import change_by_stage, outcome_facts, verdict
from groupwise.runs.report.page import report_page, run_page, state_of
from groupwise.runs.report.several import several_page


class Reader(HTMLParser):
    """The shown text and the headings of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.headings, self._tag = "", [""], ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._tag = tag
        if tag == "h2":
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag == "h2":
            self.headings[-1] += data
        if self._tag not in ("script", "style"):
            self.text += data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return make_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def html(run: RunDirectory) -> str:
    return report_page([read_run(run.path)])


def test_the_outcome_comes_first_as_a_sentence(run: RunDirectory) -> None:
    page = run_page(read_run(run.path), "groupwise report x")
    # 20 prompts, each 1/4 before and 3/4 after: with two made-up prompts of 1 and -1 the interval is wider than 0
    assert page.lead.startswith("sft and grpo raised the held-out pass rate from 25.0 % to 75.0 %: +50.0 points [")
    assert "on 20 prompts; greedy 50.0 % to 50.0 %, +0.0 points" in page.lead
    assert "not distinguishable" in page.lead
    assert page.lead.endswith("All stages are finished: sft and grpo.")
    assert [fact.value for fact in page.facts[:4]] == ["25.0 %", "75.0 %", "+50.0", 7]


def test_each_stage_has_its_share_of_the_change(run: RunDirectory) -> None:
    told = change_by_stage(evaluations_of(read_run(run.path)))
    assert re.fullmatch(r"By stage: sft \+25\.0 points \[.*\]; grpo \+25\.0 points \[.*\]\.", told)


def test_a_run_that_got_worse_says_so(tmp_path: Path) -> None:
    record = read_run(make_run(tmp_path, last_solved=0).path)
    assert "lowered the held-out pass rate from 25.0 % to 0.0 %: -25.0 points" in verdict(evaluations_of(record))


def test_the_worst_problem_stands_beside_the_outcome(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    found = {"name": "x", "severity": "problem", "title": "It is broken.", "evidence": "e", "change": "c"}
    warning = found | {"severity": "warning", "title": "Maybe."}
    problem, maybe = Finding(**found), Finding(**warning)  # type: ignore[arg-type]
    assert worst_sentence((maybe, problem)) == "Problem: It is broken."
    assert worst_sentence((maybe,)) == ""
    section = findings_section(read_run(run.path), (problem,))
    assert section.notices[0].title == "Problem: It is broken."
    assert section.notices[0].text == ("E", "What to change: c")


def test_no_difference_is_called_not_distinguishable(tmp_path: Path) -> None:
    record = read_run(make_run(tmp_path, last_solved=1).path)
    assert "not distinguishable from no change (+0.0 points [" in verdict(evaluations_of(record))


def test_the_sections_stand_in_the_order_of_a_reader(html: str) -> None:
    assert Reader(html).headings[1:] == [
        "Outcome",
        "Diagnosis",
        "Curves",
        "Groups and prompts",
        "Length by correctness",
        "Reward hacking",
        "Plan against actual",
        "Answers to read",
        "Audit of the verifier",
        "Settings and versions",
    ]


def test_the_page_is_one_file_that_asks_for_nothing(html: str) -> None:
    assert len(html.encode()) < 5_000_000
    assert "default-src 'none'" in html
    assert not re.search(r"<(link|img|iframe)|\ssrc=|url\(|@import", html.split("<script>")[0])


def test_what_models_wrote_stays_text(html: str) -> None:
    assert HOSTILE not in html
    assert HOSTILE in Reader(html).text


def test_the_recipe_and_the_command_are_on_the_page(run: RunDirectory, html: str) -> None:
    text = Reader(html).text
    assert 'normalize = "token"' in text
    assert f"groupwise report {run.path}" in text


@pytest.mark.parametrize(
    "gone",
    [
        ["events.jsonl"],
        ["metrics.jsonl"],
        ["recipe.toml", "stages.json"],
        ["rollouts/*"],
        ["events.jsonl", "metrics.jsonl", "rollouts/*"],
        ["recipe.toml", "events.jsonl", "metrics.jsonl", "stages.json"],
    ],
)
def test_whatever_is_missing_there_is_a_page(tmp_path: Path, gone: list[str]) -> None:
    run = make_run(tmp_path)
    for path in (found for pattern in gone for found in run.path.glob(pattern)):
        path.unlink()
    assert len(Reader(report_page([read_run(run.path)])).headings) == 11


@pytest.mark.parametrize("size", [0, 1, 40, 300])
def test_torn_files_do_not_stop_the_page(tmp_path: Path, size: int) -> None:
    run = make_run(tmp_path)
    for path in (*run.path.glob("*.*"), *run.path.glob("rollouts/*")):
        path.write_bytes(path.read_bytes()[:size])
    assert len(Reader(report_page([read_run(run.path)])).headings) == 11


def test_a_run_under_way_says_how_far_it_is(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    log = json.loads(run.stages.read_text())
    run.stages.write_text(json.dumps(log | {"finished": log["finished"][:2]}))
    assert state_of(read_run(run.path)) == (
        "Not finished: grpo at step 4 of 4 is under way, or the run ended there.",
        False,
    )


def test_values_of_odd_types_do_not_stop_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    recorder = FileRecorder(run)
    for name in ("evaluation", "length", "hacking", "forecast", "spent", "memory", "curated", "no_signal"):
        recorder.event(name, {})
        recorder.event(name, dict.fromkeys(("name", "interval", "solved", "gap", "bytes", "seconds", "pass_at"), None))
    recorder.metrics("grpo", 5, {"pass_rate": float("nan"), "loss": float("inf")})
    run.plan.write_text("{}")
    run.audit.write_text('{"go": false, "findings": [{}]}')
    assert len(Reader(report_page([read_run(run.path)])).headings) == 11


def test_several_runs_are_compared_with_the_first(tmp_path: Path) -> None:
    better, worse = make_run(tmp_path, "better"), make_run(tmp_path, "worse", last_solved=0, normalize="sequence")
    text = Reader(report_page([read_run(better.path), read_run(worse.path)])).text
    assert "On the same held-out prompts, worse is worse than better." in text
    assert "stages[grpo].algorithm.normalize" in text
    assert "Compared with better" in text


def test_a_run_without_evaluations_is_named_among_several(tmp_path: Path) -> None:
    measured, other = make_run(tmp_path, "measured"), make_run(tmp_path, "unmeasured")
    other.events.unlink()
    text = Reader(report_page([read_run(measured.path), read_run(other.path)])).text
    assert "unmeasured cannot be compared" in text


def test_a_long_run_makes_a_small_page(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    row = grpo_row(1, ()) | {f"more_{i}": 0.5 for i in range(5)}
    lines = [
        json.dumps(row | {"stage": "grpo", "step": step, "time": step, "pass_rate": step % 7})
        for step in range(5, 5001)
    ]
    with run.metrics.open("a") as file:
        file.write("\n".join(lines) + "\n")
    page = report_page([read_run(run.path)])
    assert len(page.encode()) < 3_000_000
    assert "mean of up to 21 neighbouring steps" in page


def test_nothing_of_torch_is_imported() -> None:
    code = "import sys, groupwise.runs.report.page, groupwise.cli.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_evaluation_with_unscored_samples_divides_by_the_scored_ones(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    event = {"name": "later", "pass_rate": 0.5, "solved": {HELDOUT[0]: 1}, "scored": {HELDOUT[0]: 2}}
    FileRecorder(run).event("evaluation", event)
    assert evaluations_of(read_run(run.path))[-1].rates == {HELDOUT[0]: 0.5}


def test_a_run_that_measured_its_base_alone_has_no_after(tmp_path: Path) -> None:
    record = read_run(make_run(tmp_path).path)
    base = [m for m in evaluations_of(record) if m.name == "base"]
    assert [fact.label for fact in outcome_facts(base)] == ["held-out, before"]


def with_reward_model(folder: Path) -> RunDirectory:
    """A run of one stage, which trains a reward model."""
    run = RunDirectory.create(folder, "judged")
    recipe = '[[stages]]\nname = "judge"\nsteps = 2\n[stages.algorithm]\nname = "reward_model"\n'
    run.recipe.write_text(recipe)
    recorder = FileRecorder(run)
    facts = {"num_heldout_pairs": 60, "accuracy": 0.783, "accuracy_low": 0.66, "accuracy_high": 0.87, "margin": 1.2}
    recorder.event("reward_model", {"stage": "judge", "calibration_error": 0.09} | facts)
    return run


def test_a_reward_model_has_its_own_outcome(tmp_path: Path) -> None:
    run = with_reward_model(tmp_path)
    FileRecorder(run).event("evaluation", evaluation("base", 0, 1))
    page = run_page(read_run(run.path), "x")
    assert "The held-out pass rate before any training is 25.0 % [" in page.lead
    assert "nothing was measured after" not in page.lead
    assert (
        "judge trained a reward model: of 60 held-out pairs it prefers the chosen answer in 78.3 % [66, 87]"
        in page.lead
    )
    assert page.sections[0].tables[-1].rows == (("judge", "78.3 % [66, 87]", 60, 1.2, 0.09),)


def test_the_rate_of_the_weights_before_is_none_of_a_reward_model(tmp_path: Path) -> None:
    run = with_reward_model(tmp_path)
    stage = {"pass_rate": 0.5, "interval": [0.4, 0.6], "greedy_pass_rate": None, "greedy_interval": None}
    stage |= {"num_prompts": 9, "mean_length_right": 1, "mean_length_wrong": 1, "truncated_frac": 0, "seconds": 1}
    stages = [stage | {"name": name} for name in ("base", "judge")]
    run.summary.write_text(json.dumps({"stages": stages, "peak_memory_bytes": None, "seeds": {}, "versions": {}}))
    assert [m.name for m in evaluations_of(read_run(run.path))] == ["base"]


def test_what_makes_runs_less_comparable_stands_beside_the_headline(tmp_path: Path) -> None:
    one, other = make_run(tmp_path, "one", last_solved=1), make_run(tmp_path, "other")
    for run, limit in ((one, 14), (other, 8)):
        run.recipe.write_text(f"{run.recipe.read_text()}\n[rollout]\nmax_completion_tokens = {limit}\n")
    page = several_page([read_run(one.path), read_run(other.path)], "x")
    assert "other is better than one" in page.lead
    assert page.lead.endswith(
        "Read the warnings below first (other; not measured as one was: different token limits of an answer)."
    )
    outcome = page.sections[0]
    assert outcome.notices[0].text == ("other: Different token limits of an answer: 14 for one, 8 for other.",)
    table = outcome.tables[0]
    assert [row[table.columns.index("prompts")] for row in table.rows] == [20, 20]


def test_a_run_that_measured_its_base_alone_is_not_shown_as_trained(tmp_path: Path) -> None:
    trained, judged = make_run(tmp_path, "trained"), with_reward_model(tmp_path)
    FileRecorder(judged).event("evaluation", evaluation("base", 0, 1))
    page = several_page([read_run(trained.path), read_run(judged.path)], "x")
    assert "judged was measured before training only." in page.lead
    assert page.sections[0].tables[0].rows[1][2:5] == ("25.0 %", "-", "-")
    assert page.sections[0].text[0].startswith("judged: judge trained a reward model")
