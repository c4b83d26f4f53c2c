"""Stand-ins for what a test is not about: a verifier, tasks, prompts and completions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from groupwise.types import Completion, Prompt, Status, Stop, Task, Verdict


def fake_task(number: int = 0, prompt: str = "How many bikes?") -> Task:
    """A task with the id q<number>."""
    return Task(id=f"q{number}", prompt=prompt, columns={"gold": "SELECT 1"})


def fake_prompts(*token_ids: Sequence[int]) -> list[Prompt]:
    """One prompt for each id list, for the tasks q0, q1, ..."""
    return [Prompt(task_id=f"q{n}", token_ids=tuple(ids)) for n, ids in enumerate(token_ids)]


def fake_completion(text: str, *, stop: Stop = Stop.END) -> Completion:
    """One token a character, each at -1 nat."""
    return Completion(text=text, token_ids=tuple(map(ord, text)), sampler_logprobs=(-1.0,) * len(text), stop=stop)


@dataclass(kw_only=True)
class FakeVerifier:
    """Pays 1 for what `solves` accepts and 0 for the rest; `raises` names texts at which it breaks."""

    solves: Callable[[Task, str], bool] = lambda task, text: text == "right"
    raises: dict[str, BaseException] = field(default_factory=dict)
    judged: list[tuple[str, str]] = field(default_factory=list)
    """(task id, text) of every call, in the order of arrival."""

    def judge(self, task: Task, completion_text: str) -> Verdict:
        self.judged.append((task.id, completion_text))
        if completion_text in self.raises:
            raise self.raises[completion_text]
        solved = self.solves(task, completion_text)
        return Verdict(status=Status.SCORED, reward=float(solved), outcome=solved, reason="fake")

    def gold(self, task: Task) -> str:
        return "right"
