"""Recorded bad runs as numbers: each rule on both sides of its threshold, and what hides what."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.runs import Interval, RunDirectory, RunRecord, RunSummary, StageSummary, read_run
from groupwise.runs.diagnosis.diagnose import (
    HIDES,
    RULES,
    coverage,
    diagnose,
    diagnose_early,
    finding_lines,
    nothing_found,
)
from groupwise.runs.recorder import ROLLOUT_SCHEMA

ROLLOUT = {"group_size": 8, "prompts_per_step": 8, "max_completion_tokens": 100, "temperature": 1.0, "top_p": 1.0}
GRPO = {"name": "grpo", "steps": 30, "algorithm": {"name": "grpo", "beta": 0.01}, "optim": {"lr": 1e-5}}
SFT = {"name": "sft", "steps": 30, "algorithm": {"name": "sft", "tasks_per_step": 4}, "optim": {"lr": 1e-3}}
DPO = {"name": "dpo", "steps": 30, "algorithm": {"name": "dpo", "nll_coef": 0.0}, "optim": {"lr": 1e-6}}

Row = dict[str, Any]


def healthy(step: int, **changed: Any) -> Row:
    """A step of a run that works: 8 groups of 8, half of them alive."""
    row = {
        "stage": "grpo",
        "step": step,
        "time": float(step),
        "pass_rate": 0.5,
        "num_groups": 8.0,
        "num_rollouts": 64.0,
        "live_groups": 4.0,
        "dead_groups_all_solved": 2.0,
        "dead_groups_none_solved": 2.0,
        "unscored_groups": 0.0,
        "unscored_frac": 0.0,
        "invalid_frac": 0.1,
        "truncated_frac": 0.05,
        "repeated_frac": 0.3,
        "sampler_nll": 0.5,
        "kl_to_ref": 0.02,
        "clipped_low": 0.05,
        "clipped_high": 0.05,
        "ratio_tail_frac": 0.01,
        "logprob_gap_mean": 1e-6,
        "grad_norm": 1.0,
        "update_norm": 0.1,
        "weights_moved_frac": 0.9,
        "lr": 1e-5,
        "policy_version": float(step),
        "memory_bytes": 1e9,
        "num_generated_tokens": 2000.0,
    }
    return row | changed


def rows(number: int, **changed: Any) -> list[Row]:
    """Steps 1 to number; a callable is given the step."""
    return [healthy(s, **{k: v(s) if callable(v) else v for k, v in changed.items()}) for s in range(1, number + 1)]


def sft_rows(number: int, **changed: Any) -> list[Row]:
    base = {"stage": "sft", "nll": 0.3, "num_trained_tokens": 40.0, "grad_norm": 1.0, "weights_moved_frac": 0.9}
    made = [{k: v(s) if callable(v) else v for k, v in (base | changed).items()} for s in range(1, number + 1)]
    return [row | {"step": s, "time": s - 1000.0, "lr": 1e-3} for s, row in enumerate(made, start=1)]


def record_of(
    folder: Path,
    metrics: Sequence[Row],
    *,
    stages: Sequence[Mapping[str, Any]] = (GRPO,),
    events: Sequence[Mapping[str, Any]] = (),
    summary: RunSummary | None = None,
    environment: Mapping[str, Any] | None = None,
    **sections: Any,
) -> RunRecord:
    recipe = {"stages": list(stages), "rollout": ROLLOUT, "curation": {"enabled": True}, **sections}
    return RunRecord(
        directory=RunDirectory(folder),
        recipe=recipe,
        environment=environment or {},
        audit=None,
        plan=None,
        summary=summary,
        log=None,
        metrics=tuple(metrics),
        events=tuple(events),
        unreadable=(),
    )


def names(record: RunRecord) -> list[str]:
    return [finding.name for finding in diagnose(record)]


def stage_summary(name: str, rate: float, low: float, high: float) -> StageSummary:
    return StageSummary(
        name=name,
        pass_rate=rate,
        interval=Interval(low, high),
        greedy_pass_rate=None,
        greedy_interval=None,
        num_prompts=100,
        mean_length_right=10.0,
        mean_length_wrong=10.0,
        truncated_frac=0.0,
        seconds=1.0,
    )


def summary_of(*stages: StageSummary, peak: int | None = None) -> RunSummary:
    return RunSummary(stages=stages, peak_memory_bytes=peak, seeds={}, versions={})


def test_a_healthy_run_has_no_finding_and_says_what_was_looked_at(tmp_path: Path) -> None:
    record = record_of(tmp_path, rows(20))
    assert diagnose(record) == ()
    lines = nothing_found(record)
    assert lines[0] == "Nothing wrong was found."
    assert "answers cut at the limit" in lines[1]
    assert "  length (event length)" in lines
    assert "answers without an end" not in coverage(record).open  # there is no sft stage that could show it


def test_an_empty_record_has_no_finding(tmp_path: Path) -> None:
    assert diagnose(record_of(tmp_path, [])) == ()
    assert diagnose(record_of(tmp_path, [], stages=())) == ()


def test_a_metric_that_is_missing_or_null_is_no_finding(tmp_path: Path) -> None:
    assert diagnose(record_of(tmp_path, [{"stage": "grpo", "step": s, "time": 0.0} for s in range(1, 9)])) == ()
    assert diagnose(record_of(tmp_path, [dict.fromkeys(healthy(1)) | {"stage": "grpo", "step": 1}])) == ()


# (name, what its rows say on the bad side, and just on the good side)
EDGES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    # 80 groups: the lower 95 % bound of 30 % is 0.211, of 28 % it is 0.194; 0.2 is allowed
    ("outputs_cut", {"truncated_frac": 0.30}, {"truncated_frac": 0.28}),
    # lower bound of 72 % of 80 groups is 0.613, of 68 % it is 0.571; 0.6 is allowed
    ("parser_never_matched", {"invalid_frac": 0.72, "pass_rate": 0.0}, {"invalid_frac": 0.68, "pass_rate": 0.0}),
    ("parser_never_matched", {"invalid_frac": 0.9, "pass_rate": 0.04}, {"invalid_frac": 0.9, "pass_rate": 0.06}),
    (
        "sampler_nearly_greedy",
        {"repeated_frac": 0.95, "sampler_nll": 0.01},
        {"repeated_frac": 0.95, "sampler_nll": 0.03},
    ),
    (
        "sampler_nearly_greedy",
        {"repeated_frac": 0.81, "sampler_nll": 0.01},
        {"repeated_frac": 0.79, "sampler_nll": 0.01},
    ),
    # upper bound of 20 live of 160 groups is 0.185, of 24 it is 0.213; 0.2 is allowed
    (
        "no_spread_never_solved",
        {"live_groups": 1.0, "dead_groups_none_solved": 7.0, "dead_groups_all_solved": 0.0, "pass_rate": 0.02},
        {"live_groups": 1.2, "dead_groups_none_solved": 6.8, "dead_groups_all_solved": 0.0, "pass_rate": 0.02},
    ),
    (
        "no_spread_always_solved",
        {"live_groups": 1.0, "dead_groups_none_solved": 0.0, "dead_groups_all_solved": 7.0, "pass_rate": 0.98},
        {"live_groups": 1.2, "dead_groups_none_solved": 0.0, "dead_groups_all_solved": 6.8, "pass_rate": 0.98},
    ),
    (
        "no_spread_mixed",
        {"live_groups": 1.0, "dead_groups_none_solved": 3.5, "dead_groups_all_solved": 3.5},
        {"live_groups": 1.2, "dead_groups_none_solved": 3.4, "dead_groups_all_solved": 3.4},
    ),
    # 1280 completions: the lower bound of 4.2 % is 0.032, of 3.8 % it is 0.029; 0.03 is allowed
    ("unscored_flood", {"unscored_frac": 0.042}, {"unscored_frac": 0.038}),
    ("lr_below_precision", {"weights_moved_frac": 0.029}, {"weights_moved_frac": 0.031}),
    ("kl_runaway", {"kl_to_ref": 0.51}, {"kl_to_ref": 0.49}),
    ("off_policy_clipping", {"clipped_low": 0.26}, {"clipped_low": 0.24}),
    ("off_policy_clipping", {"ratio_tail_frac": 0.11}, {"ratio_tail_frac": 0.09}),
    ("sampler_is_not_trainer", {"logprob_gap_mean": 0.31}, {"logprob_gap_mean": 0.29}),
    # the gap grows to more than 0.05 and to more than 5 times its first value
    (
        "weights_not_synced",
        {"logprob_gap_mean": lambda s: 0.001 if s == 1 else 0.06},
        {"logprob_gap_mean": lambda s: 0.001 if s == 1 else 0.04},
    ),
    (
        "weights_not_synced",
        {"logprob_gap_mean": lambda s: 0.02 if s == 1 else 0.11},
        {"logprob_gap_mean": lambda s: 0.02 if s == 1 else 0.09},
    ),
    (
        "entropy_collapse",
        {"sampler_nll": lambda s: 0.6 if s < 10 else 0.09, "repeated_frac": lambda s: 0.3 if s < 10 else 0.95},
        {"sampler_nll": lambda s: 0.6 if s < 10 else 0.11, "repeated_frac": lambda s: 0.3 if s < 10 else 0.95},
    ),
    (
        "entropy_collapse",
        {"sampler_nll": lambda s: 0.6 / s**2, "repeated_frac": lambda s: 0.3 if s < 15 else 0.95, "pass_rate": 0.79},
        {"sampler_nll": lambda s: 0.6 / s**2, "repeated_frac": lambda s: 0.3 if s < 15 else 0.95, "pass_rate": 0.81},
    ),
]


@pytest.mark.parametrize(("name", "bad", "good"), EDGES, ids=[f"{i}-{edge[0]}" for i, edge in enumerate(EDGES)])
def test_both_sides_of_every_threshold(tmp_path: Path, name: str, bad: Row, good: Row) -> None:
    assert names(record_of(tmp_path, rows(20, **bad))) == [name]
    assert names(record_of(tmp_path, rows(20, **good))) == []


def test_the_first_step_is_enough_where_every_answer_is_cut(tmp_path: Path) -> None:
    record = record_of(tmp_path, rows(1, truncated_frac=1.0))
    assert [f.name for f in diagnose_early(record)] == ["outputs_cut"]
    assert diagnose_early(record)[0].change == "rollout.max_completion_tokens: now 100, try 200"


def test_a_share_has_its_severity_early_and_late_and_the_end_names_both(tmp_path: Path) -> None:
    falling = rows(20, truncated_frac=lambda step: 0.58 if step == 1 else 0.33)
    (early,) = diagnose_early(record_of(tmp_path, rows(4, truncated_frac=0.58)))
    (late,) = diagnose(record_of(tmp_path, falling))
    assert (early.severity, late.severity) == ("problem", "warning")
    assert "limit of 100 tokens lately, 58 % in the first collection;" in late.evidence
    assert "first collection" not in early.evidence


def test_answers_that_grow_into_the_limit_while_the_model_breaks_are_not_the_limits_doing(tmp_path: Path) -> None:
    broken = healthy(1, truncated_frac=0.0, pass_rate=0.6), *rows(9, truncated_frac=0.6, pass_rate=0.02)[1:]
    assert "outputs_cut" not in [f.name for f in diagnose_early(record_of(tmp_path, broken))]
    cut_from_the_start = [broken[0] | {"truncated_frac": 0.5}, *broken[1:]]
    assert "outputs_cut" in [f.name for f in diagnose_early(record_of(tmp_path, cut_from_the_start))]
    harder = [r | {"set_aside_always_solved": 9.0} for r in broken]
    assert "outputs_cut" in [f.name for f in diagnose_early(record_of(tmp_path, harder))]


def test_a_model_that_the_first_update_breaks(tmp_path: Path) -> None:
    dead = {"live_groups": 0.0, "dead_groups_none_solved": 8.0, "dead_groups_all_solved": 0.0, "pass_rate": 0.0}
    broken = [healthy(1, pass_rate=0.7), *rows(9, **dead)[1:]]
    assert [f.name for f in diagnose_early(record_of(tmp_path, broken))] == ["lr_too_high"]
    retired = [r | {"set_aside_always_solved": 3.0} for r in broken]
    assert "lr_too_high" not in [f.name for f in diagnose_early(record_of(tmp_path, retired))]
    assert "lr_too_high" not in [f.name for f in diagnose_early(record_of(tmp_path, broken[:4]))]


def test_a_mended_verifier_is_named_by_its_file(tmp_path: Path) -> None:
    message = "the verifier could not judge 20 of 64 completions; at most 10%.\n  First reason: KeyError: h\n  Mend it."
    event = {"event": "failed", "stage": "grpo", "error": "VerifierError", "message": message}
    verifier = {"kind": "function", "path": "r.py:f"}
    found = diagnose(record_of(tmp_path, rows(1), events=[event], verifier=verifier))[0]
    assert found.change == "verifier.path: now r.py:f, try the same, mended for this reason"
    assert found.evidence.startswith("20 of 64 completions could not be judged; one reason: KeyError: h. They")


def test_collections_without_a_gradient_count(tmp_path: Path) -> None:
    empty = [r | {"stage": "grpo-no-signal"} for r in rows(2, truncated_frac=1.0)]
    assert names(record_of(tmp_path, empty)) == ["outputs_cut"]


def test_a_cause_hides_its_consequences_in_its_stage_and_later_ones(tmp_path: Path) -> None:
    dead = {"live_groups": 0.0, "dead_groups_none_solved": 8.0, "dead_groups_all_solved": 0.0, "pass_rate": 0.0}
    assert names(record_of(tmp_path, rows(9, truncated_frac=1.0, **dead))) == ["outputs_cut"]
    assert names(record_of(tmp_path, rows(9, **dead))) == ["no_spread_never_solved"]
    # an earlier stage's dead groups are not explained by what a later stage did wrong
    later = [r | {"stage": "second"} for r in rows(9, truncated_frac=1.0)]
    record = record_of(tmp_path, [*rows(9, **dead), *later], stages=(GRPO, GRPO | {"name": "second"}))
    assert names(record) == ["outputs_cut", "no_spread_never_solved"]


def test_at_most_five_and_problems_first(tmp_path: Path) -> None:
    everything = rows(
        20,
        truncated_frac=0.42,
        kl_to_ref=2.0,
        clipped_low=0.5,
        weights_moved_frac=0.0,
        unscored_frac=0.5,
        memory_bytes=95,
    )
    forecast = {"event": "forecast", "stage": "grpo", "seconds_train": {"forecast": 10, "measured": 100}}
    record = record_of(tmp_path, everything, environment={"memory_limit_bytes": 100}, events=[forecast])
    found = diagnose(record)
    assert [f.name for f in found] == [
        *("unscored_flood", "lr_below_precision", "kl_runaway"),
        *("outputs_cut", "off_policy_clipping"),
    ]
    assert [f.severity for f in found] == ["problem"] * 3 + ["warning"] * 2


def test_group_size_advice_by_the_pass_rate(tmp_path: Path) -> None:
    dead = {"live_groups": 0.0, "dead_groups_none_solved": 8.0, "dead_groups_all_solved": 0.0}
    found = diagnose(record_of(tmp_path, rows(20, pass_rate=0.02, **dead)))[0]
    # 1 - 0.98^8 = 0.149; 1 - 0.98^32 = 0.476, 1 - 0.98^64 = 0.726
    assert "a group of 8 has a right answer in 15 % of cases" in found.evidence
    assert found.change == "rollout.group_size: now 8, try 64"
    # nothing right in 1280: at most 3 / 1280 = 0.234 %; 1 - (1 - 0.00234)^8 = 1.86 %; no size helps
    found = diagnose(record_of(tmp_path, rows(20, pass_rate=0.0, **dead)))[0]
    assert "at most 0.2 %" in found.evidence
    assert "at most 1.9 %" in found.evidence
    assert found.change.startswith("data.train")


def test_a_warm_up_is_no_learning_rate_below_the_precision(tmp_path: Path) -> None:
    warming = {"lr": lambda s: 1e-5 * s / 20, "weights_moved_frac": lambda s: 0.0 if s < 13 else 0.5}
    assert names(record_of(tmp_path, rows(20, **warming))) == []


def test_a_model_that_learned_to_be_sure_is_left_in_peace(tmp_path: Path) -> None:
    sure = rows(20, sampler_nll=0.001, repeated_frac=1.0, pass_rate=0.95)
    assert names(record_of(tmp_path, sure)) == []


def test_prompts_that_retire_are_no_collapse(tmp_path: Path) -> None:
    assert names(record_of(tmp_path, rows(40, pass_rate=lambda s: 0.6 - 0.01 * s))) == []


def test_demonstrations_tell_a_short_limit_from_a_missing_end(tmp_path: Path) -> None:
    """40 trained tokens of 4 demonstrations a step are 10 a demonstration, against a limit of 100, and of 16."""
    cut = rows(9, truncated_frac=1.0)
    record = record_of(tmp_path, [*sft_rows(9), *cut], stages=(SFT, GRPO))
    assert names(record) == ["sft_no_end"]
    assert diagnose(record)[0].change == "steps of stage sft: now 30, try 60"
    limited = ROLLOUT | {"max_completion_tokens": 16}
    assert names(record_of(tmp_path, [*sft_rows(9), *cut], stages=(SFT, GRPO), rollout=limited)) == ["outputs_cut"]


def test_an_sft_stage_alone_is_judged_by_its_evaluation(tmp_path: Path) -> None:
    event = {"event": "evaluation", "name": "sft", "truncated_frac": 0.9, "num_prompts": 50}
    assert names(record_of(tmp_path, sft_rows(9), stages=(SFT,), events=[event])) == ["sft_no_end"]
    assert names(record_of(tmp_path, sft_rows(9), stages=(SFT,), events=[event | {"truncated_frac": 0.6}])) == []


def test_a_loss_that_rises(tmp_path: Path) -> None:
    def rising(height: float) -> list[Row]:
        return sft_rows(20, nll=lambda s: 1.0 if s < 5 else height)

    assert names(record_of(tmp_path, rising(1.6), stages=(SFT,))) == ["lr_too_high"]
    assert names(record_of(tmp_path, rising(1.4), stages=(SFT,))) == []


def test_a_pass_rate_that_collapses(tmp_path: Path) -> None:
    """80 groups at each end; a quarter of 0.5 is 0.125, and four standard errors of the fall are 0.27."""

    def falling(last: float) -> list[Row]:
        return rows(40, pass_rate=lambda s: 0.5 if s < 21 else last)

    assert names(record_of(tmp_path, falling(0.12))) == ["lr_too_high"]
    assert names(record_of(tmp_path, falling(0.13))) == []
    # 8 groups at each end: 0.5 -> 0.0 is 0.5, and four standard errors are 0.77
    assert names(record_of(tmp_path, rows(2, pass_rate=lambda s: 0.5 if s < 2 else 0.0))) == []


def test_a_held_out_rate_that_falls_with_intervals_apart(tmp_path: Path) -> None:
    before, fallen = stage_summary("base", 0.6, 0.5, 0.7), stage_summary("grpo", 0.2, 0.13, 0.29)
    assert names(record_of(tmp_path, rows(9), summary=summary_of(before, fallen))) == ["lr_too_high"]
    meets = stage_summary("grpo", 0.2, 0.13, 0.51)
    assert names(record_of(tmp_path, rows(9), summary=summary_of(before, meets))) == []


def test_a_rise_on_the_training_prompts_alone(tmp_path: Path) -> None:
    up = rows(20, pass_rate=lambda s: 0.3 if s < 11 else 0.8)  # 40 groups at each end, 0.5 up
    before = stage_summary("base", 0.4, 0.3, 0.5)
    flat, rising = stage_summary("grpo", 0.4, 0.3, 0.5), stage_summary("grpo", 0.6, 0.5, 0.7)
    wide = stage_summary("grpo", 0.4, 0.1, 0.7)
    assert names(record_of(tmp_path, up, summary=summary_of(before, flat))) == ["reward_up_heldout_flat"]
    assert names(record_of(tmp_path, up, summary=summary_of(before, rising))) == []
    assert names(record_of(tmp_path, up, summary=summary_of(before, wide))) == []


def test_the_chosen_answers_fall(tmp_path: Path) -> None:
    def pairs(last: float) -> list[Row]:
        # 160 trained tokens of 8 pairs: 10 a side
        base = {"num_trained_tokens": 160.0, "num_pairs": 8.0, "accuracy": 0.9, "stage": "dpo"}
        return [base | {"step": s, "time": float(s), "chosen_logprob": -20.0 if s < 5 else last} for s in range(1, 11)]

    found = diagnose(record_of(tmp_path, pairs(-25.5), stages=(DPO,)))
    assert [f.name for f in found] == ["dpo_chosen_falls"]
    assert found[0].change == "algorithm.nll_coef of stage dpo: now 0, try 1"
    assert names(record_of(tmp_path, pairs(-24.5), stages=(DPO,))) == []


@pytest.mark.parametrize(("peak", "severity"), [(97, "problem"), (96, "warning"), (90, "warning"), (89, None)])
def test_memory_against_the_limit(tmp_path: Path, peak: int, severity: str | None) -> None:
    found = diagnose(record_of(tmp_path, rows(3, memory_bytes=peak), environment={"memory_limit_bytes": 100}))
    assert [f.severity for f in found] == ([severity] if severity else [])


def test_alarms_of_the_monitors(tmp_path: Path) -> None:
    hacking = {"event": "hacking", "name": "grpo", "alarm": "paid more than earned", "attack_hits": {"echo": 3, "b": 0}}
    length = {"event": "length", "name": "grpo", "alarm": "wrong answers grow", "right_tokens": 5.0}
    found = diagnose(record_of(tmp_path, rows(3), events=[hacking, length]))
    assert [f.name for f in found] == ["reward_hacking"]
    assert "echo 3 times" in found[0].evidence
    assert names(record_of(tmp_path, rows(3), events=[length])) == ["length_runaway"]
    # the newest alarm has the numbers, the oldest the stage in which it began
    stages = (GRPO, GRPO | {"name": "later"})
    events = [hacking, hacking | {"name": "later", "alarm": "a gap of 32 points"}]
    last = diagnose(record_of(tmp_path, rows(3), stages=stages, events=events))[0]
    assert (last.stage, "a gap of 32 points" in last.evidence, "paid more" in last.evidence) == ("grpo", True, False)
    # the last word of a stage counts
    assert names(record_of(tmp_path, rows(3), events=[hacking, hacking | {"alarm": ""}])) == []


def test_a_forecast_that_is_far_off(tmp_path: Path) -> None:
    def event(measured: float) -> Mapping[str, Any]:
        return {"event": "forecast", "stage": "grpo", "seconds_train": {"forecast": 50.0, "measured": measured}}

    assert names(record_of(tmp_path, rows(3), events=[event(101.0)])) == ["forecast_far_off"]
    assert names(record_of(tmp_path, rows(3), events=[event(99.0)])) == []


def test_few_prompts(tmp_path: Path) -> None:
    few, enough = {"num_tasks": {"train": 7}}, {"num_tasks": {"train": 8}}
    assert names(record_of(tmp_path, rows(3), environment=few)) == ["few_prompts"]
    assert names(record_of(tmp_path, rows(3), environment=enough)) == []
    assert names(record_of(tmp_path, rows(51), environment=enough)) == ["few_prompts"]  # 51 * 8 / 8 visits


def test_a_stage_that_ran_out_of_prompts(tmp_path: Path) -> None:
    event = {"event": "nothing_left", "stage": "grpo", "step": 4, "diagnosis": "No training prompt is left."}
    found = diagnose(record_of(tmp_path, rows(3), events=[event]))
    assert [f.name for f in found] == ["ran_out_of_prompts"]
    assert "before step 4 of 30" in found[0].evidence


def test_errors_at_the_end(tmp_path: Path) -> None:
    failed = {"event": "failed", "stage": "grpo", "error": "OutOfMemoryError", "message": "no memory"}
    found = diagnose(record_of(tmp_path, rows(3), events=[failed]))
    assert [f.name for f in found] == ["ended_by_error"]
    assert "tokens_per_microbatch" in found[0].change
    assert names(record_of(tmp_path, rows(3), events=[failed, {"event": "restarted"}])) == []
    no_number = failed | {"error": "FloatingPointError"}
    assert names(record_of(tmp_path, rows(3), events=[no_number])) == ["lr_too_high"]


def write_rollouts(folder: Path, stage: str, step: int, texts: Sequence[tuple[str, str, bool]], **columns: Any) -> None:
    """texts: (task id, text, solved)."""
    base: Row = dict.fromkeys(ROLLOUT_SCHEMA.names)
    base |= {"stage": stage, "step": step, "stop": "end", "status": "scored", "reason": "", "checks": "[]"}
    base |= {"advantage": 0.0, "num_tokens": 1, "policy_version": 0, "group": 0, "rollout": 0, "reward": 0.0}
    made = [base | {"task_id": task, "text": text, "outcome": solved} | columns for task, text, solved in texts]
    path = RunDirectory(folder).rollouts_of(stage, step)
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(made, schema=ROLLOUT_SCHEMA), path)


def test_one_label_for_all(tmp_path: Path) -> None:
    def label(found: str) -> str:
        return json.dumps([{"name": "wrong_label", "passed": True, "expected": "a", "found": found}])

    texts = [(f"t{i}", f"rationale {i}", i % 2 == 0) for i in range(40)]
    said = {"checks": label("neutral"), "policy_version": 2}
    write_rollouts(tmp_path, "grpo", 3, texts, **said)
    found = diagnose(record_of(tmp_path, rows(3)))
    assert [f.name for f in found] == ["one_answer_for_all"]
    assert "'neutral'" in found[0].evidence
    # right in 70 %: an excess of 0.30 over 40 prompts, allowed are 4 * sqrt(0.7 * 0.3 / 40) = 0.29; 75 %: 0.25 of 0.27
    write_rollouts(tmp_path, "grpo", 3, [(t, x, i < 28) for i, (t, x, _) in enumerate(texts)], **said)
    assert names(record_of(tmp_path, rows(3))) == ["one_answer_for_all"]
    write_rollouts(tmp_path, "grpo", 3, [(t, x, i < 30) for i, (t, x, _) in enumerate(texts)], **said)
    assert names(record_of(tmp_path, rows(3))) == []


def test_rollouts_of_an_old_version(tmp_path: Path) -> None:
    for step, version in ((2, 0), (3, 1)):  # the steps began with versions 1 and 2
        write_rollouts(tmp_path, "grpo", step, [("t", str(step), True)], policy_version=version)
    found = diagnose(record_of(tmp_path, rows(3)))
    assert [f.name for f in found] == ["weights_not_synced"]
    assert "1 updates old" in found[0].evidence
    write_rollouts(tmp_path, "grpo", 3, [("t", "3", True)], policy_version=2)
    assert names(record_of(tmp_path, rows(3))) == []


def test_an_unreadable_file_of_rollouts_is_left_out(tmp_path: Path) -> None:
    RunDirectory(tmp_path).rollouts.mkdir()
    RunDirectory(tmp_path).rollouts_of("grpo", 9).write_bytes(b"torn")
    record = record_of(tmp_path, rows(9, invalid_frac=1.0, pass_rate=0.0))
    assert names(record) == ["parser_never_matched"]


def test_every_name_in_hides_is_the_name_of_a_rule() -> None:
    known = {rule.find.__name__ for rule in RULES}
    assert set(HIDES) | {name for hidden in HIDES.values() for name in hidden} <= known
    assert not any(name in HIDES.get(other, ()) for name in HIDES for other in HIDES[name])  # or both would vanish


def test_the_command_prints_findings_and_its_exit_code_says_whether_there_is_a_problem(tmp_path: Path) -> None:
    def command(metrics: Sequence[Row], *options: str) -> Any:
        (tmp_path / "recipe.toml").write_text(
            "[rollout]\nmax_completion_tokens = 100\n"
            "[[stages]]\nname = 'grpo'\nsteps = 9\nalgorithm = { name = 'grpo' }\n"
        )
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
        return CliRunner().invoke(app, ["diagnose", str(tmp_path), *options])

    healthy_run, warned, bad = command(rows(9)), command(rows(9, kl_to_ref=0.6)), command(rows(9, truncated_frac=1.0))
    assert (healthy_run.exit_code, warned.exit_code, bad.exit_code) == (0, 0, 1)
    assert "Nothing wrong was found." in healthy_run.output
    assert "[outputs_cut, problem]" in bad.output
    shown = json.loads(command(rows(9, truncated_frac=1.0), "--json").output)
    assert shown["findings"][0]["name"] == "outputs_cut"
    assert shown["findings"][0]["step"] == 9


def test_a_run_of_a_thousand_steps_takes_less_than_a_second(tmp_path: Path) -> None:
    texts = [(f"t{i}", f"text {i}", i % 2 == 0) for i in range(512)]
    for step in range(996, 1001):
        write_rollouts(tmp_path, "grpo", step, texts, policy_version=step - 1)
    (tmp_path / "recipe.toml").write_text("[[stages]]\nname = 'grpo'\nsteps = 1000\nalgorithm = { name = 'grpo' }\n")
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(1000)))
    started = time.process_time()
    assert diagnose(read_run(tmp_path)) == ()
    assert time.process_time() - started < 1.0


def test_lines_name_title_evidence_and_change(tmp_path: Path) -> None:
    lines = finding_lines(diagnose(record_of(tmp_path, rows(9, truncated_frac=1.0))))
    assert lines[0] == "1. 100 % of the answers are cut at the token limit.  [outputs_cut, problem] (grpo)"
    assert lines[1].startswith("   Evidence: 576 of 576 completions ended at the limit of 100 tokens; ")
    assert lines[2] == "   Change:   rollout.max_completion_tokens: now 100, try 200"


def test_a_stage_that_makes_held_out_prompts_worse(tmp_path: Path) -> None:
    scored = {f"p{i}": 4 for i in range(100)}

    def measured(name: str, lost: int, prefix: str = "") -> dict[str, Any]:
        solved = {task: 2 - (i < lost) for i, task in enumerate(scored)}
        return {"event": "evaluation", "name": name, f"{prefix}solved": solved, f"{prefix}scored": scored}

    def found(lost: int, **changed: Any) -> list[str]:
        events = [measured("base", 0), measured("grpo", lost)]
        return names(record_of(tmp_path, rows(9, **changed), events=events))

    # two made-up prompts widen the interval: 25 prompts that lose 1 of 4 are a sure fall, 15 are none
    assert (found(25), found(15), found(-1)) == (["heldout_worse"], [], [])
    assert found(25, truncated_frac=1.0) == ["outputs_cut"]  # what is wrong may be why
    evidence = diagnose(record_of(tmp_path, rows(9), events=[measured("base", 0), measured("grpo", 25)]))[0].evidence
    assert "from 50 % to 44 %: -6.2 points" in evidence
    greedy = [measured("base", 0, "greedy_"), measured("grpo", 25, "greedy_")]
    assert "(greedy)" in diagnose(record_of(tmp_path, rows(9), events=greedy))[0].evidence
    few = record_of(tmp_path, rows(9), events=greedy, environment={"num_tasks": {"train": 6}})
    assert "sampled 12 times" in diagnose(few)[0].evidence
    assert diagnose(few)[0].change.endswith("try more tasks")
    # a reward model leaves the policy as it is
    judge = GRPO | {"algorithm": {"name": "reward_model"}}
    events = [measured("base", 0), measured("grpo", 25)]
    assert names(record_of(tmp_path, [], stages=(judge,), events=events)) == []
