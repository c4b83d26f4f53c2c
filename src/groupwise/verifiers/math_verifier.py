r"""Judges a mathematical answer by its value: exact where it can be written down exactly, computer algebra where not.

Reading order: math_answer.py (which text is the answer), math_value.py (what it means), math_compare.py (is it the
gold), math_process.py (computer algebra, in a worker that can be killed). Nothing evaluates text as code.

    status      reason starts with
    ----------  --------------------------------------------------------------------------------------------------
    scored      same_value | wrong_value wrong_form wrong_unit unevaluated
    invalid     no_answer several_answers unreadable too_complex too_large timeout memory crash
    unscored    gold_missing gold_unreadable worker_failed
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path

from groupwise.errors import VerifierError
from groupwise.sandbox.workers import (
    WorkerCrashed,
    WorkerLimits,
    WorkerPool,
    WorkerStarved,
    WorkerTimeout,
    WorkerUnavailable,
)
from groupwise.types import Check, Status, Task, Verdict
from groupwise.verifiers.contract import UnusableGold
from groupwise.verifiers.lru_cache import LruCache
from groupwise.verifiers.math_answer import MAX_ANSWER_CHARS, AnswerIn, Declared, declared_answers
from groupwise.verifiers.math_compare import Percent, Rules, compare
from groupwise.verifiers.math_value import Expression, Items, Named, Unreadable, Value, read_value

MAX_CACHED = 65_536
MAX_COMPARISONS = 16  # of expressions in one answer; each may take the time limit
_PACKAGES = ("math_verify", "latex2sympy2_extended", "sympy", "mpmath", "antlr4")
_FORMS = {"hash": "#### {}", "tag": "<answer>{}</answer>", "line": "Answer: {}", "text": "{}"}


class _Stopped(Exception):
    """A comparison that cannot go on; the message is the verdict's reason."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class MathVerifier:
    r"""Value match of the last declared answer. Safe to call from many threads.

    Example:
        MathVerifier().judge(Task(id="q1", prompt="7 + 11?", columns={"gold": "18"}), "So it is \\boxed{18.00}.")
        Verdict(status=scored, reward=1.0, outcome=True, reason="same_value: 18", checks=(...))

    Args:
        gold_column: the task column with the right answer: a number, or a text whose last #### line or box is it.
        answer_in: see math_answer.declared_answers.
        several_answers: "last": the last one counts, but different ones side by side are invalid; "refuse": any two
            different ones are invalid.
        percent: a percent sign on one side only; see math_compare.Rules.
        rel_tolerance: relative difference allowed where the gold is written with a decimal point.
        time_limit_s: CPU seconds for one comparison of expressions. Plain numbers need none of it.
        memory_limit_mb: address space of a worker.
        num_workers: expressions that are compared at the same time.
        base_folder: not used; every verifier of a recipe is given it.

    Raises:
        VerifierError: a setting that cannot be used.
    """

    def __init__(
        self,
        *,
        gold_column: str = "gold",
        answer_in: AnswerIn = "auto",
        several_answers: str = "last",
        percent: Percent = "refuse",
        rel_tolerance: float = 0.0,
        time_limit_s: float = 2.0,
        memory_limit_mb: int = 1024,
        num_workers: int = 2,
        base_folder: Path | None = None,
    ) -> None:
        choices = {
            "answer_in": (answer_in, ("auto", "boxed", "hash", "tag", "line", "text")),
            "several_answers": (several_answers, ("last", "refuse")),
            "percent": (percent, ("refuse", "ignore", "fraction")),
        }
        for name, (given, allowed) in choices.items():
            _require(given in allowed, name, given, "one of " + ", ".join(allowed))
        _require(0 <= rel_tolerance < 1, "rel_tolerance", rel_tolerance, "0 to below 1")
        _require(time_limit_s > 0, "time_limit_s", time_limit_s, "seconds above 0")
        _require(memory_limit_mb >= 256, "memory_limit_mb", memory_limit_mb, "256 or more")
        _require(num_workers >= 1, "num_workers", num_workers, "1 or more")
        del base_folder
        self._gold_column = gold_column
        self._answer_in: AnswerIn = answer_in
        self._several_answers = several_answers
        self._rules = Rules(percent=percent, rel_tolerance=rel_tolerance)
        self._time_limit_s = time_limit_s
        self._memory_limit_mb = memory_limit_mb
        self._pool = WorkerPool(
            Path(__file__).with_name("math_process.py"),
            num_workers=num_workers,
            limits=WorkerLimits(memory_mb=memory_limit_mb),
            handler_settings={"packages": _package_folders()},
        )
        self._golds: LruCache[Value] = LruCache(MAX_CACHED)
        self._verdicts: LruCache[Verdict] = LruCache(MAX_CACHED)

    def judge(self, task: Task, completion_text: str) -> Verdict:
        """Compares the last declared answer with the gold; see the module's table for what can come out."""
        try:
            gold_text = self._gold_text(task)
            gold = self._gold_value(task, gold_text)
        except VerifierError as error:
            return _unscored(str(error))
        except _Stopped as stopped:
            return _unscored(str(stopped))
        declared = declared_answers(completion_text, self._answer_in)
        if declared.problem:
            return _invalid(declared.problem)
        key = (gold_text, declared)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._compare(gold_text, gold, declared)
            if verdict.status is not Status.UNSCORED:
                self._verdicts.put(key, verdict)
        return verdict

    def gold(self, task: Task) -> str:
        """The gold answer as the completion that the settings ask for.

        Raises:
            VerifierError: the task has no gold.
        """
        return _FORMS.get(self._answer_in, "\\boxed{{{}}}").format(self._gold_text(task))

    def check(self, tasks: Sequence[Task]) -> list[UnusableGold]:
        """Judges every gold against itself and says which tasks cannot be judged, and why."""
        problems = []
        for task in tasks:
            try:
                own = self.judge(task, self.gold(task))
            except VerifierError as error:
                problems.append(UnusableGold(task_id=task.id, reason=str(error)))
                continue
            if own.status is Status.UNSCORED:
                problems.append(UnusableGold(task_id=task.id, reason=own.reason))
            elif own.reward != 1.0:
                reason = f"gold_failed: judged against itself: {own.reason}"
                problems.append(UnusableGold(task_id=task.id, reason=reason))
        return problems

    @property
    def version(self) -> str:
        """Hash of what a verdict depends on: this code, the settings, the packages that read LaTeX."""
        digest = hashlib.sha256()
        here = Path(__file__).parent
        sandbox = here.parent / "sandbox"
        for source in [*sorted(here.glob("math_*.py")), here / "parsing.py", *sorted(sandbox.glob("[cw]*.py"))]:
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        settings = [
            self._gold_column,
            self._answer_in,
            self._several_answers,
            self._rules.percent,
            self._rules.rel_tolerance,
            self._time_limit_s,
            self._memory_limit_mb,
            *map(_version_of, ("math-verify", "latex2sympy2_extended", "sympy")),
        ]
        digest.update(json.dumps(settings).encode())
        return digest.hexdigest()[:16]

    def close(self) -> None:
        """Ends the worker processes; later verdicts that need one are unscored."""
        self._pool.close()

    def _gold_text(self, task: Task) -> str:
        gold = task.columns.get(self._gold_column)
        if isinstance(gold, (int, float, Decimal, Fraction)) and not isinstance(gold, bool):
            gold = str(gold)
        if not isinstance(gold, str) or not gold.strip() or gold in ("nan", "inf", "-inf"):
            known = ", ".join(sorted(task.columns)) or "none"
            raise VerifierError(
                f"gold_missing: task {task.id!r} has no number or text in column {self._gold_column!r} "
                f"(columns: {known}); set gold_column to the column with the right answer"
            )
        if "####" in gold or "\\boxed" in gold:
            declared = declared_answers(gold, "hash" if "####" in gold else "boxed")
            if declared.problem:
                raise VerifierError(f"gold_unreadable: task {task.id!r}: {declared.problem}")
            return declared.answers[-1]
        if len(gold) > MAX_ANSWER_CHARS:
            raise VerifierError(
                f"gold_unreadable: task {task.id!r}: {len(gold)} characters without #### or \\boxed; "
                f"at most {MAX_ANSWER_CHARS} are read"
            )
        return gold.strip()

    def _gold_value(self, task: Task, text: str) -> Value:
        known = self._golds.get(text)
        if known is not None:
            return known
        value = read_value(text)
        if isinstance(value, Unreadable):
            raise VerifierError(f"gold_unreadable: task {task.id!r}: {text[:60]!a}: {value.reason}")
        for expression in _expressions_of(value):
            try:
                self._same_expression(expression, expression)
            except _Stopped as stopped:
                word = "worker_failed" if str(stopped).startswith("worker_failed") else "gold_unreadable"
                raise VerifierError(f"{word}: task {task.id!r}: {text[:60]!a}: {stopped}") from stopped
        self._golds.put(text, value)
        return value

    def _compare(self, gold_text: str, gold: Value, declared: Declared) -> Verdict:
        answers = [_read_answer(text) for text in declared.answers]
        last, count = answers[-1], len(answers) if self._several_answers == "refuse" else declared.side_by_side
        for text, other in list(zip(declared.answers, answers, strict=True))[-count:-1]:
            if _meaning(text, other) != _meaning(declared.answers[-1], last):
                return _invalid(f"several_answers: {text[:40]!a} and {declared.answers[-1][:40]!a}")
        if isinstance(last, Unreadable):
            return _invalid(last.reason)
        num_comparisons = 0

        def same_expression(left: str, right: str) -> bool:
            nonlocal num_comparisons
            num_comparisons += 1
            if num_comparisons > MAX_COMPARISONS:
                raise _Stopped(Status.INVALID, f"too_complex: more than {MAX_COMPARISONS} expressions to compare")
            return self._same_expression(left, right)

        try:
            problem = compare(gold, last, self._rules, same_expression)
        except _Stopped as stopped:
            return _invalid(str(stopped)) if stopped.status is Status.INVALID else _unscored(str(stopped))
        found = declared.answers[-1]
        checks = (
            Check(name="answer", passed=True, expected="one declared answer", found=f"{len(answers)} declared"),
            Check(name="value", passed=not problem, expected=_show(gold_text), found=_show(found)),
        )
        reason = f"{problem or 'same_value'}: {_show(found)}"
        return Verdict(
            status=Status.SCORED, reward=float(not problem), outcome=not problem, reason=reason, checks=checks
        )

    def _same_expression(self, gold: str, answer: str) -> bool:
        """Asks a worker, twice where the machine and not the text may be at fault.

        Raises:
            _Stopped: with INVALID where the answer's text is at fault, with UNSCORED where the machine is.
        """
        request = {"gold": gold, "answer": answer}
        failure = ""
        for wall_limit_s in (self._time_limit_s + 1.0, 4 * self._time_limit_s + 2.0):
            try:
                reply = self._pool.call(request, cpu_limit_s=self._time_limit_s, wall_limit_s=wall_limit_s)
            except WorkerTimeout as error:
                raise _Stopped(Status.INVALID, f"timeout: {error}") from error
            except (WorkerCrashed, WorkerStarved, WorkerUnavailable) as error:
                failure = f"{type(error).__name__}: {error}"
                continue
            status = reply.get("status")
            if status == "ok":
                return reply.get("equal") is True
            if status == "memory":
                raise _Stopped(Status.INVALID, "memory: comparing the answer needs more than a worker may use")
            if status == "gold_unreadable":
                raise _Stopped(Status.UNSCORED, f"gold_unreadable: {gold[:60]!a}: {reply.get('message')}")
            # whatever else a reader of LaTeX raises on a text that the gold did not raise is the text's doing
            raise _Stopped(Status.INVALID, f"unreadable: {answer[:60]!a}: {str(reply.get('message'))[:100]}")
        if failure.startswith("WorkerCrashed") and gold != answer and self._still_works(gold):
            raise _Stopped(Status.INVALID, "crash: the answer ended two workers; others still run")
        raise _Stopped(Status.UNSCORED, f"worker_failed: {failure}")

    def _still_works(self, gold: str) -> bool:
        try:
            return self._same_expression(gold, gold)
        except _Stopped:
            return False


