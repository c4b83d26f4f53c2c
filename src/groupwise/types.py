"""The records that flow through one step, and the two seams that the loop is handed.

    Task --render--> Prompt --Engine--> Completion --Verifier--> Verdict
                                             Rollout  x G  =  Group

Everything here is frozen and imports the standard library only, so that a verifier author, a data tool or a report
needs no tensor library. A rollout carries the sampled token ids from the sampler to the loss: text is never
tokenised a second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

Message = Mapping[str, str]
"""One chat turn: {"role": "user", "content": "How many?"}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem with its ground truth.

    Example:
        Task(id="q17", prompt="How many singers are there?", demonstration="SELECT count(*) FROM singer",
             columns={"gold": "SELECT count(*) FROM singer", "database": "concert_singer.sqlite"})
    """

    id: str
    """Unique within one data set. Groups, ledgers and reports are keyed by it."""
    prompt: str | tuple[Message, ...]
    """Plain text, or chat turns that end with the user's."""
    demonstration: str | None = None
    """A completion worth imitating (SFT), or None."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Every other column of the data row, unchanged. A verifier reads its ground truth here."""


class Stop(StrEnum):
    """Why a completion ended. Only END is a finished thought."""

    END = "end"
    """The model produced one of its end tokens, or a stop string."""
    LENGTH = "length"
    """Cut at the token limit."""
    ABORTED = "aborted"
    """The engine gave up on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A task's prompt as the model sees it.

    Example:
        Prompt(task_id="q17", token_ids=(1, 9690, 198))
    """

    task_id: str
    token_ids: tuple[int, ...]
    """The chat template applied, special tokens and generation prompt included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the policy wrote after one prompt.

    Example:
        Completion(text="SELECT 1", token_ids=(12, 9, 2), sampler_logprobs=(-0.2, -1.1, -0.01),
                   stop=Stop.END, policy_version=7)
    """

    text: str
    """The decoded completion, without special tokens. This is what a verifier judges."""
    token_ids: tuple[int, ...] = ()
    """[L] sampled tokens, the end token included."""
    sampler_logprobs: tuple[float, ...] = ()
    """[L] nats, under the distribution sampled from."""
    stop: Stop = Stop.END
    policy_version: int = 0
    """Optimizer steps contained in the weights that sampled this."""
    reported_tokens: int | None = None
    """How many tokens a server says it wrote, where it does not say which; None where token_ids are known."""

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.sampler_logprobs), "one log-probability a token"

    @property
    def num_tokens(self) -> int:
        """Its length, the end token included; 0 where nobody knows it."""
        return len(self.token_ids) or self.reported_tokens or 0


class Status(StrEnum):
    """Whose judgement a verdict is."""

    SCORED = "scored"
    """The verifier could decide."""
    INVALID = "invalid"
    """The policy's fault: unparsable, forbidden, oversized or too slow. Lowest reward."""
    UNSCORED = "unscored"
    """The verifier's fault. No reward, out of the group's baseline, counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One named thing that a verifier looked at.

    Example:
        Check(name="rows", passed=False, expected="3 rows", found="4 rows")
    """

    name: str
    passed: bool
    expected: str = ""
    found: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A structured judgement of one completion.

    status      reward      outcome      meaning
    ----------  ----------  -----------  ------------------------------------------------------------
    scored      0..1        True, False  the verifier decided; outcome says solved or not
    invalid     0           False        the completion broke a rule; the policy pays
    unscored    None        None         the verifier failed; nobody pays, and it is counted

    Example:
        Verdict(status=Status.SCORED, reward=1.0, outcome=True, reason="same rows on 3 snapshots")
    """

    status: Status
    reward: float | None
    outcome: bool | None
    reason: str
    """Short and readable; starts with a stable word such as "wrong_rows" so that reasons can be counted."""
    checks: tuple[Check, ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Where a verdict is put together from several: what each named part adds to the reward before its weight, 0..1.
    The weights times these numbers sum to the reward. Empty for a verdict of one part."""

    def __post_init__(self) -> None:
        unscored = self.status is Status.UNSCORED
        assert (self.reward is None) == unscored, "a reward is missing exactly where the verifier failed"
        assert (self.outcome is None) == unscored, "an outcome is missing exactly where the verifier failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One attempt at one task: Rollout(completion=Completion(...), verdict=Verdict(...))."""

    completion: Completion
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All rollouts of one prompt: Group(task=task, prompt=prompt, rollouts=(r1, r2, r3, r4))."""

    task: Task
    prompt: Prompt
    rollouts: tuple[Rollout, ...]

    @property
    def num_scored(self) -> int:
        """Rollouts that have a reward (invalid ones do, unscored ones do not)."""
        return sum(r.verdict.reward is not None for r in self.rollouts)

    @property
    def num_solved(self) -> int:
        """Rollouts whose outcome is True."""
        return sum(r.verdict.outcome is True for r in self.rollouts)

    @property
    def is_dead(self) -> bool:
        """All scored outcomes equal: solved by every rollout or by none. Decided on the outcome, never on a shaped
        reward, so that a length bonus cannot make a group of wrong answers look alive."""
        return self.num_solved in (0, self.num_scored)


class Verifier(Protocol):
    """Judges one completion. Same input, same verdict, in any thread and any process."""

    def judge(self, task: Task, completion_text: str) -> Verdict:
        """The verdict on one completion of this task."""
        ...

    def gold(self, task: Task) -> str:
        """A completion that must earn reward 1."""
        ...


@runtime_checkable
class GroupVerifier(Verifier, Protocol):
    """A verifier for which many completions at once are cheaper than one after the other, such as a model."""

    def judge_many(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """The verdicts of judge(task, completion text) in the order of the pairs; those of one task stand together."""
        ...


class Recorder(Protocol):
    """Where a run writes down what happened. Recording never stops training."""

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """One row of numbers after an optimizer step."""
        ...

    def rollouts(
        self,
        stage: str,
        step: int,
        groups: Sequence[Group],
        advantages: Sequence[Sequence[float]],
        *,
        left_out: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """Every completion of the step with its verdict; advantages[g][i] belongs to groups[g].rollouts[i].

        left_out[g][i] says why it has no place in the loss: "unscored", "truncated" (cut, and masked), "dead_group" (no
        rollout of its group has an advantage), "replaced" (its group made room for a live one); empty where it trains.
        None = nobody knows, or nothing is trained on these.
        """
        ...

    def event(self, name: str, payload: Mapping[str, Any]) -> None:
        """Something that happened once: a stage began, prompts were set aside, a checkpoint was written."""
        ...
