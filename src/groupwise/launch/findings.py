"""What a look at the machine can find, and how it is shown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from rich.table import Table


class Standing(StrEnum):
    """What a finding means."""

    OK = "ok"
    NOTE = "note"
    """Something works less well, or a part that is not needed by everyone is missing."""
    PROBLEM = "problem"
    """Groupwise does not work without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Example:
        Finding(section="packages", name="duckdb", value="missing: SQL on DuckDB files", standing=Standing.NOTE,
                remedy="python -m pip install 'duckdb>=1.2'")
    """

    section: str
    name: str
    value: str
    standing: Standing = Standing.OK
    remedy: str = ""
    """The command, or the one sentence, that mends it; empty where nothing is to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything that was found, in the order in which it is shown."""

    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """True where nothing essential is missing."""
        return all(finding.standing is not Standing.PROBLEM for finding in self.findings)

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        return {"healthy": self.healthy, "findings": [asdict(finding) for finding in self.findings]}


def findings_table(diagnosis: Diagnosis) -> Table:
    """One row a finding, and below it the command that mends it."""
    table = Table(title="Groupwise doctor")
    for name in ("", "what", "found"):
        table.add_column(name, overflow="fold")
    colours = {Standing.OK: "green", Standing.NOTE: "yellow", Standing.PROBLEM: "bold red"}
    previous = ""
    for finding in diagnosis.findings:
        if previous and finding.section != previous:
            table.add_section()
        previous = finding.section
        found = _escaped(finding.value) + (f"\n  -> {_escaped(finding.remedy)}" if finding.remedy else "")
        mark = f"[{colours[finding.standing]}]{finding.standing.value}[/]"
        table.add_row(mark, f"{finding.section}: {_escaped(finding.name)}", found)
    return table


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
