"""Verdicts for given texts: a file of completions, judged by a recipe's verifier. No model, no tensor library.

in    {"id": "q17", "completion": "SELECT 1"}                                  a task of the recipe
      {"id": "q17", "completion": "SELECT 1", "columns": {"gold": "..."}}      a task of its own
out   {"id": "q17", "status": "scored", "reward": 0.0, "outcome": false, "reason": "...", "checks": [...]}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from groupwise.audit.checks import Judged, labelled_findings
from groupwise.audit.report import Finding
from groupwise.config import ScoringRecipe
from groupwise.data import load_tasks
from groupwise.errors import DataError
from groupwise.launch.verifiers import build_verifier
from groupwise.types import Task, Verdict, Verifier
from groupwise.verifiers.classification_monitor import judge_report, label_collapse
from groupwise.verifiers.judging import judge_pairs

MAX_SHOWN_PROBLEMS = 5
_KEYS = frozenset({"id", "completion", "columns", "prompt"})


@dataclass(slots=True)
class ScoreCounts:
    """What was judged: ScoreCounts(num_completions=3, num_solved=1, statuses={"scored": 3}, reasons={...})."""

    num_completions: int = 0
    num_solved: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """By the first word of the reason."""
    labels: list[tuple[str, str]] = field(default_factory=list)
    """(given, right) of every verdict on a label."""
    judged: list[Verdict] = field(default_factory=list)
    """Verdicts that asked a language model, or tried to."""

    def add(self, verdict: Verdict) -> None:
        """Counts one more."""
        self.num_completions += 1
        self.num_solved += verdict.outcome is True
        self.statuses[verdict.status.value] += 1
        self.reasons[reason_word(verdict)] += 1
        self.labels += [(check.found, check.expected) for check in verdict.checks if check.name == "wrong_label"]
        if reason_word(verdict) == "judge_failed" or any(check.name == "judge" for check in verdict.checks):
            self.judged.append(verdict)

    def lines(self) -> list[str]:
        """The summary for a reader."""
        statuses = ", ".join(f"{name} {count}" for name, count in sorted(self.statuses.items()))
        reasons = ", ".join(f"{name} {count}" for name, count in self.reasons.most_common(8))
        shown = [f"{self.num_completions} completions, {self.num_solved} solved ({statuses})", f"reasons: {reasons}"]
        collapse = label_collapse([given for given, _ in self.labels], [right for _, right in self.labels])
        if collapse.collapsed:
            shown.append(
                f"label collapse: {collapse.label!r} is {collapse.given_frac:.0%} of the labels given and "
                f"{collapse.gold_frac:.0%} of the right ones"
            )
        if self.judged:
            report = judge_report(self.judged)
            shown.append(
                f"judge: asked {report.num_asked} times, disagreed {report.disagreement_frac:.0%}, "
                f"unclear {report.num_unclear}, failed {report.num_failed}"
            )
        return shown


def score_file(recipe: ScoringRecipe, completions: TextIO, name: str) -> Iterator[tuple[str, Verdict]]:
    """(task id, verdict) of every line, in the order of the file; `name` is the file's name in messages.

    Every line is read and checked before the first is judged.

    Raises:
        DataError: lines that cannot be used, each with its number.
        GroupwiseError: for tasks or a verifier that cannot be used.
    """
    pairs = read_completions(recipe, completions, name)
    verifier = build_verifier(recipe)
    try:
        for (task, _), verdict in zip(pairs, judge_pairs(verifier, pairs), strict=True):
            yield task.id, verdict
    finally:
        verifier.close()


def verdict_line(task_id: str, verdict: Verdict) -> str:
    """One verdict as one line of JSON; `parts` only where there are any."""
    values: dict[str, Any] = {
        "id": task_id,
        "status": verdict.status.value,
        "reward": verdict.reward,
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "checks": [asdict(check) for check in verdict.checks],
    }
    if verdict.parts:
        values["parts"] = dict(verdict.parts)
    return json.dumps(values)  # ASCII, so that no character of a completion can break a line


def reason_word(verdict: Verdict) -> str:
    """The stable word at the start of a reason."""
    return verdict.reason.split(" ")[0].rstrip(":") or "no_reason"


def judged_labels(
    recipe: ScoringRecipe, verifier: Verifier, labelled: TextIO, name: str, *, max_share: float
) -> list[Finding]:
    """Error rates of a verifier on completions that a person has labelled: score's lines with "correct": true or false.

    Raises:
        DataError: lines that cannot be used, each with its number.
    """
    rows = read_rows(recipe, labelled, name, label="correct")
    verdicts = judge_pairs(verifier, [(task, row["completion"]) for task, row in rows])
    judged = [
        (Judged(task=task, text=row["completion"], verdict=verdict), row["correct"])
        for (task, row), verdict in zip(rows, verdicts, strict=True)
    ]
    return labelled_findings(judged, max_share=max_share)


def read_completions(recipe: ScoringRecipe, completions: TextIO, name: str) -> list[tuple[Task, str]]:
    """(task, completion text) of every line; the recipe's tasks are read where some line needs them.

    Raises:
        DataError: lines that cannot be used, each with its number; no line at all.
    """
    return [(task, row["completion"]) for task, row in read_rows(recipe, completions, name)]


def read_rows(
    recipe: ScoringRecipe, completions: TextIO, name: str, label: str | None = None
) -> list[tuple[Task, Mapping[str, Any]]]:
    """(task, row) of every line; each row must have true or false under `label`, where one is named.

    Raises:
        DataError: lines that cannot be used, each with its number; no line at all.
    """
    rows: list[tuple[int, Mapping[str, Any]]] = []
    problems: list[str] = []
    for number, line in enumerate(_lines(completions, name), start=1):
        if line.strip():
            row = _row(line, label)
            if isinstance(row, str):
                problems.append(f"{name}:{number}: {row}")
            else:
                rows.append((number, row))
    known: dict[str, Task] = {}
    if any("columns" not in row for _, row in rows) and recipe.data is not None and not problems:
        known = _tasks_by_id(recipe)
    pairs = []
    for number, row in rows:
        task = _task(row, known, recipe)
        if isinstance(task, str):
            problems.append(f"{name}:{number}: {task}")
        else:
            pairs.append((task, row))
    if problems:
        raise DataError(_listed(problems))
    if not pairs:
        raise DataError(f'{name} holds no completion; give one {{"id": ..., "completion": ...}} a line')
    return pairs


def _lines(completions: TextIO, name: str) -> Sequence[str]:
    try:
        return completions.read().removeprefix("\ufeff").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 text (byte {error.start}); convert it to UTF-8.") from error


def _row(line: str, label: str | None) -> Mapping[str, Any] | str:
    """The row of one line, or what is wrong with it."""
    try:
        row = json.loads(line)
    except ValueError as error:
        return f"not JSON: {error}."
    except RecursionError:
        return "not JSON that can be read: nested too deep."
    if not isinstance(row, dict):
        return f"holds {type(row).__name__}; give an object with id and completion."
    for key in ("id", "completion"):
        if key not in row:
            return f"has no {key!r} (keys: {', '.join(map(str, row)) or 'none'}); give id and completion."
    if isinstance(row["id"], bool) or not isinstance(row["id"], str | int) or row["id"] == "":
        return f"id is {row['id']!r:.60}; give text or a whole number."
    if not isinstance(row["completion"], str):
        return f"completion is {type(row['completion']).__name__}; give the completion's text."
    if not isinstance(row.get("columns", {}), dict):
        return f"columns is {type(row['columns']).__name__}; give an object with the task's columns."
    if label is not None and not isinstance(row.get(label), bool):
        return f"{label} is {row.get(label)!r:.60}; give true or false."
    known = _KEYS | {label} if label else _KEYS
    unknown = sorted(row.keys() - known)
    return f"has unknown keys {', '.join(unknown)}; known: {', '.join(sorted(known))}." if unknown else row


def _task(row: Mapping[str, Any], known: Mapping[str, Task], recipe: ScoringRecipe) -> Task | str:
    task_id = str(row["id"])
    if "columns" in row:
        name = "prompt" if recipe.data is None else recipe.data.columns.prompt
        prompt = row.get("prompt", row["columns"].get(name, ""))
        turns = tuple(prompt) if isinstance(prompt, list) else str(prompt)
        return Task(id=task_id, prompt=turns, columns=row["columns"])
    if recipe.data is None:
        return "has no columns, and the recipe has no [data] to find the task in; give columns, or add [data]."
    if task_id not in known:
        example = next(iter(known))
        advice = ""
        if recipe.data.columns.id is None:
            advice = "\n  Ids were made up; if the data has a column of them, name it:  [data.columns] id = ..."
        return f"no task of the recipe has the id {task_id!r} ({len(known)} have others, such as {example!r}).{advice}"
    return known[task_id]


def _tasks_by_id(recipe: ScoringRecipe) -> dict[str, Task]:
    assert recipe.data is not None
    sets = load_tasks(recipe.data, recipe.folder, recipe.seed)
    known: dict[str, Task] = {}
    for task in (*sets.heldout, *sets.train, *sets.demonstrations):
        if task.id in known and known[task.id].columns != task.columns:
            raise DataError(
                f"two tasks of different sets have the id {task.id!r}, so a completion cannot tell which it answers; "
                "make ids unique over all sets"
            )
        known[task.id] = task
    return known


def _listed(problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    more = len(problems) - MAX_SHOWN_PROBLEMS
    shown = [f"  {problem}" for problem in problems[:MAX_SHOWN_PROBLEMS]]
    return "\n".join([f"{len(problems)} lines cannot be used:", *shown, *([f"  and {more} more"] if more > 0 else [])])


def open_completions(path: Path) -> TextIO:
    """The file for reading.

    Raises:
        DataError: no such file, or a folder.
    """
    try:
        return path.open(encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); give a .jsonl file of completions") from error
