"""The lengths in tokens that a plan starts from: counted in the data, or as a run has measured them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from groupwise.config import Recipe
from groupwise.data import PreferencePair, TaskSets
from groupwise.types import Task

TURN_TOKENS = 5
"""What a chat template puts around a turn, about: role, start and end."""
CHARACTERS_PER_TOKEN = 3.5
"""Of English and code, about; used where the tokenizer's file is not at hand."""
ASSUMED_SHARE_OF_LIMIT = 0.5
"""Length of a completion as a share of rollout.max_completion_tokens, where nothing is known of it."""
LONGEST_OVER_MEAN = 2.0
"""Longest completion of a step over the mean, where nothing is known of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Mean lengths in tokens.

    Example:
        Lengths(prompt=150.0, trunk=110.0, demonstration=20.0, completion=21.0, longest=48.0, source="counted")
    """

    prompt: float
    trunk: float
    """What all prompts begin with."""
    demonstration: float
    completion: float
    longest: float
    """Longest completion of a step."""
    source: str
    """Where these numbers come from, for the reader."""
    sibling_prefix: float = 0.0
    """What a completion shares with the next one of its group; 0 where nothing was sampled."""
    pair_prompt: float = 0.0
    """Prompt of a preference pair; 0 where there are none."""
    pair_side: float = 0.0
    """One completion of a preference pair; 0 where there are none."""

    @property
    def of_pairs(self) -> tuple[float, float]:
        """(prompt, completion) of a pair; without pairs, what the tasks and demonstrations have."""
        return (self.pair_prompt, self.pair_side) if self.pair_side else (self.prompt, self.demonstration)


def planned_lengths(
    recipe: Recipe, sets: TaskSets, count_tokens: Callable[[str], int] | None, pairs: Sequence[PreferencePair] = ()
) -> Lengths:
    """Prompts, demonstrations and pairs counted; completions taken to be as long as what is shown, or half the limit.

    The end token is counted with a demonstration. At least one task or pair must be given.
    """
    count = count_tokens or (lambda text: max(1, round(len(text) / CHARACTERS_PER_TOKEN)))
    of_pairs = [pair.task for pair in pairs]
    prompt, trunk = _prompt_lengths(sets.train or sets.heldout or sets.demonstrations or of_pairs, count)
    given = [count(t.demonstration) + 1 for t in sets.demonstrations if t.demonstration]
    sides = [count(side) + 1 for pair in pairs for side in (pair.chosen, pair.rejected)]
    limit, shown = recipe.rollout.max_completion_tokens, given or sides
    demonstration = fmean(shown) if shown else max(1.0, ASSUMED_SHARE_OF_LIMIT * limit)
    longest = max(shown) if shown else math.ceil(LONGEST_OVER_MEAN * demonstration)
    completion = min(float(limit), demonstration)
    how = "prompts counted with the model's tokenizer" if count_tokens else "prompts estimated from their characters"
    as_long_as = "as long as the demonstrations" if given else "as long as those of the pairs" if sides else None
    return Lengths(
        prompt=prompt,
        trunk=trunk,
        demonstration=demonstration,
        completion=completion,
        longest=min(float(limit), max(completion, longest)),
        source=f"{how}, completions assumed {as_long_as or 'half the limit'}",
        pair_prompt=_prompt_lengths(of_pairs, count)[0] if pairs else 0.0,
        pair_side=fmean(sides) if sides else 0.0,
    )


def _prompt_lengths(tasks: Sequence[Task], count: Callable[[str], int]) -> tuple[float, float]:
    """(mean length, what all begin with), with what a chat template adds, about."""
    prompts = [prompt_text(task) for task in tasks]
    turns = fmean(_num_turns(task) for task in tasks)
    overhead = TURN_TOKENS * (turns + 1) if turns else 1.0
    shared = prompts[0][: shared_length(prompts)]
    trunk = (count(shared) if shared else 0) + (TURN_TOKENS if turns else 0.0)
    mean = fmean(count(text) for text in prompts) + overhead
    return mean, min(mean, trunk)


def lengths_of_run(
    prompts: Sequence[Sequence[int]],
    demonstrations: Sequence[int],
    limit: int,
    *,
    completion: float | None = None,
    longest: float | None = None,
    sibling_prefix: float = 0.0,
    pairs: Sequence[tuple[int, float]] = (),
) -> Lengths:
    """The same for a run that has rendered its prompts (token ids), demonstrations and pairs.

    demonstrations are their lengths; pairs are (prompt, mean of the two completions). completion, longest and
    sibling_prefix are what the run has sampled; None assumes those of the demonstrations, or half the limit.
    """
    demonstration = fmean(demonstrations) if demonstrations else max(1.0, ASSUMED_SHARE_OF_LIMIT * limit)
    mean = min(float(limit), demonstration if completion is None else completion)
    most = longest or max(demonstrations, default=math.ceil(LONGEST_OVER_MEAN * mean))
    return Lengths(
        prompt=fmean(len(p) for p in prompts),
        trunk=float(shared_length(prompts)),
        demonstration=demonstration,
        completion=mean,
        longest=min(float(limit), max(mean, most)),
        sibling_prefix=min(mean, sibling_prefix),
        source="this run's prompts, completions " + ("as the demonstrations" if completion is None else "as sampled"),
        pair_prompt=fmean(prompt for prompt, _ in pairs) if pairs else 0.0,
        pair_side=fmean(side for _, side in pairs) if pairs else 0.0,
    )


def shared_length(sequences: Sequence[Sequence[int]] | Sequence[str]) -> int:
    """How many items all sequences begin with: those that the first and the last in order have in common."""
    first, last = min(sequences, key=tuple), max(sequences, key=tuple)
    pairs = enumerate(zip(first, last, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(last)))


def prompt_text(task: Task) -> str:
    """All turns of a prompt as one text."""
    if isinstance(task.prompt, str):
        return task.prompt
    return "\n".join(turn["content"] for turn in task.prompt)


def _num_turns(task: Task) -> int:
    return 0 if isinstance(task.prompt, str) else len(task.prompt)
