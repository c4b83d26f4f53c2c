"""What a run spends on learning, counted where the work is done, and the limit that [budget] sets.

    rollout tokens   of every completion that the engine samples
    seconds          on the clock, of everything between the beginning of a stage and its last step
    operations       2 a multiply-accumulate of the matrix products and of attention:
                     sampling    each distinct prefix of a call's prompts once, then every token but the last
                     scoring     a forward of the token tree of each micro-batch
                     training    its forward and backward, by planning.compute.train_flops

Held-out evaluations stop all three. Judging, drawing tokens and optimizer updates cost seconds and no operations here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from transformers import PreTrainedModel

from groupwise.config import Recipe
from groupwise.config.budget import BudgetSection
from groupwise.errors import ConfigError
from groupwise.launch.assemble import Policy
from groupwise.models import ScoredSequence
from groupwise.models.logprobs import ScoreFunction, TokenScores
from groupwise.models.token_tree import shared_prefix_length
from groupwise.planning.compute import forward_flops, train_flops
from groupwise.planning.model_shape import ModelShape, from_config
from groupwise.planning.step_tokens import TrainedTokens
from groupwise.rollout import Engine, Sampling
from groupwise.rollout.engine import Progress
from groupwise.types import Completion, Prompt

SPENT = "spent"
"""The event that a stage writes at its end: what the run has spent so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedModel:
    """What operations are counted with."""

    shape: ModelShape
    lora_rank: int | None
    gradient_checkpointing: bool

    def forward(self, tokens: TrainedTokens, *, with_head: bool = True) -> float:
        """Operations of a forward."""
        return forward_flops(self.shape, tokens, with_head=with_head)

    def train(self, tokens: TrainedTokens, *, with_head: bool = True) -> float:
        """Operations of a forward and its backward."""
        return train_flops(
            self.shape,
            tokens,
            0 if self.lora_rank is None else self.shape.lora_params(self.lora_rank),
            gradient_checkpointing=self.gradient_checkpointing,
            with_head=with_head,
        )


@dataclass(slots=True, kw_only=True)
class Spending:
    """The counts of one run. Without a budget nothing is used up.

    Example:
        with spending.learning():
            ...                        # counted
        spending.share                 # 0.4 of the budget
    """

    budget: BudgetSection | None = None
    counted: CountedModel | None = None
    """None where planning does not describe the model: operations are then not counted."""
    rollout_tokens: int = 0
    generate_s: float = 0.0
    flops: float = 0.0
    _seconds: float = 0.0
    _since: float | None = None
    """When the clock was started; None while it stands."""

    @property
    def is_counting(self) -> bool:
        """True within `learning` and outside `uncounted`."""
        return self._since is not None

    @property
    def seconds(self) -> float:
        """Of the clock so far."""
        return self._seconds + (0.0 if self._since is None else time.monotonic() - self._since)

    @property
    def share(self) -> float:
        """What is spent of the budget, 1 or more where it is used up; 0 without one."""
        return 0.0 if self.budget is None else float(getattr(self, self.budget.unit)) / self.budget.limit

    @property
    def is_used_up(self) -> bool:
        """True from the moment at which nothing is left."""
        return self.budget is not None and self.share >= 1

    def stop(self) -> None:
        """Stops the clock, whether or not it runs."""
        self._seconds, self._since = self.seconds, None

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Inside, everything counts, until `stop`."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self.stop()

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Inside, nothing counts."""
        was_counting = self.is_counting
        self.stop()
        try:
            yield
        finally:
            if was_counting:
                self._since = time.monotonic()

    def as_json(self) -> dict[str, Any]:
        """The counts so far."""
        return {
            "rollout_tokens": self.rollout_tokens,
            "seconds": self.seconds,
            "flops": None if self.counted is None else self.flops,
            "seconds_generate": self.generate_s,
        }

    def restore(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Goes on from what the finished stages of a run have spent, by its events."""
        last = next((event for event in reversed(events) if event["event"] == SPENT), None)
        if last is not None:
            self.rollout_tokens, self._seconds = last["rollout_tokens"], last["seconds"]
            self.flops, self.generate_s = last["flops"] or 0.0, last["seconds_generate"]


