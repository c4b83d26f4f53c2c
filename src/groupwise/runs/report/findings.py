"""What the diagnosis found, as it stands in a report: evidence, and the setting to change."""

from __future__ import annotations

import json

from groupwise.errors import DataError
from groupwise.pages import Notice, Section
from groupwise.runs.diagnosis.diagnose import coverage, diagnose
from groupwise.runs.diagnosis.finding import Finding
from groupwise.runs.record import RunRecord
from groupwise.runs.report.words import several


def findings_of(record: RunRecord) -> tuple[Finding, ...] | None:
    """What is wrong with the run, by today's rules, or as it wrote itself where they fail; None where neither works."""
    try:
        return diagnose(record)
    except (DataError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError):  # odd values in a torn record
        return _written(record)


def worst_sentence(found: tuple[Finding, ...] | None) -> str:
    """The worst problem for the top of a page; empty without one."""
    worst = next((finding for finding in found or () if finding.severity == "problem"), None)
    return "" if worst is None else f"Problem: {worst.title}"


def findings_section(record: RunRecord, found: tuple[Finding, ...] | None) -> Section:
    """The findings, with the setting to change; nothing found is said as well."""
    heading = "Diagnosis"
    if found is None:
        return Section(heading=heading, text=("The diagnosis could not read what this run wrote.",))
    seen = coverage(record)
    unseen = f"Not looked at, because the run did not record it: {'; '.join(seen.open)}." if seen.open else ""
    if not found:
        looked = f"Looked at: {'; '.join(seen.asked) or 'nothing, the record is empty'}."
        good = Notice(title="Nothing wrong was found", text=tuple(filter(None, (looked, unseen))), tone="good")
        return Section(heading=heading, notices=(good,))
    notices = tuple(finding_notice(finding) for finding in found)
    problems = sum(finding.severity == "problem" for finding in found)
    text = f"{several(problems, 'problem')}, {several(len(found) - problems, 'warning')}; the most important first."
    return Section(heading=heading, text=tuple(filter(None, (text, unseen))), notices=notices)


def finding_notice(finding: Finding, prefix: str = "") -> Notice:
    """A finding as it stands on a page; prefix names the run where there are several."""
    where = f" in {finding.stage}" if finding.stage else ""
    where += f", step {finding.step}" if finding.step is not None else ""
    return Notice(
        title=f"{prefix}{finding.severity.capitalize()}{where}: {finding.title}",
        text=tuple(
            filter(
                None,
                (
                    finding.evidence[:1].upper() + finding.evidence[1:],
                    f"What to change: {finding.change}" if finding.change else "",
                ),
            )
        ),
        tone="problem" if finding.severity == "problem" else "warning",
    )


def _written(record: RunRecord) -> tuple[Finding, ...] | None:
    """The findings of diagnosis.json, which the run wrote itself; None where they cannot be read."""
    try:
        rows = json.loads(record.directory.diagnosis.read_text(encoding="utf-8"))["findings"]
        return tuple(Finding(**row) for row in rows)
    except (OSError, ValueError, KeyError, TypeError):
        return None
