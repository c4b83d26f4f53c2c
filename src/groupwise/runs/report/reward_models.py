"""Stages that train a reward model: they leave the policy as it was, so that their outcome is another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.pages import Cell, Table
from groupwise.runs.intervals import Interval
from groupwise.runs.record import RunRecord
from groupwise.runs.report.steps import number
from groupwise.runs.report.words import LEVEL, several, with_interval


def reward_model_stages(record: RunRecord) -> list[str]:
    """The names of the recipe's stages that train a reward model, and no policy."""
    return [str(stage.get("name")) for stage in record.stages if _method(stage) == "reward_model"]


def reward_models_sentence(record: RunRecord) -> str:
    """How often each prefers the right answer of a held-out pair; empty without such a stage."""
    parts = []
    events = {str(event.get("stage")): event for event in record.events_named("reward_model")}
    for stage in dict.fromkeys((*reward_model_stages(record), *events)):
        event = events.get(stage)
        if event is None or number(event.get("accuracy")) is None:
            parts.append(f"{stage} trains a reward model, which is not measured yet.")
            continue
        parts.append(
            f"{stage} trained a reward model: of {several(_pairs(event), 'held-out pair')} it prefers the chosen "
            f"answer in {_accuracy(event)} ({LEVEL} interval); a coin does in 50 %. The policy is as it was before."
        )
    return " ".join(parts)


def reward_models_table(record: RunRecord) -> Table | None:
    """Held-out accuracy, margin and calibration of each; None without one."""
    rows: list[tuple[Cell, ...]] = []
    for event in record.events_named("reward_model"):
        numbers = (number(event.get(name)) for name in ("margin", "calibration_error"))
        rows.append((str(event.get("stage")), _accuracy(event), _pairs(event), *numbers))
    columns = ("stage", "chosen preferred", "held-out pairs", "margin", "calibration error")
    caption = (
        f"Reward models on held-out pairs, accuracy with its {LEVEL} interval. Margin: mean score of the chosen minus "
        "the rejected answer; calibration error: how far certainty and accuracy are apart."
    )
    return Table(columns=columns, rows=tuple(rows), caption=caption) if rows else None


def _accuracy(event: Mapping[str, Any]) -> str:
    low, high = number(event.get("accuracy_low")), number(event.get("accuracy_high"))
    ends = None if low is None or high is None else Interval(low, high)
    return with_interval(number(event.get("accuracy")), ends)


def _pairs(event: Mapping[str, Any]) -> int:
    return int(number(event.get("num_heldout_pairs")) or 0)


def _method(stage: Mapping[str, Any]) -> Any:
    algorithm = stage.get("algorithm")
    return algorithm.get("name") if isinstance(algorithm, Mapping) else None
