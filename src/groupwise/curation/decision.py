"""What is known of each prompt of a curated set, and what becomes of it: kept, or not and why.

The pass rate of a prompt has a Beta posterior under the prior that all prompts of the set have together. A prompt is
kept where it was solved and was also not solved; dropped where its rate is surely too low or too high; and undecided
where neither is so, because "0 of 4" does not make a prompt impossible.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from enum import StrEnum

from groupwise.curation.pass_rate import PassRate
from groupwise.curation.prior import BetaPrior, fit_prior
from groupwise.curation.retire import PromptState, RetireRule
from groupwise.types import Task


class Reason(StrEnum):
    """Why a prompt is kept or not."""

    KEPT = "kept"
    """Solved sometimes."""
    BROKEN_GOLD = "broken_gold"
    """Its gold does not earn 1: it would look never solved, and the verifier would be to blame."""
    UNDETERMINED_GOLD = "undetermined_gold"
    """Its gold does not tell right answers from wrong ones; only where such golds are to be dropped."""
    TOO_LONG = "too_long"
    """Over data.max_prompt_tokens."""
    LEAKS_INTO_HELDOUT = "leaks_into_heldout"
    """Held out, too: evaluation would measure memory."""
    CONFLICTING_GOLD = "conflicting_gold"
    """The text of an earlier prompt with another gold; one of the two is wrong."""
    DUPLICATE = "duplicate"
    """An earlier prompt again."""
    NOT_DRAWN = "not_drawn"
    """Not among the curation.num_prompts prompts that were drawn."""
    NEVER_SOLVED = "never_solved"
    """No completion solved it, and its rate is surely too low."""
    TOO_HARD = "too_hard"
    """Some completion solved it, and its rate is surely too low all the same."""
    ALWAYS_SOLVED = "always_solved"
    """Every completion solved it, and its rate is surely too high."""
    TOO_EASY = "too_easy"
    """Some completion did not solve it, and its rate is surely too high all the same."""
    UNDECIDED = "undecided"
    """Its limit or the budget ended before its rate was clear."""


BEFORE_SAMPLING = frozenset(
    {
        Reason.BROKEN_GOLD,
        Reason.UNDETERMINED_GOLD,
        Reason.TOO_LONG,
        Reason.LEAKS_INTO_HELDOUT,
        Reason.CONFLICTING_GOLD,
        Reason.DUPLICATE,
        Reason.NOT_DRAWN,
    }
)
"""Reasons that need no completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurateOptions:
    """How much is sampled and what is kept.

    Example:
        CurateOptions(samples_per_prompt=4, max_samples_per_prompt=32, budget=20_000)

    Raises:
        ValueError: for limits that contradict each other.
    """

    samples_per_prompt: int = 4
    """Completions of every prompt, 1 or more."""
    max_samples_per_prompt: int = 16
    """Completions of a prompt whose rate stays unclear, samples_per_prompt or more."""
    budget: int | None = None
    """Completions of all prompts together, those of earlier calls included; None = no limit."""
    rule: RetireRule = field(default_factory=RetireRule)
    """When a rate is surely too low or too high; the same rule sets prompts aside while training."""
    completions_at_once: int = 1024
    """Completions of one call of the sampler; what an interruption loses at most."""

    def __post_init__(self) -> None:
        if not 1 <= self.samples_per_prompt <= self.max_samples_per_prompt:
            raise ValueError(
                f"CurateOptions: expected 1 <= samples_per_prompt <= max_samples_per_prompt, got "
                f"{self.samples_per_prompt} and {self.max_samples_per_prompt}"
            )
        if self.budget is not None and self.budget < 1:
            raise ValueError(f"CurateOptions: budget must be 1 or more completions, got {self.budget}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What the sampler reports of one prompt.

    Example:
        Drawn(solved=1, scored=4, num_samples=4, completion_tokens=96, solved_tokens=20, longest_tokens=40)
    """

    solved: int
    scored: int
    """Completions with a verdict."""
    num_samples: int
    """Completions, those without a verdict included."""
    completion_tokens: int = 0
    """Tokens of all completions together."""
    solved_tokens: int = 0
    """Tokens of those that solved the task."""
    scored_tokens: int = 0
    """Tokens of those with a verdict."""
    longest_tokens: int = 0
    """Tokens of the longest completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A prompt that need not be sampled: Exclusion(reason=Reason.DUPLICATE, detail="of q3: the same text")."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratedRow:
    """One prompt of the curated set.

    Example:
        CuratedRow(id="q17", key="9f...", solved=3, scored=8, num_samples=8)
    """

    id: str
    key: str
    """Hash of all that the task consists of but its id; see task_key."""
    solved: int = 0
    scored: int = 0
    num_samples: int = 0
    completion_tokens: int = 0
    solved_tokens: int = 0
    scored_tokens: int = 0
    longest_tokens: int = 0
    """Of its first visit, so that prompts with more completions do not count as longer."""
    prompt_tokens: int = 0
    excluded: Exclusion | None = None
    notes: tuple[str, ...] = ()
    """What a reader should know of a prompt that is kept all the same, such as a weak gold."""

    def with_drawn(self, drawn: Drawn) -> CuratedRow:
        """The row after one more visit."""
        return replace(
            self,
            solved=self.solved + drawn.solved,
            scored=self.scored + drawn.scored,
            num_samples=self.num_samples + drawn.num_samples,
            completion_tokens=self.completion_tokens + drawn.completion_tokens,
            solved_tokens=self.solved_tokens + drawn.solved_tokens,
            scored_tokens=self.scored_tokens + drawn.scored_tokens,
            longest_tokens=self.longest_tokens or drawn.longest_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of a prompt: Decision(reason=Reason.UNDECIDED, detail="solved 0 of 4; the rate may be 0.24")."""

    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curation:
    """Every prompt with its counts, under the prior that they have together."""

    rows: tuple[CuratedRow, ...]
    """In the order of the tasks."""
    options: CurateOptions = field(default_factory=CurateOptions)

    @property
    def prior(self) -> BetaPrior:
        """The Beta distribution of pass rates that the counts of all sampled prompts point to."""
        return fit_prior([(row.solved, row.scored) for row in self.rows if row.scored])

    def decisions(self) -> tuple[Decision, ...]:
        """What becomes of each row."""
        prior = self.prior
        return tuple(decide(row, prior, self.options) for row in self.rows)

    def kept(self) -> tuple[int, ...]:
        """Positions of the rows that are kept."""
        return tuple(i for i, decision in enumerate(self.decisions()) if decision.reason is Reason.KEPT)

    @property
    def num_samples(self) -> int:
        """Completions drawn so far."""
        return sum(row.num_samples for row in self.rows)


def task_key(task: Task) -> str:
    """A hash of the prompt and all columns of a task: two tasks with one key are the same problem with the same gold.

    Row numbers, and with them made-up ids, change when rows are dropped from a file; this does not.
    """
    prompt = task.prompt if isinstance(task.prompt, str) else [dict(turn) for turn in task.prompt]
    text = json.dumps([prompt, dict(task.columns)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def decide(row: CuratedRow, prior: BetaPrior, options: CurateOptions) -> Decision:
    """What becomes of one prompt under its posterior Beta(alpha + solved, beta + scored - solved).

    P(rate <= hopeless_below) >= confidence      never_solved, or too_hard where it was solved after all
    P(rate >= solved_above)   >= confidence      always_solved, or too_easy where it was not always
    solved and not solved, with a mean between the two      kept
    anything else      undecided
    """
    if row.excluded is not None:
        return Decision(reason=row.excluded.reason, detail=row.excluded.detail)
    if row.scored == 0:
        what = "no completion could be judged" if row.num_samples else "not sampled: the budget ended before"
        return Decision(reason=Reason.UNDECIDED, detail=what)
    rate = prior.posterior(solved=row.solved, scored=row.scored)
    count = f"solved {row.solved} of {row.scored}"
    state = options.rule.state_of(rate)
    if state is PromptState.NEVER_SOLVED:
        return Decision(reason=Reason.TOO_HARD if row.solved else Reason.NEVER_SOLVED, detail=count)
    if state is PromptState.ALWAYS_SOLVED:
        failed = row.solved < row.scored
        return Decision(reason=Reason.TOO_EASY if failed else Reason.ALWAYS_SOLVED, detail=count)
    sometimes = 0 < row.solved < row.scored
    if sometimes and options.rule.hopeless_below < rate.mean < options.rule.solved_above:
        return Decision(reason=Reason.KEPT, detail=count)
    return Decision(reason=Reason.UNDECIDED, detail=f"{count}: {_unsure(rate, options.rule)}")


def _unsure(rate: PassRate, rule: RetireRule) -> str:
    low, high = rate.interval()
    side = "hard" if rate.mean < (rule.hopeless_below + rule.solved_above) / 2 else "easy"
    return f"not sure that it is too {side}, the rate may lie anywhere in [{low:.2f}, {high:.2f}]"
