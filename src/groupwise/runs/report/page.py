"""The page of one run: what it achieved, what is wrong with it, and everything behind that, for people.

Everything is read from a RunRecord. A run that is still going on, that died, or that an older version made has a page,
too: what is missing is left out or named. The order is that of a reader's questions: was it worth it, can I believe it,
what happened, what do I change. `several.several_page` puts runs beside each other.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.pages import Fact, Page, render_page
from groupwise.runs.record import RunRecord
from groupwise.runs.report.curves import curves_section
from groupwise.runs.report.evaluations import evaluations_of
from groupwise.runs.report.findings import findings_of, findings_section, worst_sentence
from groupwise.runs.report.groups import groups_section
from groupwise.runs.report.hacking import hacking_section
from groupwise.runs.report.held_back import held_back_fact, held_back_of
from groupwise.runs.report.lengths import lengths_section
from groupwise.runs.report.outcome import outcome_facts, outcome_section, variety_of, verdict
from groupwise.runs.report.plan import actual_seconds, plan_section
from groupwise.runs.report.prompts import prompts_section
from groupwise.runs.report.reward_models import reward_model_stages, reward_models_sentence
from groupwise.runs.report.rollouts import digest_of
from groupwise.runs.report.settings import audit_section, settings_section
from groupwise.runs.report.several import several_page
from groupwise.runs.report.steps import Steps, number, steps_of
from groupwise.runs.report.words import listed, seconds


def report_page(records: Sequence[RunRecord], command: str = "") -> str:
    """The HTML of one run, or of several beside each other; command is what makes the page again.

    Raises:
        ValueError: without a run.
    """
    if not records:
        raise ValueError("report_page: give one run or more")
    command = command or shlex.join(["groupwise", "report", *(str(r.directory.path) for r in records)])
    return render_page(run_page(records[0], command) if len(records) == 1 else several_page(records, command))


def run_page(record: RunRecord, command: str) -> Page:
    """The page of one run as a record."""
    steps, evaluations, digest = steps_of(record), evaluations_of(record), digest_of(record)
    found = findings_of(record)
    state, is_finished = state_of(record)
    sections = (
        outcome_section(record, evaluations, steps),
        findings_section(record, found),
        curves_section(steps),
        prompts_section(record, digest),
        lengths_section(record, steps, digest, evaluations),
        hacking_section(record),
        plan_section(record),
        groups_section(record, digest),
        audit_section(record),
        settings_section(record, command),
    )
    held = held_back_of(record, evaluations)
    told = (
        verdict(evaluations, held, reward_model_stages(record)),
        variety_of(evaluations),
        reward_models_sentence(record),
    )
    lead = " ".join(filter(None, (*told, worst_sentence(found), state)))
    facts = (
        *outcome_facts(evaluations),
        *held_back_fact(held),
        Fact(label="steps", value=len(steps.rows), note="" if is_finished else "not finished"),
        Fact(label="time", value=seconds(_wall(record, steps)), note=_device(record)),
    )
    version = (record.environment.get("versions") or {}).get("groupwise", "")
    footer = f"Made by groupwise report from {record.directory.path}" + (f", a run of {version}." if version else ".")
    return Page(title=f"Run {record.name}", lead=lead, sections=sections, facts=facts, footer=footer)


def state_of(record: RunRecord) -> tuple[str, bool]:
    """(a sentence, whether all stages are done). A run that is written to and one that died look alike from outside."""
    planned = [str(stage.get("name")) for stage in record.stages]
    if record.log is not None:
        done = {entry.name for entry in record.log.finished}
    elif record.summary is not None:
        done = {stage.name for stage in record.summary.stages}
    else:
        done = set()
    left = [name for name in planned if name not in done]
    torn = f" {' '.join(record.unreadable)}" if record.unreadable else ""
    if planned and not left:
        return f"All stages are finished: {listed(planned)}.{torn}", True
    if not planned:
        return f"The recipe cannot be read, so that nobody knows how much was left to do.{torn}", False
    done_steps = [row.get("step") for row in record.steps(left[0])]
    of = next((stage.get("steps") for stage in record.stages if stage.get("name") == left[0]), None)
    reached = f" at step {max(n for n in done_steps if isinstance(n, int))}" if done_steps else ""
    steps = f" of {of}" if reached and of else ""
    return f"Not finished: {left[0]}{reached}{steps} is under way, or the run ended there.{torn}", False


def _wall(record: RunRecord, steps: Steps) -> float:
    """Seconds from the first to the last thing written where the run says so, else of its steps and evaluations."""
    spent = number(steps.rows[-1].row.get("spent_seconds")) if steps.rows else None
    return spent if spent is not None else actual_seconds(record)


def _device(record: RunRecord) -> str:
    model: Mapping[str, Any] = record.recipe.get("model") or {}
    device = record.environment.get("device") or model.get("device") or ""
    dtype = record.environment.get("dtype") or model.get("dtype") or ""
    return ", ".join(str(part) for part in (device, dtype) if part and part != "auto")
