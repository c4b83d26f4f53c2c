"""A comparison for programs."""

from __future__ import annotations

from typing import Any

from groupwise.runs.comparison.compare import Comparison, PromptChange, RateComparison


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """All numbers of a comparison, for programs; texts of answers are left out."""

    def rates(found: RateComparison | None) -> dict[str, Any] | None:
        if found is None:
            return None
        return {
            "first_rate": found.first_rate,
            "second_rate": found.second_rate,
            "difference": found.difference.difference,
            "interval": [found.difference.interval.low, found.difference.interval.high],
            "bootstrap_interval": [found.bootstrap.low, found.bootstrap.high],
            "confidence": found.confidence,
            "num_prompts": found.difference.num_prompts,
            "test": found.test,
            "p_value": found.p_value,
            "mid_p": None if found.mcnemar is None else found.mcnemar.mid_p,
            "p_adjusted": found.p_adjusted,
            "is_distinguishable": found.is_distinguishable,
            "verdict": found.verdict,
            "regressions": [_change_json(p) for p in found.regressions],
            "improvements": [_change_json(p) for p in found.improvements],
        }

    return {
        "first": comparison.first,
        "second": comparison.second,
        "verdict": comparison.verdict,
        "variety": comparison.variety,
        "sampled": rates(comparison.sampled),
        "greedy": rates(comparison.greedy),
        "pass_at": [
            {
                "k": row.k,
                "first": row.first,
                "second": row.second,
                "difference": row.difference.difference,
                "interval": [row.difference.interval.low, row.difference.interval.high],
                "num_prompts": row.difference.num_prompts,
                "is_distinguishable": row.is_distinguishable,
            }
            for row in comparison.pass_at
        ],
        "lengths": [
            {
                "what": row.what,
                "first": row.first,
                "second": row.second,
                "difference": row.difference,
                "interval": [row.interval.low, row.interval.high],
                "num_prompts": row.num_prompts,
            }
            for row in comparison.lengths
        ],
        "only_first": list(comparison.only_first),
        "only_second": list(comparison.only_second),
        "warnings": list(comparison.warnings),
    }


def _change_json(change: PromptChange) -> dict[str, Any]:
    return {
        "task_id": change.task_id,
        "first": [change.first.solved, change.first.scored],
        "second": [change.second.solved, change.second.scored],
        "change": change.change,
    }
