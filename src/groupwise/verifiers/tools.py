"""Judges tool calls: read, validated, simulated, and compared with what the task requires, in that order.

The verifier takes a finished transcript. Results are what the simulation returns, never what the text says they were.
How calls are read is in tools_parse.py, patterns in tools_match.py, a task's columns in tools_plan.py, the criteria in
tools_judge.py. Whose fault a failure is:

    status      reason starts with
    ----------  --------------------------------------------------------------------------------------------------
    scored      right_calls right_refusal | called_a_tool missing_call extra_call wrong_tool wrong_arguments
                call_failed forbidden_call wrong_writes wrong_end_state missing_step wrong_order missing_answer
    invalid     bad_call unclosed call_in_fence unknown_tool bad_arguments too_large too_many_calls no_answer
                wrote_response response_differs timeout
    unscored    gold_missing gold_bad gold_empty gold_failed tools_bad state_missing state_bad effects_missing
                effects_bad required_bad forbidden_bad end_state_bad volatile_bad worker_failed
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any, Literal

from groupwise.errors import VerifierError
from groupwise.types import Status as VerdictStatus
from groupwise.types import Task, Verdict
from groupwise.verifiers.contract import UnusableGold
from groupwise.verifiers.lru_cache import LruCache
from groupwise.verifiers.tools_effects import StepResult
from groupwise.verifiers.tools_json import JsonProblem, read_whole
from groupwise.verifiers.tools_judge import Episode, Rules, invalid, judge_episode, judge_no_call
from groupwise.verifiers.tools_match import matches_plain
from groupwise.verifiers.tools_parse import CallForm, Transcript, parse_transcript
from groupwise.verifiers.tools_plan import COLUMNS, SHARED, ToolPlan, read_plan
from groupwise.verifiers.tools_rules import example_object
from groupwise.verifiers.tools_steps import DoneCall
from groupwise.verifiers.tools_world import PolicyTooSlow, ToolWorker, run_effects, writes_of

MAX_CACHED_TASKS = 4096
REFUSAL = "None of the tools fits this request."
"""What gold() says where no call is right and no answer is asked for."""

RightCall = tuple[str, dict[str, Any]]


class ToolVerifier:
    """Tool calls against declared truth, with structured verdicts. Safe to call from many threads.

    Example:
        tools = [{"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}]
        task = Task(id="t1", prompt="...", columns={"tools": tools, "calls": [{"name": "add", "arguments": {"a": 1}}]})
        ToolVerifier().judge(task, '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>')
        Verdict(status=scored, reward=1.0, outcome=True, reason="right_calls: 1 calls", checks=(...))

    Args: see config.ToolsVerifierSection; columns are those of tools_plan. base_folder is where relative paths start
    (None: the current folder).

    Raises:
        VerifierError: a setting or the world file cannot be used.
    """

    def __init__(
        self,
        *,
        columns: Mapping[str, str] | None = None,
        world: str = "",
        functions: str = "",
        call_form: CallForm = "auto",
        responses: Literal["refuse", "check"] = "refuse",
        match: Literal["auto", "exact", "writes"] = "auto",
        max_calls: int = 32,
        max_failed_calls: int = 0,
        time_limit_s: float = 2.0,
        partial_cap: float = 0.0,
        base_folder: Path | None = None,
    ) -> None:
        _require(call_form in ("auto", "tags", "json"), "call_form", call_form, '"auto", "tags" or "json"')
        _require(responses in ("refuse", "check"), "responses", responses, '"refuse" or "check"')
        _require(match in ("auto", "exact", "writes"), "match", match, '"auto", "exact" or "writes"')
        _require(1 <= max_calls <= 256, "max_calls", max_calls, "1 to 256")
        _require(max_failed_calls >= 0, "max_failed_calls", max_failed_calls, "0 or more")
        _require(time_limit_s > 0, "time_limit_s", time_limit_s, "seconds above 0")
        _require(0 <= partial_cap < 1, "partial_cap", partial_cap, "0 to below 1")
        _require(set(columns or ()) <= set(COLUMNS), "columns", columns, "names out of " + ", ".join(COLUMNS))
        folder = Path.cwd() if base_folder is None else Path(base_folder).absolute()
        self._columns = dict(columns or {})
        self._world_path = folder / world if world else None
        self._functions_path = folder / functions if functions else None
        self._call_form: CallForm = call_form
        self._responses = responses
        self._match = match
        self._max_calls = max_calls
        self._rules = Rules(exact=True, max_failed_calls=max_failed_calls, partial_cap=partial_cap)
        self._time_limit_s = time_limit_s
        self._world = _read_world(self._world_path)
        if self._functions_path is not None:
            exists = self._functions_path.is_file()
            _require(exists, "functions", functions, f"a Python file under {folder}")
        self._worker = ToolWorker(functions=self._functions_path, time_limit_s=time_limit_s)
        self._prepared: LruCache[tuple[Task, _Prepared]] = LruCache(MAX_CACHED_TASKS)

    def judge(self, task: Task, completion_text: str) -> Verdict:
        """Reads, validates, simulates and compares; see the module's table for what can come out."""
        try:
            prepared = self._prepare(task)
            return self._judge(task, prepared, completion_text)
        except VerifierError as error:
            return Verdict(status=VerdictStatus.UNSCORED, reward=None, outcome=None, reason=str(error))
        except PolicyTooSlow as error:
            return invalid(f"timeout: {error}")

    def gold(self, task: Task) -> str:
        """The right calls as a completion, in tags or, where only that is read, as a JSON list.

        Raises:
            VerifierError: the task has no usable gold.
        """
        prepared = self._prepare(task)
        return self._written(prepared.plan, prepared.right_calls)

    def check(self, tasks: Sequence[Task]) -> list[UnusableGold]:
        """Proves each task: its gold earns 1, the empty completion does not, and every gold call is needed (a weakness
        where not)."""
        problems = [problem for task in tasks if (problem := self._check_one(task)) is not None]
        refused = {problem.task_id for problem in problems if problem.blocking}
        usable = [task for task in tasks if task.id not in refused]
        if usable and all(self._prepare(task).plan.no_call for task in usable):
            reason = f"all_no_call: in all {len(usable)} tasks no call is right, so never calling earns everything"
            problems.append(UnusableGold(task_id=usable[0].id, reason=reason, blocking=False))
        return problems

    @property
    def version(self) -> str:
        """Hash of what a verdict depends on: this code, the schema library, the settings, the files named in them."""
        digest = hashlib.sha256()
        here = Path(__file__).parent
        sources = [*sorted(here.glob("tools*.py")), *sorted((here.parent / "sandbox").glob("*.py"))]
        sources += [path for path in (self._world_path, self._functions_path) if path is not None]
        for source in sources:
            digest.update(source.name.encode() + b"\0" + hashlib.sha256(source.read_bytes()).digest())
        settings: list[object] = [self._columns, self._call_form, self._responses, self._match, self._max_calls]
        settings += [self._rules.max_failed_calls, self._rules.partial_cap, self._time_limit_s]
        settings.append(package_version("jsonschema"))
        digest.update(json.dumps(settings, sort_keys=True).encode())
        return digest.hexdigest()[:16]

    def close(self) -> None:
        """Ends the worker processes; verdicts that need one are then unscored."""
        self._worker.close()

    def _prepare(self, task: Task) -> _Prepared:
        found = self._prepared.get(id(task))
        if found is not None and found[0] is task:  # the cache holds the task, so its id is not given to another
            return found[1]
        plan = read_plan(
            task,
            columns=self._columns,
            world=self._world,
            search=self._worker.search,
            has_functions=self._functions_path is not None,
        )
        try:
            prepared = self._run_gold(task, plan)
        except PolicyTooSlow as error:
            raise VerifierError(f"gold_failed: {error}") from error
        self._prepared.put(id(task), (task, prepared))
        return prepared

    def _run_gold(self, task: Task, plan: ToolPlan) -> _Prepared:
        right: list[RightCall] = []
        bound: dict[str, tuple[Mapping[str, Any], Any]] = {}
        for call in plan.calls:
            arguments = example_object(call.written, plan.tools.schemas[call.name], bound)
            problem = plan.tools.problem(call.name, arguments)
            if problem:
                raise VerifierError(f"gold_bad: call {call.id}: {problem}")
            right.append((call.name, arguments))
            if plan.state is not None:  # what later calls refer to
                step = self._simulate(task, plan, right)[-1]
                if not step.ok:
                    raise VerifierError(f"gold_failed: call {call.id} of {call.name}: {step.result}")
                bound[call.id] = (arguments, step.result)
        episode = self._episode(task, plan, right, ())
        if not plan.no_call and not self._is_exact(plan) and not episode.writes and not plan.required:
            raise VerifierError("gold_empty: the right calls change nothing and no step is required; give `required`")
        return _Prepared(plan, tuple(right), episode)

    def _is_exact(self, plan: ToolPlan) -> bool:
        return self._match == "exact" or (self._match == "auto" and plan.state is None)

    def _judge(self, task: Task, prepared: _Prepared, text: str) -> Verdict:
        plan = prepared.plan
        most = self._max_calls if plan.max_calls is None else min(plan.max_calls, self._max_calls)
        transcript = parse_transcript(text, self._call_form, most)
        if transcript.problem:
            return invalid(transcript.problem)
        if transcript.responses and self._responses == "refuse":
            return invalid("wrote_response: a tool response stands in the completion")
        if plan.no_call:
            return judge_no_call(plan, transcript.final_text, len(transcript.calls))
        calls, refused = _validated(plan, transcript)
        if len(refused) > self._rules.max_failed_calls:
            return invalid(next(iter(refused.values())))
        episode = self._episode(task, plan, calls, tuple(refused.items()), transcript.final_text)
        problem = _response_problem(transcript, episode.calls) if plan.state is not None else ""
        if problem:
            return invalid(problem)
        rules = Rules(
            exact=self._is_exact(plan),
            max_failed_calls=self._rules.max_failed_calls,
            partial_cap=self._rules.partial_cap,
        )
        return judge_episode(plan, prepared.episode, episode, rules)

    def _episode(
        self,
        task: Task,
        plan: ToolPlan,
        calls: Sequence[RightCall],
        refused: Sequence[tuple[int, str]],
        final_text: str = "",
    ) -> Episode:
        """Runs the calls, those refused by their schema left out, and keeps all in their order."""
        problems = dict(refused)
        runs = [
            (name, plan.tools.with_defaults(name, given)) for i, (name, given) in enumerate(calls) if i not in problems
        ]
        steps = self._simulate(task, plan, runs) if plan.state is not None else []
        results = iter(steps)
        done: list[DoneCall] = []
        for i, (name, given) in enumerate(calls):
            if i in problems:
                done.append(DoneCall(name=name, arguments=given, ok=False, result={"error": problems[i]}))
                continue
            step = next(results, StepResult(ok=True, result=None, state={}))
            arguments = plan.tools.with_defaults(name, given)
            done.append(DoneCall(name=name, arguments=arguments, ok=step.ok, result=step.result))
        end_state = steps[-1].state if steps else plan.state
        writes = writes_of(plan.state, steps, plan.volatile) if plan.state is not None else Counter[str]()
        return Episode(calls=tuple(done), final_text=final_text, writes=writes, end_state=end_state)

    def _simulate(self, task: Task, plan: ToolPlan, calls: Sequence[RightCall]) -> list[StepResult]:
        assert plan.state is not None, "only a task with a state is simulated"
        if plan.effects is None:
            return self._worker.run(plan.state, calls)
        return run_effects(plan.effects, plan.state, calls, task.id)

    def _written(self, plan: ToolPlan, calls: Sequence[RightCall]) -> str:
        texts = [json.dumps({"name": name, "arguments": given}, ensure_ascii=False) for name, given in calls]
        final = ". ".join(plan.answer) or (REFUSAL if plan.no_call else "")
        if self._call_form == "json":
            return f"[{', '.join(texts)}]" if texts else final
        return "\n".join([*(f"<tool_call>\n{text}\n</tool_call>" for text in texts), *([final] if final else [])])

    def _check_one(self, task: Task) -> UnusableGold | None:
        try:
            prepared = self._prepare(task)
        except VerifierError as error:
            return UnusableGold(task_id=task.id, reason=str(error))
        plan, right = prepared.plan, prepared.right_calls
        own = self.judge(task, self._written(plan, right))
        if own.reward != 1.0:
            return UnusableGold(task_id=task.id, reason=f"gold_failed: judged against itself: {own.reason}")
        if not plan.no_call:
            final = ". ".join(plan.answer) or REFUSAL
            if self.judge(task, final).reward == 1.0 or self.judge(task, "").reward == 1.0:
                return UnusableGold(task_id=task.id, reason="do_nothing_passes: a completion without a call earns 1")
        for i, (name, _) in enumerate(right):
            if self.judge(task, self._written(plan, (*right[:i], *right[i + 1 :]))).reward == 1.0:
                reason = (
                    f"call_not_needed: without call {plan.calls[i].id} ({name}) the rest earns 1; require it as a step"
                )
                return UnusableGold(task_id=task.id, reason=reason, blocking=False)
        return None


class _Prepared:
    """A task's plan, its right calls written out, and what they do."""

    __slots__ = ("episode", "plan", "right_calls")

    def __init__(self, plan: ToolPlan, right_calls: tuple[RightCall, ...], episode: Episode) -> None:
        self.plan, self.right_calls, self.episode = plan, right_calls, episode


def _validated(plan: ToolPlan, transcript: Transcript) -> tuple[list[RightCall], dict[int, str]]:
    """The calls, and by index why the schema refuses some."""
    calls: list[RightCall] = []
    refused: dict[int, str] = {}
    for i, call in enumerate(transcript.calls):
        arguments = plan.tools.typed(call.name, call.arguments) if call.untyped else dict(call.arguments)
        problem = plan.tools.problem(call.name, arguments)
        if problem:
            refused[i] = problem
        calls.append((call.name, arguments))
    return calls, refused


def _response_problem(transcript: Transcript, calls: Sequence[DoneCall]) -> str:
    """Why the tool responses in the text are not those of the simulation; empty where they are."""
    for expected, (num_before, text) in enumerate(transcript.responses):
        if expected >= num_before:
            return "response_differs: a tool response without a call before it"
        try:
            said = read_whole(text)
        except JsonProblem:
            said = text
        if not matches_plain(calls[expected].result, said):
            return f"response_differs: the response to call {expected + 1} is not what the tool returns"
    return ""


def _read_world(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    try:
        world = read_whole(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, JsonProblem) as error:
        raise VerifierError(f"ToolVerifier: world = {str(path)!r} cannot be read: {error}") from error
    if not isinstance(world, Mapping) or not set(world) <= set(SHARED):
        raise VerifierError(
            f"ToolVerifier: world = {str(path)!r} must be an object with keys out of {', '.join(SHARED)}"
        )
    return world


def _require(condition: bool, name: str, given: object, allowed: str) -> None:
    if not condition:
        raise VerifierError(f"ToolVerifier: {name} = {given!r} cannot be used; give {allowed}")
