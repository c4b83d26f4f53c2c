"""What one optimizer step samples and trains on, in means: the other half of an estimate, beside the model's shape."""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.planning.bounds import require, require_count, require_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One step, and how many of them a run makes.

    A prompt of prompt_tokens begins with the trunk_tokens that all prompts of a step share (a chat template's system
    turn, a schema). For SFT and DPO, group_size is not used: a prompt has one demonstration, or one pair.

    Example (the demo: 2 questions under one schema, 8 answers each):
        Workload(prompts_per_step=2, group_size=8, prompt_tokens=343, trunk_tokens=300, completion_tokens=24,
                 longest_completion=32, live_share=0.6, has_reference=False, tokens_per_microbatch=4096,
                 max_completion_tokens=32, steps=60)

    Raises:
        ConfigError: for sizes that cannot be, such as a trunk longer than the prompt.
    """

    prompts_per_step: int
    group_size: int
    """Completions of a prompt."""
    prompt_tokens: float
    """Mean length of a prompt, trunk included."""
    trunk_tokens: float
    """Tokens that all prompts of a step begin with."""
    completion_tokens: float
    """Mean length of a completion."""
    longest_completion: float
    """Expected longest completion of a step: so many tokens are decoded one after the other."""
    live_share: float
    """Share of the groups that train, 0..1: groups of equal rewards have no gradient."""
    has_reference: bool
    """True: a frozen reference model is run too (a KL term)."""
    epochs: int = 1
    """Passes over the rollouts of a step."""
    tokens_per_microbatch: int
    """Most tree nodes (or tokens, without prefix sharing) of one forward and backward."""
    max_completion_tokens: int
    """Limit of the sampler; room for keys is set aside up to it."""
    steps: int
    sibling_prefix: float = 0.0
    """Tokens that a completion has in common with the next one of its group, in the order of their tokens; the tree
    forwards them once. Answers in a fixed form share most of their tokens. 0 gives the upper bound of the cost."""

    def __post_init__(self) -> None:
        for name in ("prompts_per_step", "group_size", "epochs", "tokens_per_microbatch", "max_completion_tokens"):
            require_count(f"Workload.{name}", getattr(self, name))
        require_count("Workload.steps", self.steps)
        for name in ("prompt_tokens", "completion_tokens", "longest_completion"):
            require_number(f"Workload.{name}", getattr(self, name), least=1, advice="Give a length in tokens.")
        require_number(
            "Workload.trunk_tokens", self.trunk_tokens, most=self.prompt_tokens, advice="It is part of them."
        )
        require_number(
            "Workload.sibling_prefix",
            self.sibling_prefix,
            most=self.completion_tokens,
            advice="Give the mean number of tokens that neighbours share; it is part of a completion.",
        )
        require_number("Workload.live_share", self.live_share, most=1, advice="Give the share of groups that train.")
        require(
            self.completion_tokens <= self.longest_completion <= self.max_completion_tokens,
            "Workload.longest_completion",
            self.longest_completion,
            f"between completion_tokens = {self.completion_tokens:g} and max_completion_tokens = "
            f"{self.max_completion_tokens}",
            "Give the expected longest completion of a step.",
        )

    @property
    def num_rows(self) -> int:
        """Completions of a step."""
        return self.prompts_per_step * self.group_size
