"""ledger.json: every training prompt's attempts in the stages that sample prompts, rewritten after each of them.

{"stages": {"grpo": {"train-0004": {"solved": 9, "scored": 16, "visits": 2, "state": "active", "last_step": 4}}}}
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from typing import Any

from groupwise.runs import RunDirectory, write_atomic
from groupwise.training.algorithm import Algorithm

_logger = logging.getLogger(__name__)

COLUMNS = ("solved", "scored", "visits", "state", "last_step")
"""What is kept of a prompt's row; curation.ledger.PromptRow tells what each means."""


def ledger_rows(algorithm: Algorithm) -> dict[str, dict[str, Any]]:
    """The prompts of an algorithm that samples them, by task id; empty for any other."""
    rows = algorithm.state().get("rows")
    if not isinstance(rows, Mapping):
        return {}
    return {task_id: {name: row[name] for name in COLUMNS} for task_id, row in rows.items()}


def write_ledger(directory: RunDirectory, stage_name: str, algorithm: Algorithm, finished: Collection[str]) -> None:
    """Adds a stage that has just ended to those that are finished. What the file holds of any other stage is of an
    attempt that a restart has set aside, and goes."""
    rows = ledger_rows(algorithm)
    if rows:
        stages = {name: kept for name, kept in _stages(directory).items() if name in finished}
        _write(directory, {**stages, stage_name: rows})


def keep_finished(directory: RunDirectory, finished: Collection[str]) -> None:
    """Leaves only finished stages in the file."""
    stages = _stages(directory)
    if stages.keys() - set(finished):
        _write(directory, {name: rows for name, rows in stages.items() if name in finished})


def _write(directory: RunDirectory, stages: Mapping[str, Any]) -> None:
    try:
        write_atomic(directory.ledger, json.dumps({"stages": stages}) + "\n")
    except OSError as error:  # recording never stops training
        _logger.warning("could not write %s (%s); training goes on", directory.ledger, error)


def _stages(directory: RunDirectory) -> dict[str, Any]:
    try:
        return dict(json.loads(directory.ledger.read_text(encoding="utf-8"))["stages"])
    except (OSError, ValueError, LookupError, TypeError):
        return {}
