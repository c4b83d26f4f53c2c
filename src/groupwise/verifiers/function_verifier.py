"""Judges with a reward function that was written for TRL, unchanged; see function_call.py for how it is called.

    reward  = (min(max(value, reward_min), reward_max) - reward_min) / (reward_max - reward_min)
    outcome = value >= threshold

Whatever keeps the function from giving a finite number is the verifier's fault, never a reward:

    status      reason starts with
    ----------  ------------------------------------------------------------------------------------------------------
    scored      solved | not_solved
    invalid     too_large
    unscored    no_reward wrong_length wrong_type not_a_number not_finite function_raised timeout memory crash
                load_failed column_missing worker_failed closed
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from groupwise.errors import VerifierError
from groupwise.types import Check, Status, Task, Verdict
from groupwise.verifiers.contract import UnusableGold, gold_text
from groupwise.verifiers.function_call import CallFailed
from groupwise.verifiers.function_runner import IsolatedRunner, Runner, ThreadRunner

MAX_COMPLETION_CHARS = 4_000_000

TextForm = Literal["auto", "text", "messages"]
RewardFunction = Callable[..., Any]


class FunctionVerifier:
    """A reward function as a verifier. Safe to call from many threads.

    Example:
        def reward(prompts, completions, answer, **kwargs):
            return [1.0 if text.strip() == right else 0.0 for text, right in zip(completions, answer)]

        FunctionVerifier(reward).judge(Task(id="q1", prompt="2 + 2?", columns={"answer": "4"}), "4")
        Verdict(status=scored, reward=1.0, outcome=True, reason="solved: 1.0", checks=(...))

    Args:
        path: "module:function" or "file.py:function", or the function itself, which always runs in this process.
        text_form: how prompts and completions are passed. "text": strings; "messages": lists of chat messages, the
            completion one assistant message; "auto" as TRL does it: messages if the task's prompt is a conversation.
        threshold: the smallest value that counts as solved; None = reward_max.
        reward_min: the value that becomes reward 0; smaller ones are clamped to it.
        reward_max: the value that becomes reward 1; larger ones are clamped to it.
        time_limit_s: seconds for one call.
        isolate: run in workers that are killed when late and have no network, no files to write, no new processes.
            False: in this process, where a late call is given up but goes on.
        memory_limit_mb: address space of a worker.
        num_workers: calls at the same time.
        gold_column: task column with a completion that solves it, None = there is none.
        base_folder: where a file and the modules beside it are looked up; None is the current folder.

    Raises:
        VerifierError: a setting that cannot be used, or no such file.
    """

    def __init__(
        self,
        path: str | RewardFunction,
        *,
        text_form: TextForm = "auto",
        threshold: float | None = None,
        reward_min: float = 0.0,
        reward_max: float = 1.0,
        time_limit_s: float = 10.0,
        isolate: bool = True,
        memory_limit_mb: int = 4096,
        num_workers: int = 1,
        gold_column: str | None = None,
        base_folder: Path | None = None,
    ) -> None:
        _require(text_form in ("auto", "text", "messages"), "text_form", text_form, "auto, text or messages")
        in_order = math.isfinite(reward_min) and math.isfinite(reward_max) and reward_min < reward_max
        _require(in_order, "reward_min, reward_max", (reward_min, reward_max), "two finite numbers, the smaller first")
        threshold = reward_max if threshold is None else threshold
        inside = reward_min < threshold <= reward_max
        _require(inside, "threshold", threshold, f"a number above {reward_min}, up to {reward_max}")
        _require(time_limit_s > 0, "time_limit_s", time_limit_s, "seconds above 0")
        _require(memory_limit_mb >= 256, "memory_limit_mb", memory_limit_mb, "256 or more")
        _require(num_workers >= 1, "num_workers", num_workers, "1 or more")
        self._folder = Path.cwd() if base_folder is None else Path(base_folder).absolute()
        self._path = path
        self._text_form = text_form
        self._threshold, self._reward_min, self._reward_max = threshold, reward_min, reward_max
        self._time_limit_s = time_limit_s
        self._memory_limit_mb = memory_limit_mb
        self._gold_column = gold_column
        if isinstance(path, str):
            _refuse_place(path, self._folder)
        self._runner: Runner
        if isolate and isinstance(path, str):
            self._runner = IsolatedRunner(
                path,
                self._folder,
                time_limit_s=time_limit_s,
                memory_limit_mb=memory_limit_mb,
                num_workers=num_workers,
            )
        else:
            self._runner = ThreadRunner(path, self._folder, time_limit_s=time_limit_s, num_workers=num_workers)

    def judge(self, task: Task, completion_text: str) -> Verdict:
        """Calls the function with this one completion; see the module's table for what can come out."""
        if len(completion_text) > MAX_COMPLETION_CHARS:
            check = Check(
                name="length", passed=False, expected=f"at most {MAX_COMPLETION_CHARS}", found=str(len(completion_text))
            )
            reason = f"too_large: {len(completion_text)} characters, at most {MAX_COMPLETION_CHARS} are judged"
            return Verdict(status=Status.INVALID, reward=0.0, outcome=False, reason=reason, checks=(check,))
        prompt, completion = _as_trl(task, completion_text, self._text_form)
        try:
            value = self._runner.call(prompt, completion, task.columns)
        except CallFailed as failed:
            check = Check(name="returned", passed=False, expected="a list with one finite number", found=failed.word)
            return Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason=str(failed), checks=(check,))
        return self._scored(value)

    def gold(self, task: Task) -> str:
        """The completion in gold_column.

        Raises:
            VerifierError: no column is named, or it holds no text.
        """
        if self._gold_column is None:
            raise VerifierError(
                f"gold_unknown: a reward function knows no right answer to task {task.id!r}; "
                "set gold_column to a column with a completion that it pays in full"
            )
        return gold_text(task, self._gold_column)

    def check(self, tasks: Sequence[Task]) -> list[UnusableGold]:
        """Runs the function on every gold, or on an empty completion where there is none, and says what is wrong.

        Without gold_column a task cannot be proved: a weakness. That an empty completion counts as solved is one too.
        """
        return [problem for task in tasks for problem in self._check_one(task)]

    def _check_one(self, task: Task) -> list[UnusableGold]:
        empty = self.judge(task, "")
        broken = empty.reason.partition(":")[0] in ("load_failed", "column_missing", "worker_failed", "closed")
        if broken:
            return [UnusableGold(task_id=task.id, reason=empty.reason)]
        problems = []
        if empty.outcome is True:
            problems.append("empty_solves: an empty completion counts as solved")
        elif empty.status is Status.UNSCORED:
            problems.append(f"empty_unscored: an empty completion cannot be judged: {empty.reason}")
        weak = [UnusableGold(task_id=task.id, reason=reason, blocking=False) for reason in problems]
        try:
            own = self.judge(task, self.gold(task))
        except VerifierError as error:
            return [*weak, UnusableGold(task_id=task.id, reason=str(error), blocking=self._gold_column is not None)]
        if own.reward == 1.0 and own.outcome:
            return weak
        reason = f"gold_failed: the gold earns {own.reward}: {own.reason}"
        return [*weak, UnusableGold(task_id=task.id, reason=reason, blocking=own.outcome is not True)]

    @property
    def version(self) -> str:
        """Hash of what a verdict depends on: this code, the settings, the file that holds the function. What that file
        imports is not part of it.
        """
        digest = hashlib.sha256()
        for source in sorted(Path(__file__).parent.glob("function_*.py")):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        settings = [
            self._path.rsplit("/", 1)[-1] if isinstance(self._path, str) else "",  # the same from any folder
            self._text_form,
            self._threshold,
            self._reward_min,
            self._reward_max,
            self._time_limit_s,
            isinstance(self._runner, IsolatedRunner),
            self._memory_limit_mb,
        ]
        digest.update(json.dumps(settings).encode() + _source_of(self._path, self._folder))
        return digest.hexdigest()[:16]

    def close(self) -> None:
        """Ends the workers; later verdicts are unscored."""
        self._runner.close()

    def _scored(self, value: float) -> Verdict:
        clamped = min(max(value, self._reward_min), self._reward_max)
        solved = value >= self._threshold
        reward = (clamped - self._reward_min) / (self._reward_max - self._reward_min)
        checks = (
            Check(name="solved", passed=solved, expected=f"{self._threshold} or more", found=repr(value)),
            Check(
                name="in_range",
                passed=clamped == value,
                expected=f"{self._reward_min} to {self._reward_max}",
                found=repr(value),
            ),
        )
        reason = f"{'solved' if solved else 'not_solved'}: {value!r}"
        if clamped != value:
            reason += f", clamped to {clamped!r}"
        return Verdict(status=Status.SCORED, reward=reward, outcome=solved, reason=reason, checks=checks)