def spending_of(recipe: Recipe, policy: Policy) -> Spending:
    """The counts of a new run.

    Raises:
        ConfigError: where the budget is in operations, and planning does not know the model's shape.
    """
    if recipe.budget is None:
        return Spending()
    try:
        shape = from_config(policy.loaded.model.config.to_dict())
    except ConfigError:
        if recipe.budget.unit == "flops":
            raise
        return Spending(budget=recipe.budget)
    lora = recipe.model.lora
    counted = CountedModel(
        shape=shape,
        lora_rank=None if lora is None else lora.rank,
        gradient_checkpointing=recipe.model.gradient_checkpointing,
    )
    return Spending(budget=recipe.budget, counted=counted)


def metered(policy: Policy, spending: Spending) -> Policy:
    """The policy with counters around its engine and its scores; itself where there is no budget."""
    if spending.budget is None:
        return policy
    return replace(
        policy,
        engine=MeteredEngine(policy.engine, spending),
        scores=metered_scores(policy.scores, spending),
        value_meter=lambda scores: metered_scores(scores, spending, with_head=False),
    )


class MeteredEngine:
    """An engine whose completions are counted. See `Engine` for the contract."""

    def __init__(self, engine: Engine, spending: Spending) -> None:
        self._engine = engine
        self._spending = spending

    def set_policy_version(self, version: int) -> None:
        """See Engine."""
        self._engine.set_policy_version(version)

    def generate(
        self,
        prompts: Sequence[Prompt],
        group_size: int | Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        progress: Progress | None = None,
    ) -> list[list[Completion]]:
        """See Engine."""
        started = time.monotonic()
        completions = self._engine.generate(prompts, group_size, sampling, seed=seed, progress=progress)
        spending = self._spending
        if spending.is_counting:
            spending.generate_s += time.monotonic() - started
            spending.rollout_tokens += sum(len(c.token_ids) for group in completions for c in group)
            if spending.counted is not None:
                spending.flops += spending.counted.forward(sampled_tokens(prompts, completions))
        return completions


def metered_scores(scores: ScoreFunction, spending: Spending, *, with_head: bool = True) -> ScoreFunction:
    """The same scores, counted: with gradient as a forward and its backward. with_head=False: without LM head."""

    def counted_scores(
        model: PreTrainedModel,
        sequences: Sequence[ScoredSequence],
        *,
        temperature: float,
        entropy: bool = False,
        **options: Any,
    ) -> TokenScores:
        counted = spending.counted
        if counted is not None and spending.is_counting:
            work: Callable[..., float] = counted.train if torch.is_grad_enabled() else counted.forward
            spending.flops += work(tree_tokens(sequences), with_head=with_head)
        return scores(model, sequences, temperature=temperature, entropy=entropy, **options)

    return counted_scores


def tree_tokens(sequences: Sequence[ScoredSequence]) -> TrainedTokens:
    """The nodes of the token tree, the pairs that attention must see, and the completion nodes."""
    nodes = pairs = head_rows = 0
    previous: tuple[int, ...] = ()
    for sequence in sorted(sequences, key=lambda s: s.token_ids):
        shared, length = shared_prefix_length(previous, sequence.token_ids), len(sequence.token_ids)
        nodes += length - shared
        pairs += (length * (length + 1) - shared * (shared + 1)) // 2
        head_rows += length - max(shared, sequence.prompt_length)
        previous = sequence.token_ids
    return _tokens(nodes, pairs, head_rows)


def sampled_tokens(prompts: Sequence[Prompt], completions: Sequence[Sequence[Completion]]) -> TrainedTokens:
    """The same of one call of an engine: the prompts as a tree, and every completion token but the last read once."""
    nodes = pairs = 0
    for before, ids in pairwise([(), *sorted(prompt.token_ids for prompt in prompts)]):
        shared = shared_prefix_length(before, ids)
        nodes += len(ids) - shared
        pairs += (len(ids) * (len(ids) + 1) - shared * (shared + 1)) // 2
    head_rows = len(prompts)
    for prompt, group in zip(prompts, completions, strict=True):
        for completion in group:
            read = max(0, len(completion.token_ids) - 1)
            nodes += read
            head_rows += read
            pairs += read * len(prompt.token_ids) + read * (read + 1) // 2
    return _tokens(nodes, pairs, head_rows)


def _tokens(nodes: int, pairs: int, head_rows: int) -> TrainedTokens:
    return TrainedTokens(nodes=nodes, pairs=pairs, head_rows=head_rows, microbatches=1, largest=nodes, logit_tokens=0)
