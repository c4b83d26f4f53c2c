"""One evaluation as it lies on disk, prompt by prompt: of a run, or of a folder that `groupwise eval --out` wrote.

    runs/shop-sql-20260901-143012          the last evaluation of a run
    runs/shop-sql-20260901-143012:base     the one of that name; a name ends where the last stage or step of it is
    results/sft                            the newest evaluation in a folder of `groupwise eval --out`

`compare` reads two of these. A prompt is known by its task id, so both sides need the same data set, not the same run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.runs.record import EVALUATION, GREEDY, RecordedRollout, RunRecord, read_run

EVALUATED = "evaluation"
"""The event that every evaluation writes."""
_STAMP = re.compile(r"-\d{8}-\d{6}")
"""The date in the name of a run folder; a second run of the same second has a number behind it, which stays."""
_SETTINGS = ("success", "temperature", "top_p", "verifier_version", "max_completion_tokens", "samples_per_prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One completion: Answer(text="SELECT 1", outcome=False, num_tokens=3, stop="end", reason="wrong_rows")."""

    text: str
    outcome: bool | None
    """None = unscored."""
    num_tokens: int | None = None
    """None where nobody counted."""
    stop: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """What one prompt's attempts came to.

    Example:
        Attempts(solved=3, scored=4, answers=(Answer(...), ...))
    """

    solved: int
    scored: int
    """Attempts that the verifier could judge; the others are in neither number."""
    answers: tuple[Answer, ...] = ()
    """Empty where only counts were kept."""

    @property
    def rate(self) -> float:
        """Share solved; only for scored > 0."""
        return self.solved / self.scored


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """What the held-out prompts showed of one set of weights.

    Example:
        record = evaluation_of("runs/shop-sql-20260901-143012:sft")
        record.sampled["heldout-0004"].rate        # 0.75
    """

    label: str
    """Names it beside others, such as "shop-sql-20260901-143012 sft"."""
    source: str = ""
    """The name of the run folder, or of the folder of results."""
    name: str = ""
    """Of the evaluation, such as sft."""
    sampled: Mapping[str, Attempts]
    """By task id; prompts without a scored attempt are left out."""
    greedy: Mapping[str, Attempts]
    settings: Mapping[str, Any]
    """Of what decides a rate: success, temperature, top_p, verifier_version, ...; what nobody wrote down is missing."""
    num_unscored: int = 0
    """Attempts, sampled and greedy, that the verifier could not judge."""
    prompts: Mapping[str, str] | None = None
    """The prompt's text by task id, where it was kept."""


def evaluation_of(place: str | Path) -> EvaluationRecord:
    """Reads RUN, RUN:NAME, or a folder of `groupwise eval --out`.

    Raises:
        DataError: if there is no such folder or evaluation, or it cannot be read.
    """
    text = str(place)
    folder, name = (text, "") if Path(text).exists() else _split(text)
    path = Path(folder)
    if not path.is_dir():
        raise DataError(
            f"{folder!r} is no folder; give a run folder, RUN:NAME for one evaluation of it, "
            "or a folder that `groupwise eval --out` wrote"
        )
    found = sorted(path.glob("results_*.json"))
    if found and not name:
        return _of_results(found[-1])
    return evaluation_of_run(read_run(path), name or None)


def evaluation_of_run(record: RunRecord, name: str | None = None) -> EvaluationRecord:
    """The last evaluation of a run, or the last one of that name.

    Raises:
        DataError: if the run has none, or its rollouts cannot be read.
    """
    events = record.events_named(EVALUATED)
    chosen = [event for event in events if name is None or event.get("name") == name]
    if not chosen:
        names = list(dict.fromkeys(str(event.get("name")) for event in events))
        raise DataError(
            f"{record.name}: there is no evaluation {name!r}; it has {', '.join(names)}"
            if names and name is not None
            else f"{record.name}: no evaluation is finished yet; wait for one, or run `groupwise eval`"
        )
    event = chosen[-1]
    stage = EVALUATION + str(event["name"]).replace(" ", "-")
    version = int(event.get("policy_version") or 0)
    sampled, greedy = record.rollouts(stage, version), record.rollouts(stage + GREEDY, version)
    evaluation: Mapping[str, Any] = record.recipe.get("evaluation", {})
    samples = int(event.get("samples_per_prompt") or evaluation.get("samples_per_prompt") or 1)
    known = {
        "verifier_version": record.environment.get("verifier_version"),
        "max_completion_tokens": record.recipe.get("rollout", {}).get("max_completion_tokens"),
        "samples_per_prompt": samples,
        **event,
    }
    return _record(
        record.name,
        str(event["name"]),
        known,
        _by_task(sampled) or _counted(event.get("solved"), event.get("scored"), samples),
        _by_task(greedy) or _counted(event.get("greedy_solved"), event.get("greedy_scored"), 1),
        {row.task_id: row.prompt for row in [*sampled, *greedy] if row.prompt},
    )


