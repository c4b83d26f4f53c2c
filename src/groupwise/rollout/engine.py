"""The seam behind which completions are sampled: in this process (torch_engine.py) or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from groupwise.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn.

    Example:
        Sampling(temperature=1.0, max_tokens=64)
    """

    max_tokens: int
    temperature: float = 1.0
    """Divides the logits; 0 is greedy."""
    top_p: float = 1.0
    """Keep the most likely tokens that together reach this probability; 1 keeps all."""
    top_k: int = 0
    """Keep this many most likely tokens; 0 keeps all."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion. The text is cut before them; the tokens keep them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one call of generate took, for tests and reports.

    Example:
        Work(num_prefills=1, num_prefill_tokens=666, num_steps=31, num_row_steps=496, cache_bytes=53_000_000)
    """

    num_prefills: int = 0
    """Forwards over prompts."""
    num_prefill_tokens: int = 0
    """Prompt tokens computed in them; a shared prefix counts once where it was computed once."""
    num_steps: int = 0
    """Forwards of one new token a row."""
    num_row_steps: int = 0
    """Rows in those, summed."""
    cache_bytes: int = 0
    """Most bytes held for keys and values."""

    def __add__(self, other: Work) -> Work:
        """Work done one after another."""
        return Work(
            num_prefills=self.num_prefills + other.num_prefills,
            num_prefill_tokens=self.num_prefill_tokens + other.num_prefill_tokens,
            num_steps=self.num_steps + other.num_steps,
            num_row_steps=self.num_row_steps + other.num_row_steps,
            cache_bytes=max(self.cache_bytes, other.cache_bytes),
        )


Progress = Callable[[float, int], None]
"""Called as progress(finished completions, all completions) while an engine works. One that is under way counts for the
share of the token limit that it has: completions of a batch end at about the same time, and whoever counts ended ones
alone has no idea of the time left until then."""


def group_sizes(num_prompts: int, group_size: int | Sequence[int]) -> tuple[int, ...]:
    """How many completions each prompt gets: group_size[p], or the one number for all.

    Raises:
        ValueError: unless there is one size a prompt, each of 1 or more.
    """
    sizes = (group_size,) * num_prompts if isinstance(group_size, int) else tuple(group_size)
    if len(sizes) != num_prompts:
        raise ValueError(f"group_size: got {len(sizes)} sizes for {num_prompts} prompts; give one number, or one each")
    if any(size < 1 for size in sizes):
        raise ValueError(f"group_size: every prompt needs 1 or more completions, got {min(sizes)}")
    return sizes


class Engine(Protocol):
    """Samples completions from the newest weights it was given.

    The same seed, prompts and weights give the same completions: each completion has its own random stream, so that
    what is decoded beside it does not matter.
    """

    def generate(
        self,
        prompts: Sequence[Prompt],
        group_size: int | Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        progress: Progress | None = None,
    ) -> list[list[Completion]]:
        """group_size completions for each prompt, in the given order; group_size[p] for prompt p where they differ.

        Completion c of prompt p is the same whatever the sizes are.
        """
        ...

    def set_policy_version(self, version: int) -> None:
        """Says how many optimizer steps the weights now contain; stamped on every completion."""
        ...