def _as_trl(task: Task, completion_text: str, form: TextForm) -> tuple[Any, Any]:
    """Prompt and completion in the form that the function expects."""
    talks = not isinstance(task.prompt, str)
    if form == "messages" or (form == "auto" and talks):
        prompt = (
            [{"role": "user", "content": task.prompt}]
            if isinstance(task.prompt, str)
            else [dict(message) for message in task.prompt]
        )
        return prompt, [{"role": "assistant", "content": completion_text}]
    if isinstance(task.prompt, str):
        return task.prompt, completion_text
    return "\n\n".join(message["content"] for message in task.prompt), completion_text


def _refuse_place(place: str, folder: Path) -> None:
    source, _, name = place.rpartition(":")
    plain = bool(source) and all(part.isidentifier() for part in name.split("."))
    _require(plain, "path", place, '"module:function" or "file.py:function"')
    if source.endswith(".py"):
        _require((folder / source).is_file(), "path", place, f"a file that exists; it is looked up from {folder}")
    else:
        _require(all(part.isidentifier() for part in source.split(".")), "path", place, "a dotted module name")


def _source_of(path: str | RewardFunction, folder: Path) -> bytes:
    """The bytes of the file with the function; its name where there is no such file."""
    if not isinstance(path, str):
        try:
            return inspect.getsource(path).encode()
        except (OSError, TypeError):
            return repr(getattr(path, "__qualname__", type(path).__qualname__)).encode()
    source = path.rpartition(":")[0]
    if source.endswith(".py"):
        return (folder / source).read_bytes()
    beside = folder / (source.replace(".", "/") + ".py")
    if beside.is_file():
        return beside.read_bytes()
    try:
        spec = importlib.util.find_spec(source)
    except (ImportError, ValueError):
        return source.encode()
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return source.encode()
    return Path(spec.origin).read_bytes()


def _require(condition: bool, name: str, given: object, allowed: str) -> None:
    if not condition:
        raise VerifierError(f"FunctionVerifier: {name} = {given!r} cannot be used; give {allowed}")
