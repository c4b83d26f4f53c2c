"""When a prompt counts as always or never solved, and how sure that has to be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from groupwise.curation.pass_rate import PassRate


class PromptState(StrEnum):
    """Whether a prompt is sampled, and if not, why."""

    ACTIVE = "active"
    """Sampled once an epoch."""
    ALWAYS_SOLVED = "always_solved"
    """Set aside: its pass rate is too high to teach anything."""
    NEVER_SOLVED = "never_solved"
    """Set aside: its pass rate is too low to teach anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireRule:
    """Set a prompt aside once P(rate >= solved_above) or P(rate <= hopeless_below) reaches the confidence.

    Example:
        rule = RetireRule(solved_above=0.95, hopeless_below=0.05, confidence=0.8)
        rule.state_of(PassRate(solved=0, scored=4))      # PromptState.ACTIVE: P(rate <= 0.05) is 0.47
        rule.attempts_needed()                           # 16 failures, or 16 successes, and nothing else

    Raises:
        ValueError: unless 0 < hopeless_below < solved_above < 1 and 0.5 <= confidence < 1.
    """

    solved_above: float = 0.95
    """Pass rates from here up count as always solved."""
    hopeless_below: float = 0.05
    """Pass rates from here down count as never solved."""
    confidence: float = 0.8
    """Posterior probability that is asked for; from 0.5 up a prompt cannot be both."""

    def __post_init__(self) -> None:
        if not 0 < self.hopeless_below < self.solved_above < 1:
            raise ValueError(
                "RetireRule: expected 0 < hopeless_below < solved_above < 1, "
                f"got {self.hopeless_below} and {self.solved_above}"
            )
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"RetireRule: confidence must be at least 0.5 and below 1, got {self.confidence}")

    def state_of(self, rate: PassRate) -> PromptState:
        """What the posterior says of a prompt; ACTIVE as long as it is not sure enough of either."""
        if rate.probability_above(self.solved_above) >= self.confidence:
            return PromptState.ALWAYS_SOLVED
        if rate.probability_below(self.hopeless_below) >= self.confidence:
            return PromptState.NEVER_SOLVED
        return PromptState.ACTIVE

    def attempts_needed(self) -> int:
        """Attempts, either all solved or all failed, after which both states can be told under Jeffreys' prior."""

        def is_enough(scored: int) -> bool:
            all_solved, none_solved = (PassRate(solved=k, scored=scored) for k in (scored, 0))
            return (
                self.state_of(all_solved) is PromptState.ALWAYS_SOLVED
                and self.state_of(none_solved) is PromptState.NEVER_SOLVED
            )

        enough = 1
        while not is_enough(enough):
            enough *= 2
        short = enough // 2
        while enough - short > 1:
            middle = (short + enough) // 2
            short, enough = (short, middle) if is_enough(middle) else (middle, enough)
        return enough
