"""Judges a label and the rationale given for it: the label must be right, and the rationale must argue for it.

Four gates, cheap ones first, and a reward of 1 only through all of them: the label; the deterministic gates of
rationale_gates.py; a rationale-to-label model trained from labelled rationales (rationale_model.py); an optional LLM
judge (rationale_judge.py). A wrong label earns nothing, however well its rationale fits: otherwise consistency alone
would pay. Model and judge can only take a reward away, and only where they see another label argued for. Where label
and rationale stand in a completion is in classification_answer.py; classification_monitor.py looks at whole batches.

    status      reason starts with
    ----------  --------------------------------------------------------------------------------------------------
    scored      supported | wrong_label argues_other_label judge_contradicts, or a gate of rationale_gates.py
    invalid     no_answer several_answers unknown_label no_rationale too_large, or a word of parsing.py
    unscored    label_missing label_unknown labels_missing input_missing judge_failed
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from groupwise.errors import VerifierError
from groupwise.types import Check, Status, Task, Verdict
from groupwise.verifiers.classification_answer import AnswerIn, LabelledAnswer, extract_answer, fold, match_label
from groupwise.verifiers.contract import UnusableGold
from groupwise.verifiers.judge_client import JudgeClient, JudgeError
from groupwise.verifiers.lru_cache import LruCache
from groupwise.verifiers.rationale_gates import Source, gate_checks
from groupwise.verifiers.rationale_judge import ask_judge
from groupwise.verifiers.rationale_model import RationaleModel, load_model
from groupwise.verifiers.rationale_text import words

MAX_CACHED_SOURCES = 4096


class ClassificationVerifier:
    """Exactly one label of a closed set, and a rationale that supports it. Safe to call from many threads.

    Example:
        verifier = ClassificationVerifier(labels=["entailment", "neutral", "contradiction"],
                                          input_columns=["premise", "hypothesis"])
        task = Task(id="e1", prompt="...", columns={"label": "contradiction", "hypothesis": "The man is asleep",
                                                    "premise": "A man is playing a guitar on stage"})
        verifier.judge(task, '{"label": "contradiction", "rationale": "He cannot sleep while playing the guitar."}')
        Verdict(status=scored, reward=1.0, outcome=True, reason="supported: contradiction", checks=(...))

    Args:
        labels: the closed set, two or more; none means that each task brings its own in `labels_column`.
        label_column: the task column with the right label.
        labels_column: the task column with the list of labels to choose from; read where `labels` is empty.
        input_columns: the task columns with the text to classify, which quotes and copies are compared with; none
            means the prompt.
        rationale_column: the task column with a human rationale, or a list of them; only gold and check read it.
        answer_in: see classification_answer.extract_answer.
        rationale: "required", or "off" to judge the label alone.
        rationale_examples: labelled rationales or a saved model, see rationale_model.load_model; "" trains none.
        contradicts_at: probability of another label at which the model takes the reward away.
        max_rationale_words: a longer rationale earns nothing.
        judge: the arguments of JudgeClient, the cache as a path that starts at `base_folder`; None asks nobody.
        base_folder: where relative files start; None is the current folder.

    Raises:
        VerifierError: a setting cannot be used, or a file cannot be read.
    """

    def __init__(
        self,
        *,
        labels: Sequence[str] = (),
        label_column: str = "label",
        labels_column: str = "labels",
        input_columns: Sequence[str] = (),
        rationale_column: str = "rationale",
        answer_in: AnswerIn = "auto",
        rationale: Literal["required", "off"] = "required",
        rationale_examples: str = "",
        contradicts_at: float = 0.9,
        max_rationale_words: int = 200,
        judge: Mapping[str, Any] | None = None,
        base_folder: Path | None = None,
    ) -> None:
        _require(not labels or _is_label_set(labels), "labels", labels, "two or more different names, or none")
        _require(answer_in in ("auto", "json", "text"), "answer_in", answer_in, '"auto", "json" or "text"')
        _require(rationale in ("required", "off"), "rationale", rationale, '"required" or "off"')
        _require(0.5 <= contradicts_at <= 1, "contradicts_at", contradicts_at, "a probability from 0.5 to 1")
        _require(max_rationale_words >= 1, "max_rationale_words", max_rationale_words, "1 or more")
        _require(
            bool(labels) or not rationale_examples,
            "rationale_examples",
            rationale_examples,
            "labels as well: a model needs one set of labels for all tasks",
        )
        folder = Path.cwd() if base_folder is None else Path(base_folder).absolute()
        self._labels = tuple(labels)
        self._label_column, self._labels_column = label_column, labels_column
        self._input_columns = tuple(input_columns)
        self._rationale_column = rationale_column
        self._answer_in: AnswerIn = answer_in
        self._required = rationale == "required"
        self._contradicts_at = contradicts_at
        self._max_rationale_words = max_rationale_words
        examples = folder / rationale_examples if rationale_examples else None
        self._model: RationaleModel | None = None if examples is None else load_model(examples, self._labels)
        self._examples_digest = "" if examples is None else hashlib.sha256(examples.read_bytes()).hexdigest()
        self._judge = None if judge is None else _client(judge, folder)
        self._sources: LruCache[Source] = LruCache(MAX_CACHED_SOURCES)

    def judge(self, task: Task, completion_text: str) -> Verdict:
        """Compares the label and reads the rationale; see the module's table for what can come out."""
        try:
            labels = self._label_set(task)
            gold = self._gold_label(task, labels)
            text = self._input_text(task)
        except VerifierError as error:
            return _unscored(str(error))
        answer = extract_answer(completion_text, self._answer_in)
        if answer.problem:
            return _invalid(answer.problem)
        label, problem = match_label(answer.label, labels)
        if problem:
            return _invalid(problem)
        if self._required and not answer.rationale:
            return _invalid("no_rationale: the rationale is empty")
        right = Check(name="wrong_label", passed=label == gold, expected=gold, found=label)
        if not right.passed:
            return _scored(False, f"wrong_label: {label} instead of {gold}", (right,))
        if not self._required:
            return _scored(True, f"supported: {label}, the rationale is not judged", (right,))
        return self._judge_rationale(answer, label, labels, text, right)

    def gold(self, task: Task) -> str:
        """The right label with the first human rationale that passes every gate, or with the first one.

        Raises:
            VerifierError: the task has no usable label, or no rationale where one is required.
        """
        labels = self._label_set(task)
        label = self._gold_label(task, labels)
        rationales = self._rationales(task)
        if not self._required:
            return self._completion(label, "")
        if not rationales:
            raise VerifierError(
                f"rationale_missing: task {task.id!r} has no rationale in column {self._rationale_column!r}; "
                "name the column in rationale_column (its completions can be judged without one)"
            )
        completions = [self._completion(label, rationale) for rationale in rationales]
        return next((text for text in completions if self.judge(task, text).reward == 1.0), completions[0])

    def check(self, tasks: Sequence[Task]) -> list[UnusableGold]:
        """The tasks that cannot be judged, those whose rationales all fail, and (not blocking) those without one."""
        return [problem for task in tasks if (problem := self._check_one(task)) is not None]

    @property
    def version(self) -> str:
        """Hash of what a verdict depends on: this code, the settings, the examples, the judge's model and endpoint."""
        digest = hashlib.sha256()
        here = Path(__file__).parent
        names = ("classification*.py", "rationale*.py", "judge_client*.py", "parsing.py")
        for source in sorted(path for name in names for path in here.glob(name)):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        settings = [
            self._labels,
            self._label_column,
            self._labels_column,
            self._input_columns,
            self._rationale_column,
            self._answer_in,
            self._required,
            self._contradicts_at,
            self._max_rationale_words,
            self._examples_digest,
            None if self._judge is None else [self._judge.url, self._judge.model],
        ]
        digest.update(json.dumps(settings).encode())
        return digest.hexdigest()[:16]

    def close(self) -> None:
        """Nothing is held open."""

    def _judge_rationale(
        self, answer: LabelledAnswer, label: str, labels: Sequence[str], text: str, right: Check
    ) -> Verdict:
        # Labels that a task brings along are part of its input: a rationale may speak of them alone.
        compared = text if self._labels else "\n".join((text, *labels))
        source = self._sources.get(compared)
        if source is None:
            source = Source.of(compared)
            self._sources.put(compared, source)
        gates = gate_checks(
            answer.rationale, label=label, labels=labels, source=source, max_words=self._max_rationale_words
        )
        checks = (right, *gates)
        failed = next((check for check in gates if not check.passed), None)
        if failed is not None:
            return _scored(False, f"{failed.name}: {failed.found}, expected {failed.expected}", checks)
        if self._model is not None:
            opinion = self._model.opinion(words(answer.rationale), label)
            contradicted = opinion.contradicts(self._contradicts_at)
            seen = f"{opinion.other} with {opinion.other_probability:.3f}, {label} with {opinion.probability:.3f}"
            expected = f"no other label at {self._contradicts_at:g} or more"
            checks = (*checks, Check(name="model", passed=not contradicted, expected=expected, found=seen))
            if contradicted:
                return _scored(False, f"argues_other_label: {seen}", checks)
        if self._judge is not None:
            try:
                finding, shown = ask_judge(
                    self._judge, text=text, rationale=answer.rationale, label=label, labels=labels
                )
            except JudgeError as error:
                return _unscored(f"judge_failed: {error}")
            passed = finding != "contradicts"
            checks = (*checks, Check(name="judge", passed=passed, expected=label, found=f"{finding}: {shown}"))
            if not passed:
                return _scored(False, f"judge_contradicts: {shown}", checks)
        return _scored(True, f"supported: {label}", checks)

    def _label_set(self, task: Task) -> tuple[str, ...]:
        if self._labels:
            return self._labels
        labels = task.columns.get(self._labels_column)
        if not isinstance(labels, (list, tuple)) or not _is_label_set(labels):
            raise VerifierError(
                f"labels_missing: task {task.id!r} has no list of two or more different labels in column "
                f"{self._labels_column!r}; give labels in the recipe, or name the column in labels_column"
            )
        return tuple(labels)

    def _gold_label(self, task: Task, labels: Sequence[str]) -> str:
        given = task.columns.get(self._label_column)
        if not isinstance(given, str) or not given.strip():
            known = ", ".join(sorted(task.columns)) or "none"
            raise VerifierError(
                f"label_missing: task {task.id!r} has no label in column {self._label_column!r} (columns: {known}); "
                "set label_column to the column that holds the right label"
            )
        label, problem = match_label(given, labels)
        if problem:
            raise VerifierError(
                f"label_unknown: task {task.id!r} is labelled {given[:40]!r}, "
                f"which is none of: {', '.join(labels)[:200]}"
            )
        return label

    def _input_text(self, task: Task) -> str:
        if self._input_columns:
            missing = [name for name in self._input_columns if not isinstance(task.columns.get(name), str)]
            if missing:
                raise VerifierError(
                    f"input_missing: task {task.id!r} has no text in column {missing[0]!r} "
                    f"(columns: {', '.join(sorted(task.columns))}); set input_columns to the text to classify"
                )
            return "\n".join(task.columns[name] for name in self._input_columns)
        if isinstance(task.prompt, str):
            return task.prompt
        return "\n".join(message.get("content", "") for message in task.prompt)

    def _rationales(self, task: Task) -> list[str]:
        given = task.columns.get(self._rationale_column)
        texts = [given] if isinstance(given, str) else list(given) if isinstance(given, (list, tuple)) else []
        return [text for text in texts if isinstance(text, str) and text.strip()]

    def _completion(self, label: str, rationale: str) -> str:
        if self._answer_in == "text":
            return f"{rationale}\nLabel: {label}".strip()
        return json.dumps({"rationale": rationale, "label": label} if rationale else {"label": label})

    def _check_one(self, task: Task) -> UnusableGold | None:
        try:
            self._gold_label(task, self._label_set(task))
            self._input_text(task)
            if self._required and not self._rationales(task):
                reason = f"rationale_missing: no rationale in column {self._rationale_column!r} proves this task"
                return UnusableGold(task_id=task.id, reason=reason, blocking=False)
            own = self.judge(task, self.gold(task))
        except VerifierError as error:
            return UnusableGold(task_id=task.id, reason=str(error))
        if own.reward != 1.0:
            return UnusableGold(task_id=task.id, reason=f"gold_failed: judged against itself: {own.reason}")
        return None


