"""The registry of numbers: complete entries, families by their members, and the page that prints them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groupwise.runs import METRIC_GROUPS, METRICS, Metric, describe_metric, metrics_in, metrics_table
from groupwise.runs.metrics.metric import ALL
from groupwise.runs.metrics.of_costs import PHASES
from groupwise.runs.metrics.registry import FAMILIES, OF_A_CRITIC

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def test_a_name_stands_once_and_says_what_it_is_over() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.meaning, metric.name
        assert set(metric.algorithms) <= set(ALL), metric.name
        assert metric.denominator or metric.reduction not in ("mean", "share", "std", "p99"), metric.name


def test_units_follow_the_names() -> None:
    for metric in METRICS:
        if metric.name.endswith("_frac"):
            assert metric.unit == "0..1", metric.name
        if metric.name.startswith(("seconds_", "spent_seconds")):
            assert metric.unit == "seconds", metric.name
        if metric.name.endswith("_tokens"):
            assert metric.unit == "tokens", metric.name


def test_every_group_is_shown_in_one_place() -> None:
    shown = [metric for group in METRIC_GROUPS for metric in metrics_in(group)]
    assert sorted(m.name for m in shown) == sorted(m.name for m in (*METRICS, *FAMILIES))
    assert all(metrics_in(group) for group in METRIC_GROUPS)


def test_a_name_is_described() -> None:
    metric = describe_metric("truncated_frac")
    assert metric is not None
    assert (metric.unit, metric.over, metric.group) == ("0..1", "share of sampled rollouts", "lengths")
    assert describe_metric("pass_rat") is None


def test_members_of_families_are_described() -> None:
    norm = describe_metric("critic_grad_norm")
    assert norm is not None
    assert (norm.name, norm.group, norm.algorithms, norm.unit) == ("critic_grad_norm", "critic", ("ppo",), "")
    assert norm.meaning.startswith("of the critic: before it is clipped")
    for own in OF_A_CRITIC:
        member = describe_metric(f"critic_{own}")
        assert isinstance(member, Metric)
        assert member.when == "without critic.shared"
    aside = describe_metric("set_aside_always_solved")
    assert aside is not None
    assert aside.meaning.endswith("as always solved")


@pytest.mark.parametrize("name", ["critic_pass_rate", "critic_", "set_aside_", "critic_<number>", ""])
def test_what_only_looks_like_a_member_is_unknown(name: str) -> None:
    assert describe_metric(name) is None


def test_every_phase_has_its_seconds() -> None:
    times = [metric.name for metric in metrics_in("time")]
    assert times == ["seconds_step", *(f"seconds_{phase}" for phase in PHASES)]


def test_the_page_prints_the_registry() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.endswith("\n" + metrics_table()), "run scripts/write_metrics_page.py"


def test_the_text_above_the_tables_names_metrics_that_exist() -> None:
    text = PAGE.read_text(encoding="utf-8").removesuffix(metrics_table())
    table = text[text.index("## Look at these first") : text.index("## What is a mean over what")]
    cells = [row.split("|")[2] for row in table.splitlines() if row.startswith("| ") and "`" in row]
    names = [name for cell in cells for name in re.findall(r"`([a-z_0-9]+)`", cell)]
    assert len(names) > 15
    assert [name for name in names if describe_metric(name) is None] == []
