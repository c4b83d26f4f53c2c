"""Which attacks fit a [verifier] section."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from groupwise.audit import Attack, AttackMaker
from groupwise.audit.attack import prompt_text
from groupwise.audit.attacks_classification import classification_attacks
from groupwise.audit.attacks_extraction import extraction_attacks
from groupwise.audit.attacks_math import math_attacks
from groupwise.audit.attacks_sql import MAX_ROWS, RunQuery, sql_attacks
from groupwise.audit.attacks_text import function_attacks, reward_model_attacks, text_attacks
from groupwise.audit.attacks_tools import tool_attacks
from groupwise.config import ComposeVerifierSection, SqlVerifierSection, VerifierSection
from groupwise.config.verifier import PartVerifierSection
from groupwise.config.verifier_classification import ClassificationVerifierSection
from groupwise.config.verifier_extraction import ExtractionVerifierSection
from groupwise.config.verifier_function import FunctionVerifierSection
from groupwise.config.verifier_math import MathVerifierSection
from groupwise.config.verifier_reward_model import RewardModelVerifierSection
from groupwise.config.verifier_tools import ToolsVerifierSection
from groupwise.sandbox import DuckdbSandbox, QuerySandbox, QueryStatus, Row, SqliteSandbox
from groupwise.types import Task

MAX_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackPlan:
    """What the audit tries: AttackPlan(attack=..., answer_keys=None, constants=("SELECT 1",), close=lambda: None)."""

    attack: AttackMaker
    answer_keys: Callable[[Task, str], str] | None = None
    constants: tuple[str, ...] = ()
    close: Callable[[], None] = lambda: None


def attack_plan(section: VerifierSection, folder: Path) -> AttackPlan:
    """The plan for a section; for a composition that of its first outcome part, whose golds it has."""
    if isinstance(section, ComposeVerifierSection):
        deciding = next(part for part in section.parts if part.role == "outcome")
        return attack_plan(deciding.verifier, folder)
    plan = _simple_plan(section, folder)

    def attack(task: Task, gold: str) -> list[Attack]:
        return [*plan.attack(task, gold), *text_attacks(task, gold)]

    return replace(plan, attack=attack)


def _simple_plan(section: PartVerifierSection, folder: Path) -> AttackPlan:
    if isinstance(section, SqlVerifierSection):
        return _sql_plan(section, folder)
    if isinstance(section, ClassificationVerifierSection):
        return _classification_plan(section)
    if isinstance(section, ToolsVerifierSection):
        return AttackPlan(attack=_tools_attacks(section), constants=("[]",))
    if isinstance(section, ExtractionVerifierSection):
        return AttackPlan(attack=extraction_attacks, constants=("{}", "null"))
    if isinstance(section, MathVerifierSection):
        return AttackPlan(attack=math_attacks, constants=("0", "#### 0", r"\boxed{1}"))
    if isinstance(section, FunctionVerifierSection):
        return AttackPlan(attack=function_attacks)
    if isinstance(section, RewardModelVerifierSection):
        return AttackPlan(attack=reward_model_attacks, constants=("I don't know.",))
    raise AssertionError(f"no attacks for {section}")


def _tools_attacks(section: ToolsVerifierSection) -> AttackMaker:
    columns = dict(section.columns)

    def attack(task: Task, gold: str) -> list[Attack]:
        given = task.columns.get(columns.get("effects", "effects"))
        simulated = section.match != "exact" and bool(given or section.world or section.functions)
        return tool_attacks(task, gold, simulated=simulated)

    return attack


def _classification_plan(section: ClassificationVerifierSection) -> AttackPlan:
    def attack(task: Task, gold: str) -> list[Attack]:
        labels = [str(label) for label in section.labels or task.columns[section.labels_column]]
        inputs = [str(task.columns[name]) for name in section.input_columns]
        return classification_attacks(
            task,
            gold,
            label=str(task.columns[section.label_column]),
            labels=labels,
            input_text="\n".join(inputs) or prompt_text(task),
            rationale=section.rationale == "required",
        )

    return AttackPlan(attack=attack, answer_keys=lambda task, gold: str(task.columns[section.label_column]))


def _sql_plan(section: SqlVerifierSection, folder: Path) -> AttackPlan:
    make_sandbox = DuckdbSandbox if section.snapshots[0].lower().endswith(".duckdb") else SqliteSandbox
    sandbox = make_sandbox(num_workers=1, time_limit_s=section.time_limit_s, memory_limit_mb=section.memory_limit_mb)

    def attack(task: Task, gold: str) -> list[Attack]:
        path = folder / section.snapshots[0].format(**task.columns)
        sql = str(task.columns[section.gold_column]).strip()
        fenced = gold.startswith("```")
        attacks = sql_attacks(task, sql, _runner(sandbox, path))
        return [_in_fence(one) for one in attacks] if fenced else attacks

    return AttackPlan(attack=attack, constants=("SELECT 1", "SELECT NULL WHERE 0"), close=sandbox.close)


def _runner(sandbox: QuerySandbox, path: Path) -> RunQuery:
    def run(sql: str) -> tuple[Row, ...] | None:
        for _ in range(MAX_TRIES):  # a machine that was busy must not mean fewer attacks
            outcome = sandbox.run(path, sql, max_rows=MAX_ROWS)
            if outcome.status not in (QueryStatus.TIMEOUT, QueryStatus.WORKER_FAILED):
                break
        return outcome.rows if outcome.status is QueryStatus.OK and not outcome.truncated else None

    return run


def _in_fence(attack: Attack) -> Attack:
    if "```" in attack.text:
        return attack
    text = f"```sql\n{attack.text}\n```"
    return Attack(name=attack.name, text=text, why=attack.why, may_pass=attack.may_pass)