def _is_label_set(labels: Sequence[object]) -> bool:
    names = [fold(label) for label in labels if isinstance(label, str)]
    apart = len(set(names)) == len(labels) >= 2 and all(names)
    return apart and not isinstance(labels, str)


def _client(judge: Mapping[str, Any], folder: Path) -> JudgeClient:
    try:
        return JudgeClient(**{**judge, "cache": folder / str(judge.get("cache", "judge_replies.sqlite"))})
    except TypeError as error:
        raise VerifierError(f"ClassificationVerifier: judge: {error}; see JudgeClient for its settings") from error


def _require(condition: bool, name: str, given: object, allowed: str) -> None:
    if not condition:
        raise VerifierError(f"ClassificationVerifier: {name} = {given!r} cannot be used; give {allowed}")


def _scored(outcome: bool, reason: str, checks: Sequence[Check]) -> Verdict:
    return Verdict(status=Status.SCORED, reward=float(outcome), outcome=outcome, reason=reason, checks=tuple(checks))


def _invalid(reason: str) -> Verdict:
    check = Check(name="answer", passed=False, expected="one label of the set", found=reason.partition(":")[0])
    return Verdict(status=Status.INVALID, reward=0.0, outcome=False, reason=reason, checks=(check,))


def _unscored(reason: str) -> Verdict:
    return Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason=reason)