def evaluation_names(record: RunRecord) -> list[str]:
    """The names of a run's evaluations in the order in which they were first made."""
    return list(dict.fromkeys(str(event["name"]) for event in record.events_named(EVALUATED) if "name" in event))


def with_short_labels(records: Sequence[EvaluationRecord]) -> list[EvaluationRecord]:
    """The same records with the shortest labels that tell them apart: the evaluation's name, or the run's without its
    date beside it, or all of it."""
    for shorten in (lambda r: r.name, lambda r: f"{_STAMP.sub('', r.source)} {r.name}".strip()):
        labels = [shorten(record) for record in records]
        if all(labels) and len(set(labels)) == len(labels):
            return [replace(record, label=label) for record, label in zip(records, labels, strict=True)]
    return list(records)


def _split(text: str) -> tuple[str, str]:
    folder, colon, name = text.rpartition(":")
    return (folder, name) if colon and folder else (text, "")


def _record(
    source: str,
    name: str,
    known: Mapping[str, Any],
    sampled: Mapping[str, Attempts],
    greedy: Mapping[str, Attempts],
    prompts: Mapping[str, str],
) -> EvaluationRecord:
    unscored = sum(answer.outcome is None for side in (sampled, greedy) for a in side.values() for answer in a.answers)
    return EvaluationRecord(
        label=f"{source} {name}".strip(),
        source=source,
        name=name,
        sampled={task: a for task, a in sampled.items() if a.scored},
        greedy={task: a for task, a in greedy.items() if a.scored},
        settings={name: known[name] for name in _SETTINGS if known.get(name) is not None},
        num_unscored=unscored,
        prompts=prompts,
    )


def _by_task(rows: Sequence[RecordedRollout]) -> dict[str, Attempts]:
    answers: dict[str, list[Answer]] = {}
    for row in rows:
        answer = Answer(text=row.text, outcome=row.outcome, num_tokens=row.num_tokens, stop=row.stop, reason=row.reason)
        answers.setdefault(row.task_id, []).append(answer)
    return {task: _attempts(found) for task, found in answers.items()}


def _attempts(answers: Iterable[Answer]) -> Attempts:
    kept = tuple(answers)
    outcomes = [a.outcome for a in kept if a.outcome is not None]
    return Attempts(solved=sum(outcomes), scored=len(outcomes), answers=kept)


def _counted(solved: Mapping[str, int] | None, scored: Mapping[str, int] | None, samples: int) -> dict[str, Attempts]:
    """From the counts of an event. An older one does not say how many were scored: then it was all of them."""
    return {
        task: Attempts(solved=int(num), scored=int((scored or {}).get(task, samples)))
        for task, num in (solved or {}).items()
    }


def _of_results(path: Path) -> EvaluationRecord:
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        own = dict(results["groupwise"])
        own.setdefault("max_completion_tokens", results.get("config", {}).get("gen_kwargs", {}).get("max_gen_toks"))
        samples = path.with_name(Path(own["samples_file"]).name)
        # split, not splitlines: a text may hold other characters that end a line
        lines = [json.loads(line) for line in samples.read_text(encoding="utf-8").split("\n") if line]
        sampled, greedy, prompts = {}, {}, {}
        for line in lines:
            task = str(line["task_id"])
            if line["outcomes"]:
                sampled[task] = _attempts(_sampled_answers(line))
            if line.get("greedy_resp") is not None:
                greedy[task] = _attempts([Answer(text=line["greedy_resp"], outcome=line["greedy_outcome"])])
            prompts[task] = str(line["arguments"]["gen_args_0"]["arg_0"])
        source, name = path.parent.resolve().name, str(own.get("name") or "")
        return _record(source, name, own, sampled, greedy, {task: text for task, text in prompts.items() if text})
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}: {error}); expected what `groupwise eval --out` writes, "
            "with its samples file beside it"
        ) from error


def _sampled_answers(line: Mapping[str, Any]) -> Iterable[Answer]:
    texts, outcomes = line["resps"][0], line["outcomes"]

    def column(name: str, missing: Any) -> Sequence[Any]:
        return line.get(name) or [missing] * len(outcomes)

    rows = zip(texts, outcomes, column("num_tokens", None), column("stops", ""), column("reasons", ""), strict=True)
    return [
        Answer(text=text, outcome=outcome, num_tokens=tokens, stop=stop or "", reason=reason or "")
        for text, outcome, tokens, stop, reason in rows
    ]
