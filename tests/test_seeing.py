"""docs/seeing.md and the README name the files, columns, findings and bounds that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groupwise.runs import RunDirectory
from groupwise.runs.diagnosis import (
    RULES,
    rules_answers,
    rules_form,
    rules_group_size,
    rules_learning,
    rules_machine,
    rules_rewards,
    rules_spread,
)
from groupwise.runs.diagnosis.diagnose import HIDES
from groupwise.runs.monitors import length_alarms
from groupwise.runs.recorder import ROLLOUT_SCHEMA

ROOT = Path(__file__).resolve().parents[1]
RULE_FILES = sorted((ROOT / "src" / "groupwise" / "runs" / "diagnosis").glob("rules_*.py"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def files_of_a_run() -> set[str]:
    """Names of the files and folders of RunDirectory, a folder with its slash."""
    run = RunDirectory(Path("run"))
    paths = [getattr(run, name) for name, value in vars(RunDirectory).items() if isinstance(value, property)]
    return {path.name + ("" if path.suffix else "/") for path in paths}


def test_the_files_of_a_run_are_those_that_are_written() -> None:
    listed = read("README.md").split("## What a run leaves behind")[1].split("\n## ")[0]
    assert set(re.findall(r"^      (\S+) ", listed, re.MULTILINE)) == files_of_a_run()
    table = read("docs/seeing.md").split("\n## The run folder\n")[1].split("\nRollout files")[0]
    explained = set(re.findall(r"^\| `(\S+)` \| ", table, re.MULTILINE))
    assert explained - files_of_a_run() == {"abandoned-1/", "tensorboard/", "report.html"}
    assert files_of_a_run() <= explained


def test_the_columns_of_a_rollout_are_listed() -> None:
    text = read("docs/seeing.md").split("The columns of a rollout: ")[1].split(". ")[0]
    assert re.findall(r"`(\w+)`", text) == ROLLOUT_SCHEMA.names


def test_every_finding_is_explained() -> None:
    """Names, order, and which of them are told early; the code's names are the rules' own, and those in findings."""
    section = read("docs/seeing.md").split("\n## Diagnose\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)`( early)? \| ", section, re.MULTILINE)
    assert listed == [(rule.find.__name__, " early" if rule.early else "") for rule in RULES]
    sources = [path.read_text(encoding="utf-8") for path in RULE_FILES]
    assert {name for name, _ in listed} == set(re.findall(r'name="(\w+)"', "".join(sources)))
    assert set(HIDES) <= {name for name, _ in listed}


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("unscored_flood", [f"over {rules_spread.MANY_UNSCORED:.0%}"]),
        (
            "weights_not_synced",
            [f"over {rules_machine.GAP_LARGE:g} nats", f"{rules_machine.GAP_GREW:g} times the first"],
        ),
        ("sampler_is_not_trainer", [f"over {rules_machine.GAP_AT_START:g} nats"]),
        (
            "lr_too_high",
            [
                f"over {100 * rules_learning.SMALLEST_FALL:g} points",
                f"{rules_learning.NUM_ERRORS:g} standard errors",
                f"{rules_learning.LOSS_ROSE:g} nats",
            ],
        ),
        (
            "outputs_cut",
            [
                f"over {rules_answers.MANY_CUT:.0%} cut",
                f"from {rules_answers.MOST_CUT:.0%}",
                f"under {rules_answers.BEGAN_CUT:.0%}",
            ],
        ),
        (
            "parser_never_matched",
            [f"over {rules_answers.MOST_INVALID:.0%} invalid", f"at most {rules_answers.HARDLY_SOLVED:.0%} solved"],
        ),
        (
            "form_not_right",
            [
                f"at most {rules_form.RARELY_PAID:.0%} solved",
                f"of {rules_form.MIN_ANSWERS} wrong answers to {rules_form.MIN_TASKS} tasks",
                f"{rules_form.MOST_HOLD:.0%} hold",
                f"{100 * rules_form.MIN_EXCESS:g} points",
            ],
        ),
        (
            "group_too_small",
            [
                f"from {rules_group_size.MIN_GROUPS} groups",
                f"under {rules_group_size.FEW_LIVE:.0%} of them live",
                f"rate under {rules_group_size.HARD:.0%}",
                f"{rules_group_size.CLEARLY:g} times",
                f"{100 * rules_group_size.MORE_SHARE:g} points",
            ],
        ),
        (
            "sampler_nearly_greedy",
            [
                f"{rules_answers.MOSTLY_REPEATED:.0%} repeat",
                f"{rules_answers.NEARLY_CERTAIN_NLL:g} nats",
                f"or {rules_answers.SURE_NLL:g} at any",
            ],
        ),
        (
            "one_answer_for_all",
            [
                f"in {rules_answers.SAME_FOR_ALL:.0%}",
                f"({rules_answers.MIN_PROMPTS} prompts",
                f"over {100 * rules_answers.MIN_EXCESS:g} points",
            ],
        ),
        (
            "no_spread_never_solved",
            [f"under {rules_spread.FEW_LIVE:.0%}", f"{rules_spread.ONE_KIND:.0%} of the dead"],
        ),
        ("lr_below_precision", [f"under {rules_learning.HARDLY_MOVED:.0%}"]),
        ("kl_runaway", [f"over {rules_learning.KL_FAR:g} nats", f"from {rules_learning.KL_LOST:g} "]),
        (
            "entropy_collapse",
            [
                f"to {rules_learning.ENTROPY_LOW:g} nats",
                f"{rules_learning.MOSTLY_REPEATED:.0%} of the answers repeat",
                f"at most {rules_learning.STILL_WRONG:.0%}",
            ],
        ),
        (
            "off_policy_clipping",
            [f"over {rules_learning.CLIPPED:.0%}", f"over {rules_learning.FAR_RATIOS:.0%} became"],
        ),
        ("dpo_chosen_falls", [f"over {rules_learning.CHOSEN_FELL:g} nats"]),
        (
            "reward_up_heldout_flat",
            [
                f"over {100 * rules_rewards.CLEAR_RISE:g} points",
                f"{rules_rewards.NUM_ERRORS:g} standard errors",
                f"at most {100 * rules_rewards.SMALL_GAIN:g} points",
            ],
        ),
        ("heldout_worse", [f"{rules_rewards.CONFIDENCE:.1%} interval"]),
        (
            "memory_near_limit",
            [f"{rules_machine.MEMORY_CLOSE:.0%} of", f"from {rules_machine.MEMORY_FULL:.0%}"],
        ),
        ("few_prompts", [f"over {rules_spread.MANY_VISITS} times"]),
        ("longer_not_better", [f"{length_alarms.LONGER:g} times"]),
        ("cut_not_better", [f"{100 * length_alarms.MORE_CUT:g} points"]),
    ],
)
def test_the_bounds_in_the_tables_are_those_of_the_code(name: str, bounds: list[str]) -> None:
    [row] = [line for line in read("docs/seeing.md").splitlines() if line.startswith(f"| `{name}`")]
    written = row.replace(" %", "%")
    assert [bound for bound in bounds if bound not in written] == []
