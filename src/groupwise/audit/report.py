"""What an audit found, as a table, as JSON, and as go or no-go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.markup import escape
from rich.table import Table

MAX_SHOWN_CHARS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The smallest input that shows a finding: Example(task_id="q7", prompt="...", completion="", reason="...")."""

    task_id: str
    prompt: str
    completion: str
    reason: str
    """The verdict's reason, or why the completion is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the table.

    Example:
        Finding(check="attack limit_trick", go=False, found="paid on 3 of 40 tasks", allowed="", example=None)
    """

    check: str
    go: bool
    found: str
    allowed: str = ""
    example: Example | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """Everything an audit found: AuditReport(findings=(...,), verifier_version="0f...", num_tasks=660, seconds=9.5)."""

    findings: tuple[Finding, ...]
    verifier_version: str
    num_tasks: int
    """Tasks that there are."""
    num_attacked: int
    """Tasks that were attacked."""
    seconds: float

    @property
    def go(self) -> bool:
        """True where nothing speaks against training with this verifier."""
        return all(finding.go for finding in self.findings)

    @property
    def no_gos(self) -> tuple[Finding, ...]:
        """What speaks against it."""
        return tuple(finding for finding in self.findings if not finding.go)

    def with_findings(self, more: Sequence[Finding]) -> AuditReport:
        """The same report with more lines."""
        return replace(self, findings=(*self.findings, *more))

    def as_json(self) -> dict[str, Any]:
        """Plain values for a file."""
        return {"go": self.go, **asdict(self)}

    def headline(self) -> str:
        """One sentence."""
        scope = f"{self.num_attacked} of {self.num_tasks} tasks attacked, {self.seconds:.1f} s"
        if self.go:
            return f"audit: GO ({scope})"
        return f"audit: NO-GO, {len(self.no_gos)} of {len(self.findings)} checks failed ({scope})"


def audit_table(findings: Sequence[Finding]) -> Table:
    """One row a finding; under a no-go the smallest input that shows it."""
    table = Table(show_edge=False, pad_edge=False)
    for name in ("check", "", "found", "allowed"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        found = escape(finding.found)
        if finding.example is not None:
            found += "".join(f"\n{line}" for line in map(escape, _lines(finding.example)))
        verdict = "[green]go[/green]" if finding.go else "[bold red]NO-GO[/bold red]"
        table.add_row(escape(finding.check), verdict, found, escape(finding.allowed))
    return table


def shown(text: str, max_chars: int = MAX_SHOWN_CHARS) -> str:
    """A text on one line, cut in the middle."""
    quoted = repr(text)
    half = max_chars // 2 - 2
    return quoted if len(quoted) <= max_chars else f"{quoted[:half]} ... {quoted[-half:]}"


def _lines(example: Example) -> list[str]:
    return [
        f"  task {example.task_id}: {shown(example.prompt)}",
        f"  completion: {shown(example.completion)}",
        f"  {example.reason[:MAX_SHOWN_CHARS]}",
    ]
