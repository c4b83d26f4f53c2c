"""What is wrong with a run, in plain words: rules over its record, the worst finding first.

A rule is a pure function from a record to a finding or None (rules_*.py); it uses what the record has and
finds nothing where a number is missing. `RULES` lists them, the deepest cause first. A cause hides its consequences:
where every answer is cut, that no group has spread is no second finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from groupwise.runs.diagnosis import rules_answers as answers
from groupwise.runs.diagnosis import rules_form as form
from groupwise.runs.diagnosis import rules_group_size as group_size
from groupwise.runs.diagnosis import rules_learning as learning
from groupwise.runs.diagnosis import rules_machine as machine
from groupwise.runs.diagnosis import rules_rewards as rewards
from groupwise.runs.diagnosis import rules_spread as spread
from groupwise.runs.diagnosis.finding import Finding
from groupwise.runs.diagnosis.rows import FROM_ROLLOUTS, lookup
from groupwise.runs.record import RunRecord

MOST_FINDINGS = 5
"""More than five things to change are none: nobody reads them."""

METRIC, EVENT = "metric ", "event "
"""How a rule's needs begin: a metric of any row, or an event."""
SUMMARY, LIMIT = "summary.json", "memory_limit_bytes in environment.json"


@dataclass(frozen=True, slots=True)
class Rule:
    """One question about a run: Rule(outputs_cut, "answers cut at the limit", ("metric truncated_frac",))."""

    find: Callable[[RunRecord], Finding | None]
    question: str
    needs: tuple[str, ...]
    """Without these in the record the question stays open."""
    stages: tuple[str, ...] = ()
    """Algorithms that the question is about; a recipe without them does not ask it. Empty = any."""
    early: bool = False
    """True where the first steps can answer it and it opens a file at most once it has found something."""


RULES: tuple[Rule, ...] = (
    Rule(spread.unscored_flood, "verdicts that are missing", (METRIC + "unscored_frac",), FROM_ROLLOUTS, True),
    Rule(machine.weights_not_synced, "weights that the sampler lacks", (METRIC + "logprob_gap_mean",), FROM_ROLLOUTS),
    Rule(machine.sampler_is_not_trainer, "sampler unlike trainer", (METRIC + "logprob_gap_mean",), FROM_ROLLOUTS, True),
    Rule(learning.lr_too_high, "learning rate too high", (METRIC + "grad_norm",), (), True),
    Rule(rewards.reward_hacking, "rewards that are not earned", (EVENT + "hacking",)),
    Rule(answers.sft_no_end, "answers without an end", (METRIC + "truncated_frac", METRIC + "nll"), ("sft",), True),
    Rule(answers.outputs_cut, "answers cut at the limit", (METRIC + "truncated_frac",), FROM_ROLLOUTS, True),
    Rule(
        answers.parser_never_matched,
        "answers that the verifier cannot read",
        (METRIC + "invalid_frac",),
        FROM_ROLLOUTS,
        True,
    ),
    Rule(
        form.form_not_right,
        "right content in another form",
        (METRIC + "pass_rate",),
        FROM_ROLLOUTS,
        True,
    ),
    Rule(
        answers.sampler_nearly_greedy, "a sampler that hardly draws", (METRIC + "repeated_frac",), FROM_ROLLOUTS, True
    ),
    Rule(answers.one_answer_for_all, "one answer for every prompt", (METRIC + "num_rollouts",), FROM_ROLLOUTS),
    Rule(
        spread.no_spread_never_solved,
        "groups without a right answer",
        (METRIC + "dead_groups_none_solved",),
        ("grpo",),
        True,
    ),
    Rule(
        spread.no_spread_always_solved,
        "groups without a wrong answer",
        (METRIC + "dead_groups_all_solved",),
        ("grpo",),
        True,
    ),
    Rule(spread.no_spread_mixed, "prompts too hard or too easy", (METRIC + "live_groups",), ("grpo",), True),
    Rule(group_size.group_too_small, "groups that are too small", (METRIC + "live_groups",), ("grpo",)),
    Rule(machine.ended_by_error, "an error at the end", ()),
    Rule(learning.lr_below_precision, "updates lost in rounding", (METRIC + "weights_moved_frac",), (), True),
    Rule(learning.kl_runaway, "distance from the reference", (METRIC + "kl_to_ref",), FROM_ROLLOUTS, True),
    Rule(learning.entropy_collapse, "entropy", (METRIC + "sampler_nll", METRIC + "repeated_frac"), FROM_ROLLOUTS, True),
    Rule(rewards.length_runaway, "length", (EVENT + "length",)),
    Rule(learning.off_policy_clipping, "updates off policy", (METRIC + "clipped_low",), FROM_ROLLOUTS, True),
    Rule(learning.dpo_chosen_falls, "chosen answers that become unlikely", (METRIC + "chosen_logprob",), ("dpo",)),
    Rule(
        rewards.reward_up_heldout_flat,
        "rewards on the training prompts alone",
        (METRIC + "pass_rate", SUMMARY),
        FROM_ROLLOUTS,
    ),
    Rule(rewards.heldout_worse, "held-out prompts that are solved less often", (EVENT + "evaluation",)),
    Rule(machine.memory_near_limit, "memory", (LIMIT,), (), True),
    Rule(spread.few_prompts, "too few prompts", (METRIC + "num_groups",), FROM_ROLLOUTS),
    Rule(spread.ran_out_of_prompts, "prompts that ran out", (METRIC + "num_groups",), FROM_ROLLOUTS),
    Rule(machine.forecast_far_off, "time against the forecast", (EVENT + "forecast",)),
)
"""The deepest cause first; findings of one severity are told in this order."""

