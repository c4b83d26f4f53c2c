"""Judges structured extraction: one JSON object, each field with the right value in its canonical form.

What a field may hold and when two values are the same is in extraction_fields.py, how the fields of a recipe or a JSON
Schema are read in extraction_rules.py, how fields are counted in extraction_compare.py, strict JSON in parsing.py.

The reward is 1 where every field is right, else partial_cap * F1 (0 by default), so a wrong answer never reaches a
right one. Whose fault a failure is:

    status      reason starts with
    ----------  --------------------------------------------------------------------------------------------------
    scored      same_fields | unknown_field missing_field wrong_form invented_value extra_item missing_value
                missing_item wrong_value wrong_shape
    invalid     no_answer several_answers not_json not_an_object duplicate_key not_finite too_deep too_large
    unscored    gold_missing gold_bad gold_empty
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

from groupwise.errors import VerifierError
from groupwise.types import Check, Status, Task, Verdict
from groupwise.verifiers.contract import UnusableGold
from groupwise.verifiers.extraction_compare import PROBLEMS, Comparison, Finding, compare_objects, num_values
from groupwise.verifiers.extraction_fields import FieldRule
from groupwise.verifiers.extraction_rules import rules_from_paths, rules_from_schema
from groupwise.verifiers.extraction_schema import Shape
from groupwise.verifiers.parsing import MAX_JSON_CHARS, AnswerIn, Problem, dump_json, json_answer, parse_json

MAX_GOLD_CHARS = 4_000_000
MAX_CHECKS = 32
MAX_SHOWN_CHARS = 80


class ExtractionVerifier:
    """Exact match of typed fields, with precision, recall and F1 in the checks. Safe to call from many threads.

    Example:
        verifier = ExtractionVerifier(fields={"vendor": {"kind": "text"}, "issued": {"kind": "date"}})
        verifier.judge(Task(id="d1", prompt="...", columns={"gold": {"vendor": "ACME GmbH", "issued": "2024-03-12"}}),
                       '{"vendor": "Acme GmbH", "issued": "2024-03-12"}')
        Verdict(status=scored, reward=1.0, outcome=True, reason="same_fields: 2 of 2", checks=(...))

    Args:
        fields: path to settings, see extraction_rules and FieldRule; empty where schema_file gives the fields.
        schema_file: a JSON Schema that the answer must also fit; relative to base_folder, "" for none.
        gold_column: the task column with the right object, as JSON text or as a mapping.
        bait_column: the column with a list of wrong answers (JSON texts or mappings), such as the spans as printed;
            check refuses a task whose bait earns 1. "" for none.
        empty_gold: what becomes of a gold without any value: "refuse" it, or "allow" it, so that an answer without
            values is right.
        answer_in: see parsing.answer_text.
        partial_cap: the most that a wrong answer earns, from 0 to below 1.

    Raises:
        VerifierError: a setting that cannot be used.
    """

    def __init__(
        self,
        *,
        fields: Mapping[str, Mapping[str, Any]] | None = None,
        schema_file: str | Path = "",
        gold_column: str = "gold",
        bait_column: str = "",
        empty_gold: str = "refuse",
        answer_in: AnswerIn = "auto",
        partial_cap: float = 0.0,
        base_folder: Path | None = None,
    ) -> None:
        _require(empty_gold in ("refuse", "allow"), "empty_gold", empty_gold, '"refuse" or "allow"')
        _require(answer_in in ("auto", "text", "fence"), "answer_in", answer_in, '"auto", "text" or "fence"')
        _require(0.0 <= partial_cap < 1.0, "partial_cap", partial_cap, "a number from 0 to below 1")
        _require(bool(fields) or str(schema_file) != "", "fields", fields, "one field or more, or a schema_file")
        folder = Path.cwd() if base_folder is None else Path(base_folder).absolute()
        self._shape = Shape.read(folder / schema_file) if str(schema_file) else None
        self._rule = rules_from_paths(fields) if fields else rules_from_schema(self._schema())
        self._fields = {path: dict(settings) for path, settings in (fields or {}).items()}
        self._gold_column = gold_column
        self._bait_column = bait_column
        self._empty_gold = empty_gold
        self._answer_in: AnswerIn = answer_in
        self._partial_cap = float(partial_cap)

    @property
    def rule(self) -> FieldRule:
        """The rule of the whole object."""
        return self._rule

    def judge(self, task: Task, completion_text: str) -> Verdict:
        """Compares the completion's object with the gold; see the module's table for what can come out."""
        try:
            gold, gold_text = self._gold_object(task)
        except VerifierError as error:
            return Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason=str(error))
        found = json_answer(completion_text, self._answer_in, max_chars=max(MAX_JSON_CHARS, 2 * len(gold_text)))
        if isinstance(found, Problem):
            return _invalid(found.reason)
        if not isinstance(found, dict):
            return _invalid(f"not_an_object: the answer is {_show(found)}, one JSON object is expected")
        comparison = compare_objects(self._rule, gold, found)
        shape_problem = ""
        if self._shape is not None and not any(
            f.problem in ("unknown_field", "wrong_form") for f in comparison.findings
        ):
            shape_problem = self._shape.problem(found)
        return self._verdict(comparison, shape_problem)

    def gold(self, task: Task) -> str:
        """The gold as a completion, in a fence where only a fence is read.

        Raises:
            VerifierError: the task has no gold, or one that cannot be used.
        """
        _, text = self._gold_object(task)
        return f"```json\n{text}\n```" if self._answer_in == "fence" else text

    def check(self, tasks: Sequence[Task]) -> list[UnusableGold]:
        """Compares every gold with itself and with its baits, and says which tasks cannot be judged, and why."""
        return [problem for task in tasks for problem in self._check_one(task)]

    @property
    def version(self) -> str:
        """Hash of what a verdict depends on: this code, the settings, the schema, Unicode's tables."""
        digest = hashlib.sha256()
        here = Path(__file__).parent
        for source in [*sorted(here.glob("extraction*.py")), here / "parsing.py"]:
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        settings = [
            [[path, self._fields[path]] for path in sorted(self._fields)],
            None if self._shape is None else dump_json(self._shape.schema),
            [self._gold_column, self._empty_gold, self._answer_in, self._partial_cap],
            [unicodedata.unidata_version, package_version("jsonschema")],
        ]
        digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
        return digest.hexdigest()[:16]

    def close(self) -> None:
        """Nothing is held."""

    def _schema(self) -> Mapping[str, Any]:
        assert self._shape is not None, "without fields there is a schema"
        return self._shape.schema

    def _gold_object(self, task: Task) -> tuple[dict[str, Any], str]:
        """The gold, proved to be in the form of its rule, and its text."""
        text = self._text_of(task, self._gold_column, task.columns.get(self._gold_column))
        gold = parse_json(text, max_chars=MAX_GOLD_CHARS)
        if isinstance(gold, Problem):
            raise VerifierError(f"gold_bad: task {task.id!r}, column {self._gold_column!r}: {gold.reason}")
        if not isinstance(gold, dict):
            raise VerifierError(f"gold_bad: task {task.id!r}: the gold is {_show(gold)}; give one JSON object")
        problems = compare_objects(self._rule, gold, gold).findings
        if problems:
            first = problems[0]
            raise VerifierError(
                f"gold_bad: task {task.id!r}, field {first.path!r}: {first.problem}: expected {_show(first.expected)}, "
                f"the gold has {_show(first.found)}; correct the gold or the field's settings"
            )
        if num_values(gold) == 0 and self._empty_gold == "refuse":
            raise VerifierError(
                f"gold_empty: task {task.id!r} has no value in any field, so an empty answer would be right; "
                'leave the task out, or set empty_gold = "allow"'
            )
        return gold, text

    def _text_of(self, task: Task, column: str, value: object) -> str:
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, Mapping):
            try:
                return dump_json(value)
            except (TypeError, ValueError) as error:
                raise VerifierError(
                    f"gold_bad: task {task.id!r}, column {column!r}: {error}; use JSON types"
                ) from error
        known = ", ".join(sorted(task.columns)) or "none"
        raise VerifierError(
            f"gold_missing: task {task.id!r} has no JSON object in column {column!r} (columns: {known}); "
            "set gold_column to the column that holds the right object"
        )

    def _check_one(self, task: Task) -> list[UnusableGold]:
        try:
            own = self.judge(task, self.gold(task))
            if own.reward != 1.0:
                raise VerifierError(f"gold_bad: task {task.id!r} judged against itself: {own.reason}")
            for bait in self._baits(task):
                if self.judge(task, bait).outcome is not False:
                    raise VerifierError(f"bait_passes: task {task.id!r}: a wrong answer earns 1: {bait[:200]}")
        except VerifierError as error:
            return [UnusableGold(task_id=task.id, reason=str(error))]
        return []

    def _baits(self, task: Task) -> list[str]:
        if not self._bait_column:
            return []
        baits = task.columns.get(self._bait_column)
        if isinstance(baits, str) or not isinstance(baits, Sequence) or not baits:
            raise VerifierError(
                f"bait_missing: task {task.id!r} has no list of wrong answers in column {self._bait_column!r}"
            )
        texts = [self._text_of(task, self._bait_column, bait) for bait in baits]
        return [f"```json\n{text}\n```" for text in texts] if self._answer_in == "fence" else texts

    def _verdict(self, comparison: Comparison, shape_problem: str) -> Verdict:
        findings = sorted(comparison.findings, key=lambda finding: PROBLEMS.index(finding.problem))
        right = not findings and not shape_problem
        if right:
            reason = f"same_fields: {comparison.right} of {comparison.right}"
        elif findings:
            more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
            reason = f"{findings[0].problem}: {_printable(findings[0].path)}{more}, F1 {comparison.f1:.3f}"
        else:
            reason = f"wrong_shape: {_printable(shape_problem)}"
        # The shape is a gate: no partial credit past it.
        partial = 0.0 if shape_problem else self._partial_cap * comparison.f1
        return Verdict(
            status=Status.SCORED,
            reward=1.0 if right else partial,
            outcome=right,
            reason=reason,
            checks=_checks(comparison, findings, shape_problem),
        )


