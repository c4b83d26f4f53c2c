"""How many tokens an optimizer step forwards, and how many (query, key) pairs their attention looks at.

With prefix sharing a micro-batch is a token tree: what sequences begin with in common is one run of nodes. Sequences
are taken in the order of their tokens until the nodes fill a micro-batch; each micro-batch begins with a whole
sequence again. Without it every sequence is padded to the longest one and forwarded whole.

All lengths are means, so that every sequence counts as equally long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from groupwise.planning.bounds import require
from groupwise.planning.workload import Workload

Method = Literal["sft", "dpo", "ppo", "grpo"]
METHODS: tuple[Method, ...] = get_args(Method)

TRUNK_WORTH = 512
"""Stored tokens that a trunk must save for the decoder to keep it apart from the prompts' other keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What a step samples, before anything is judged.

    Example (2 prompts of 343 tokens, 300 of them shared; 8 completions each):
        Sampled(num_prompts=2, rows_per_prompt=8)
    """

    num_prompts: int
    """Different prompts; each is prefilled."""
    rows_per_prompt: int

    @property
    def num_rows(self) -> int:
        """Completions."""
        return self.num_prompts * self.rows_per_prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedTokens:
    """What the forwards of one pass over a step's batch work on. Averages may be fractions.

    Example (one group of 2 answers of 3 tokens behind a prompt of 4: 4 + 3 + 3 nodes):
        TrainedTokens(nodes=10, pairs=46, head_rows=5, microbatches=1, largest=10, logit_tokens=0)
    """

    nodes: float
    """Tokens forwarded."""
    pairs: float
    """(query, key) pairs that attention must look at: the sum of the nodes' depths, counted from 1."""
    head_rows: float
    """Positions that go through the LM head."""
    microbatches: int
    largest: float
    """Tokens of the largest micro-batch."""
    logit_tokens: float
    """Positions of the largest micro-batch whose logits are kept: 0 with prefix sharing, which keeps none."""

    @property
    def pairs_of_largest(self) -> float:
        """Pairs of the largest micro-batch, at the step's mean number of pairs a token."""
        return self.pairs * self.largest / self.nodes if self.nodes else 0.0


def require_method(method: str) -> None:
    """Nothing for a known method.

    Raises:
        ConfigError: for another one.
    """
    require(method in METHODS, "method", method, f"one of {', '.join(METHODS)}", "Choose one of these.")


def sampled(method: Method, workload: Workload) -> Sampled | None:
    """GRPO: a group a prompt. PPO: as many completions, each of a prompt of its own. SFT and DPO sample nothing."""
    if method == "grpo":
        return Sampled(num_prompts=workload.prompts_per_step, rows_per_prompt=workload.group_size)
    if method == "ppo":
        return Sampled(num_prompts=workload.num_rows, rows_per_prompt=1)
    return None


def stored_trunk(num_prompts: int, workload: Workload) -> float:
    """Tokens that the decoder stores once for all prompts, or 0 where that would save too little."""
    return workload.trunk_tokens if workload.trunk_tokens * (num_prompts - 1) >= TRUNK_WORTH else 0.0


def trained_tokens(method: Method, workload: Workload, *, prefix_sharing: bool) -> TrainedTokens:
    """One forward of everything that a step learns from.

    SFT: a demonstration a prompt. DPO: a pair a prompt. PPO: every completion. GRPO: the groups that have a gradient,
    which are all of them where there is a reference, because its KL term trains dead groups too.
    """
    groups, rows = _groups(method, workload)
    whole = math.ceil(groups)
    if whole == 0:
        return TrainedTokens(nodes=0, pairs=0, head_rows=0, microbatches=0, largest=0, logit_tokens=0)
    share = groups / whole  # a fraction of a group is a mean over steps
    nodes, pairs, cuts = _walk(whole, rows, workload)
    if not prefix_sharing:
        width = workload.prompt_tokens + workload.longest_completion
        tokens = share * whole * rows * width
        largest = math.ceil(whole * rows / cuts) * width
        return TrainedTokens(
            nodes=tokens,
            pairs=tokens * (width + 1) / 2,
            head_rows=tokens,
            microbatches=cuts,
            largest=largest,
            logit_tokens=largest,
        )
    full = nodes if cuts == 1 else workload.tokens_per_microbatch
    return TrainedTokens(
        nodes=share * nodes,
        pairs=share * pairs,
        # the first token of every completion of a prompt is read from the prompt's last node
        head_rows=groups * (1 + rows * (workload.completion_tokens - 1) - (rows - 1) * workload.sibling_prefix),
        microbatches=cuts,
        largest=max(full, workload.prompt_tokens + workload.longest_completion),
        logit_tokens=0,
    )


def _groups(method: Method, workload: Workload) -> tuple[float, int]:
    """Prompts that are trained on, and sequences of each."""
    drawn = sampled(method, workload)
    if drawn is None:
        return float(workload.prompts_per_step), 2 if method == "dpo" else 1
    skips_dead_groups = method == "grpo" and not workload.has_reference
    return drawn.num_prompts * (workload.live_share if skips_dead_groups else 1.0), drawn.rows_per_prompt


def _walk(groups: int, rows: int, workload: Workload) -> tuple[float, float, int]:
    """(nodes, pairs, micro-batches) of groups * rows sequences in order, cut as training.batch.microbatches does."""
    prompt, length = workload.prompt_tokens, workload.prompt_tokens + workload.completion_tokens
    nodes = pairs = filled = 0.0
    cuts = 0
    for group in range(groups):
        for row in range(rows):
            shared = prompt + workload.sibling_prefix if row else workload.trunk_tokens if group else 0.0
            if cuts == 0 or filled + length - shared > workload.tokens_per_microbatch:
                cuts += 1
                filled = shared = 0.0
            added = length - shared
            filled += added
            nodes += added
            pairs += added * shared + added * (added + 1) / 2
    return nodes, pairs, cuts
