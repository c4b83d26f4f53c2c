"""A curation on disk: a ledger with one row a prompt, and beside it what the counts were measured with.

    ledger.jsonl    {"id": "train-0017", "kept": true, "reason": "kept", "solved": 3, "scored": 8, "mean": 0.35, ...}
    ledger.json     identity (model, verifier, sampling), settings, the fitted prior, counts by reason, lengths

Counts of one model say nothing about another. A ledger is therefore only gone on with, or read for training, where the
model, the verifier and the sampling are the ones that it names. Both files are replaced as a whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from groupwise.curation.decision import BEFORE_SAMPLING, CuratedRow, Curation, Decision, Exclusion, Reason
from groupwise.curation.prior import BetaPrior
from groupwise.errors import DataError
from groupwise.runs import write_atomic

FORMAT = 1
LEDGER = "ledger.jsonl"
"""The name that `groupwise curate` gives a ledger."""
_COUNTS = (
    "solved",
    "scored",
    "num_samples",
    "prompt_tokens",
    "completion_tokens",
    "scored_tokens",
    "solved_tokens",
    "longest_tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What counts depend on: equal identities, counts that may be added up.

    Example:
        Identity(model="owner/model", weights="2f6e...", verifier="9c1d...", sampling={"temperature": 1.0})
    """

    model: str
    """Name of the model, for the reader; two names may stand for the same weights."""
    weights: str
    """Hash of the weights."""
    verifier: str
    """The verifier's version."""
    sampling: Mapping[str, Any]
    """How completions were drawn."""
    seed: int = 0
    """Seed of the first call, for the reader: other seeds give other completions that count as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFile:
    """A ledger as it was read."""

    path: Path
    identity: Identity
    rows: tuple[CuratedRow, ...]
    decisions: tuple[Decision, ...]
    """What was decided under the settings of the call that wrote it; decisions[i] belongs to rows[i]."""
    prior: BetaPrior
    summary: Mapping[str, Any]
    """The whole of ledger.json."""


def write_ledger(
    path: Path, curation: Curation, identity: Identity, more: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """Writes path (.jsonl) and its summary (.json), and returns that summary; `more` goes into it.

    Raises:
        DataError: if the disk refuses.
    """
    decisions, prior = curation.decisions(), curation.prior
    lines = [
        json.dumps(ledger_row(row, decision, prior)) for row, decision in zip(curation.rows, decisions, strict=True)
    ]
    values = {
        "format": FORMAT,
        "identity": {
            "model": identity.model,
            "weights": identity.weights,
            "verifier": identity.verifier,
            "sampling": dict(identity.sampling),
            "seed": identity.seed,
        },
        "settings": {
            "samples_per_prompt": curation.options.samples_per_prompt,
            "max_samples_per_prompt": curation.options.max_samples_per_prompt,
            "budget": curation.options.budget,
            "hopeless_below": curation.options.rule.hopeless_below,
            "solved_above": curation.options.rule.solved_above,
            "confidence": curation.options.rule.confidence,
        },
        "prior": {"alpha": prior.alpha, "beta": prior.beta},
        "num_prompts": len(curation.rows),
        "num_samples": curation.num_samples,
        "reasons": {
            reason: count for reason in map(str, Reason) if (count := Counter(str(d.reason) for d in decisions)[reason])
        },
        **lengths(curation.rows),
        **(more or {}),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(summary_path(path), json.dumps(values, indent=1))  # first: without it the rows cannot be read
        write_atomic(path, "".join(line + "\n" for line in lines))
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error}); choose a writable folder") from error
    return values


def ledger_row(row: CuratedRow, decision: Decision, prior: BetaPrior) -> dict[str, Any]:
    """One row as JSON: what was decided first, then the posterior, then the counts."""
    posterior: dict[str, Any] = {"mean": None, "low": None, "high": None}
    if row.scored:
        posterior = dict(zip(posterior, _posterior(row.solved, row.scored, prior.alpha, prior.beta), strict=True))
    return {
        "id": row.id,
        "kept": decision.reason is Reason.KEPT,
        "reason": str(decision.reason),
        "detail": decision.detail,
        "notes": list(row.notes),
        **posterior,
        **{name: getattr(row, name) for name in _COUNTS},
        "key": row.key,
    }


@cache
def _posterior(solved: int, scored: int, alpha: float, beta: float) -> tuple[float, float, float]:
    """Mean and 95 % interval; ten thousand prompts have a few dozen different counts."""
    rate = BetaPrior(alpha=alpha, beta=beta).posterior(solved=solved, scored=scored)
    low, high = rate.interval(0.95)
    return round(rate.mean, 6), round(low, 6), round(high, 6)


def lengths(rows: Sequence[CuratedRow]) -> dict[str, float | None]:
    """Lengths in tokens of prompts and completions, for planning. None where nothing is known.

    num_prompt_tokens_mean is over prompts; completion means are over completions, all, right or wrong ones.
    completion_tokens_longest_mean_of_group is the mean over prompts of the longest completion of the first visit,
    completion_tokens_longest the longest of these.
    """
    sampled = [row for row in rows if row.num_samples]

    def mean(total: float, count: int) -> float | None:
        return round(total / count, 3) if count else None

    scored, solved = sum(row.scored for row in sampled), sum(row.solved for row in sampled)
    solved_tokens = sum(row.solved_tokens for row in sampled)
    return {
        "num_prompt_tokens_mean": mean(sum(row.prompt_tokens for row in sampled), len(sampled)),
        "completion_tokens_mean": mean(
            sum(row.completion_tokens for row in sampled), sum(row.num_samples for row in sampled)
        ),
        "completion_tokens_mean_right": mean(solved_tokens, solved),
        "completion_tokens_mean_wrong": mean(
            sum(row.scored_tokens for row in sampled) - solved_tokens, scored - solved
        ),
        "completion_tokens_longest_mean_of_group": mean(sum(row.longest_tokens for row in sampled), len(sampled)),
        "completion_tokens_longest": max((row.longest_tokens for row in sampled), default=None),
    }


def read_ledger(path: Path) -> LedgerFile:
    """A ledger that write_ledger wrote: its .jsonl file, or the folder that holds it as ledger.jsonl.

    Raises:
        DataError: no such file, no summary beside it, or not what write_ledger writes.
    """
    path = path / LEDGER if path.is_dir() else path
    try:
        summary = json.loads(summary_path(path).read_text(encoding="utf-8"))
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(
            f"{error.filename} cannot be read ({error.strerror}); a ledger is made by `groupwise curate`, as "
            f"ledger.jsonl with {summary_path(path).name} beside it"
        ) from error
    except ValueError as error:
        raise _unreadable(summary_path(path), error) from error
    try:
        if summary["format"] != FORMAT:
            raise ValueError(f"its format is {summary['format']}, this version reads {FORMAT}")
        identity, prior = Identity(**summary["identity"]), BetaPrior(**summary["prior"])
        pairs = [_read_row(json.loads(line)) for line in lines]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, error) from error
    return LedgerFile(
        path=path,
        identity=identity,
        rows=tuple(row for row, _ in pairs),
        decisions=tuple(decision for _, decision in pairs),
        prior=prior,
        summary=summary,
    )


def _read_row(values: Mapping[str, Any]) -> tuple[CuratedRow, Decision]:
    decision = Decision(reason=Reason(values["reason"]), detail=values["detail"])
    before_sampling = decision.reason in BEFORE_SAMPLING
    row = CuratedRow(
        id=values["id"],
        key=values["key"],
        **{name: int(values[name]) for name in _COUNTS},
        excluded=Exclusion(reason=decision.reason, detail=decision.detail) if before_sampling else None,
        notes=tuple(values["notes"]),
    )
    if not 0 <= row.solved <= row.scored <= row.num_samples:
        raise ValueError(f"{row.id!r} has counts that cannot be: {row.solved} of {row.scored} of {row.num_samples}")
    return row, decision


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} is not a ledger that can be read ({type(error).__name__}: {error}); "
        "run `groupwise curate` again with another --out, or remove it"
    )


def summary_path(path: Path) -> Path:
    """The .json beside a .jsonl."""
    return path.with_suffix(".json")


def refuse_foreign(ledger: LedgerFile, identity: Identity, advice: str) -> None:
    """Stops where the counts were measured with something else than what is there now; `advice` says what to do.

    Raises:
        DataError: with what differs.
    """
    then = ledger.identity
    differences = []
    if then.weights != identity.weights:
        names = "" if then.model == identity.model else f" (then {then.model}, now {identity.model})"
        differences.append(f"with other weights{names}")
    if then.verifier != identity.verifier:
        differences.append(
            f"with another verifier or other snapshots (version {then.verifier}, now {identity.verifier})"
        )
    for name in sorted({*then.sampling, *identity.sampling}):
        before, now = then.sampling.get(name), identity.sampling.get(name)
        if before != now:
            differences.append(f"with rollout.{name} = {before}, now {now}")
    if differences:
        what = "\n".join(f"  - {difference}" for difference in differences)
        raise DataError(f"{ledger.path} was measured\n{what}\n  so its counts do not hold here. {advice}")