def _checks(comparison: Comparison, findings: Sequence[Finding], shape_problem: str) -> tuple[Check, ...]:
    """Precision, recall, F1, the shape, then one check for each declared path that is not right."""
    counts = f"{comparison.right} right, {comparison.too_many} too many, {comparison.missed} missed"
    checks = [
        Check(
            name=name,
            passed=not findings,
            expected="1.000" if findings or comparison.right else "nothing to find",
            found=f"{value:.3f} ({counts})",
        )
        for name, value in (
            ("field_precision", comparison.precision),
            ("field_recall", comparison.recall),
            ("field_f1", comparison.f1),
        )
    ]
    checks.append(Check(name="shape", passed=not shape_problem, expected="fits", found=shape_problem or "fits"))
    seen: set[str] = set()
    for finding in findings:
        if finding.path in seen or len(checks) >= MAX_CHECKS:
            continue
        seen.add(finding.path)
        expected = finding.expected if isinstance(finding.expected, str) else _show(finding.expected)
        checks.append(
            Check(
                name=f"field {_printable(finding.path)}",
                passed=False,
                expected=f"{finding.problem}: {_printable(expected)}",
                found=_show(finding.found),
            )
        )
    return tuple(checks)


def _show(value: object) -> str:
    return _printable(dump_json(value) if not isinstance(value, str) else f'"{value[:MAX_SHOWN_CHARS]}"')


def _printable(text: str) -> str:
    """One short line without control characters."""
    short = text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 3] + "..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in short)


def _invalid(reason: str) -> Verdict:
    check = Check(name="json", passed=False, expected="one JSON object", found=reason.partition(":")[0])
    return Verdict(status=Status.INVALID, reward=0.0, outcome=False, reason=reason, checks=(check,))


def _require(condition: bool, name: str, given: object, allowed: str) -> None:
    if not condition:
        raise VerifierError(f"ExtractionVerifier: {name} = {given!r} cannot be used; give {allowed}")