_AFTER_NO_SPREAD = ("ran_out_of_prompts", "group_too_small")
_NO_SPREAD = ("no_spread_never_solved", "no_spread_always_solved", "no_spread_mixed", *_AFTER_NO_SPREAD)
_BAD_ANSWERS = ("parser_never_matched", "form_not_right", "one_answer_for_all", "length_runaway", *_NO_SPREAD)
_AFTER_COLLAPSE = ("entropy_collapse", "one_answer_for_all", "sampler_nearly_greedy", "kl_runaway")

HIDES: Mapping[str, tuple[str, ...]] = {
    "unscored_flood": ("ended_by_error", "no_spread_mixed", *_AFTER_NO_SPREAD),
    "weights_not_synced": ("ended_by_error", "lr_too_high", "off_policy_clipping", "kl_runaway"),
    "sampler_is_not_trainer": ("ended_by_error", "weights_not_synced", "off_policy_clipping"),
    "lr_too_high": (
        *("ended_by_error", "outputs_cut", "sft_no_end", "off_policy_clipping", "reward_up_heldout_flat"),
        *_BAD_ANSWERS,
        *_AFTER_COLLAPSE,
    ),
    "reward_hacking": (*_BAD_ANSWERS, *_AFTER_COLLAPSE, "reward_up_heldout_flat"),
    "sft_no_end": ("outputs_cut", *_BAD_ANSWERS),
    "outputs_cut": _BAD_ANSWERS,
    "parser_never_matched": ("form_not_right", "one_answer_for_all", *_NO_SPREAD),
    "form_not_right": ("one_answer_for_all", *_NO_SPREAD),
    "sampler_nearly_greedy": ("entropy_collapse", *_NO_SPREAD),
    "one_answer_for_all": ("sampler_nearly_greedy", "entropy_collapse", *_NO_SPREAD),
    "entropy_collapse": _NO_SPREAD,
    **dict.fromkeys(_NO_SPREAD[:3], _AFTER_NO_SPREAD),
}
"""What a finding explains, in its own stage and in those after it."""


def diagnose(record: RunRecord) -> tuple[Finding, ...]:
    """At most five findings, problems before warnings, causes before what stands alone, without their consequences."""
    return _told(record, [found for rule in RULES if (found := rule.find(record)) is not None])


def diagnose_early(record: RunRecord) -> tuple[Finding, ...]:
    """What the first steps show already, for a run that is under way: the rules that cost next to nothing."""
    return _told(record, [found for rule in RULES if rule.early and (found := rule.find(record)) is not None])


def _told(record: RunRecord, found: Sequence[Finding]) -> tuple[Finding, ...]:
    places = {str(table.get("name")): i for i, table in enumerate(record.stages)}
    kept = [f for f in found if not any(_explains(cause, f, places) for cause in found)]
    return tuple(sorted(kept, key=lambda f: f.severity != "problem"))[:MOST_FINDINGS]


def _explains(cause: Finding, other: Finding, places: Mapping[str, int]) -> bool:
    if other.name == "heldout_worse":
        return cause is not other and cause.severity == "problem"  # whatever is wrong may be why
    if other.name not in HIDES.get(cause.name, ()):
        return False
    return not other.stage or places.get(cause.stage, -1) <= places.get(other.stage, len(places))


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """The findings as lines for a terminal: what it is, the evidence, what to change."""
    lines = []
    for number, finding in enumerate(findings, start=1):
        where = f" ({finding.stage})" if finding.stage else ""
        lines.append(f"{number}. {finding.title}  [{finding.name}, {finding.severity}]{where}")
        lines.append(f"   Evidence: {finding.evidence}")
        lines.append(f"   Change:   {finding.change}")
    return lines


def findings_json(findings: Sequence[Finding]) -> str:
    """diagnosis.json: {"findings": [...]}, each with the fields of `Finding`."""
    return json.dumps({"findings": [asdict(finding) for finding in findings]}, indent=1) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Which questions the record could answer: Coverage(asked=("memory", ...), open={"length": ("event length",)})."""

    asked: tuple[str, ...]
    open: Mapping[str, tuple[str, ...]]
    """By question: what is missing for it."""


def coverage(record: RunRecord) -> Coverage:
    """What a diagnosis of this run looked at, and what it could not look at."""
    metrics = {name for row in record.metrics for name, value in row.items() if value is not None}
    has = {METRIC + name for name in metrics} | {EVENT + str(event.get("event")) for event in record.events}
    if "kl_to_ref_sum" in metrics:
        has.add(METRIC + "kl_to_ref")
    if record.summary is not None:
        has.add(SUMMARY)
    if record.environment.get("memory_limit_bytes"):
        has.add(LIMIT)
    used = {lookup(table, "algorithm.name") for table in record.stages}
    rules = [rule for rule in RULES if not rule.stages or used & set(rule.stages)]
    missing = {rule.question: tuple(need for need in rule.needs if need not in has) for rule in rules}
    return Coverage(
        asked=tuple(question for question, needs in missing.items() if not needs),
        open={question: needs for question, needs in missing.items() if needs},
    )


def nothing_found(record: RunRecord) -> list[str]:
    """Lines for a run without findings: what was looked at, and what could not be."""
    seen = coverage(record)
    lines = ["Nothing wrong was found."]
    lines.append("Looked at: " + ("; ".join(seen.asked) or "nothing, the record is empty") + ".")
    if seen.open:
        lines.append("Not looked at, because the run did not record it:")
        lines += [f"  {question} ({', '.join(needs)})" for question, needs in seen.open.items()]
    return lines
