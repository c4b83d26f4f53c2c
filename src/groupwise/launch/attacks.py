"""Which attacks fit a [verifier] section."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from groupwise.audit import Attack, AttackMaker
from groupwise.audit.attacks_sql import MAX_ROWS, RunQuery, sql_attacks
from groupwise.config import ComposeVerifierSection, SqlVerifierSection, VerifierSection
from groupwise.config.verifier import PartVerifierSection
from groupwise.sandbox import QueryStatus, Row, SqliteSandbox
from groupwise.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackPlan:
    """What the audit tries: AttackPlan(attack=..., answer_keys=None, constants=("SELECT 1",), close=lambda: None)."""

    attack: AttackMaker
    answer_keys: Callable[[Task, str], str] | None = None
    constants: tuple[str, ...] = ()
    close: Callable[[], None] = lambda: None


def attack_plan(section: VerifierSection, folder: Path, tasks: Sequence[Task]) -> AttackPlan:
    """The plan for a section; for a composition that of its first outcome part, whose golds it has."""
    if isinstance(section, ComposeVerifierSection):
        deciding = next(part for part in section.parts if part.role == "outcome")
        return attack_plan(deciding.verifier, folder, tasks)
    return _simple_plan(section, folder, tasks)


def _simple_plan(section: PartVerifierSection, folder: Path, tasks: Sequence[Task]) -> AttackPlan:
    return _sql_plan(section, folder)


def _sql_plan(section: SqlVerifierSection, folder: Path) -> AttackPlan:
    sandbox = SqliteSandbox(num_workers=1, time_limit_s=section.time_limit_s, memory_limit_mb=section.memory_limit_mb)

    def attack(task: Task, gold: str) -> list[Attack]:
        path = folder / section.snapshots[0].format(**task.columns)
        sql = str(task.columns[section.gold_column]).strip()
        fenced = gold.startswith("```")
        attacks = sql_attacks(task, sql, _runner(sandbox, path))
        return [_in_fence(one) for one in attacks] if fenced else attacks

    return AttackPlan(attack=attack, constants=("SELECT 1", "SELECT NULL WHERE 0"), close=sandbox.close)


def _runner(sandbox: SqliteSandbox, path: Path) -> RunQuery:
    def run(sql: str) -> tuple[Row, ...] | None:
        outcome = sandbox.run(path, sql, max_rows=MAX_ROWS)
        return outcome.rows if outcome.status is QueryStatus.OK and not outcome.truncated else None

    return run


def _in_fence(attack: Attack) -> Attack:
    if "```" in attack.text:
        return attack
    text = f"```sql\n{attack.text}\n```"
    return Attack(name=attack.name, text=text, why=attack.why, may_pass=attack.may_pass)