def _expressions_of(value: Value) -> list[str]:
    if isinstance(value, Expression):
        return [value.text]
    if isinstance(value, Named):
        return _expressions_of(value.value)
    if isinstance(value, Items):
        return [text for item in value.items for text in _expressions_of(item)]
    return []


def _read_answer(text: str) -> Value | Unreadable:
    """read_value, which takes time quadratic in the text, for a text that may be read."""
    return read_value(text) if len(text) <= MAX_ANSWER_CHARS else Unreadable(reason="too_large: an earlier answer")


def _meaning(text: str, value: Value | Unreadable) -> object:
    """What two declared answers must share to be one answer."""
    if isinstance(value, (Unreadable, Expression)):
        return text.replace(" ", "")
    return getattr(value, "value", value)


def _package_folders() -> list[str]:
    folders = []
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            folder = str(Path(spec.origin).parent.parent)
            folders += [folder] * (folder not in folders)
    return folders


def _version_of(package: str) -> str:
    try:
        return package_version(package)
    except PackageNotFoundError:
        return "none"


def _require(condition: bool, name: str, given: object, allowed: str) -> None:
    if not condition:
        raise VerifierError(f"MathVerifier: {name} = {given!r} cannot be used; give {allowed}")


def _show(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _invalid(reason: str) -> Verdict:
    name = reason.partition(":")[0]
    check = Check(name="answer", passed=False, expected="one declared answer that can be read", found=name)
    return Verdict(status=Status.INVALID, reward=0.0, outcome=False, reason=reason, checks=(check,))


def _unscored(reason: str) -> Verdict:
    return Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason=reason)
