"""Which training method fits: from what there is to learn from, what the start model can do, and what may be spent.

What each method needs and costs stands in `METHOD_FACTS`. The rules of `choose_method`, first to last:

1. Nothing that any method learns from: refused, with what is missing.
2. What is too dear or does not fit into memory is left out.
3. A verifier decides outcomes: GRPO. No critic and no reward model have to be held, and it can exceed demonstrations.
4. Else a reward model scores: PPO, or GRPO with that reward model where PPO is too dear or too large.
5. GRPO on outcomes needs groups with both outcomes. Where nearly none has them, it must follow SFT or DPO; where every
   rollout solves its task, there is nothing to learn.
6. SFT comes first while the start model is weak or unmeasured. DPO comes next, before GRPO; it stands alone where
   nothing scores fresh samples.

The order SFT, DPO, GRPO on outcomes is that of Tulu 3 (arXiv:2411.15124); SFT, reward model, PPO that of InstructGPT
(arXiv:2203.02155).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, get_args

from groupwise.errors import ConfigError
from groupwise.planning.bounds import require, require_count
from groupwise.planning.groups import all_fail_probability, all_pass_probability, informative_fraction
from groupwise.planning.method_facts import METHOD_FACTS, RelativeCost
from groupwise.planning.pass_rates import PassRates
from groupwise.planning.step_tokens import Method

Signal = Literal["demonstrations", "preference pairs", "verifier", "reward model"]

MIN_DEMONSTRATIONS = 100
"""Fewer do not teach a format reliably: about 9 updates in 3 epochs at the batch of 32 of InstructGPT's SFT
(arXiv:2203.02155). Our own bound; 1,000 careful demonstrations taught a whole style of answering (LIMA,
arXiv:2305.11206)."""
MIN_PREFERENCE_PAIRS = 500
"""Fewer give less than 8 updates an epoch at the batch of 64 of DPO (arXiv:2305.18290). Our own bound."""
FEW_INFORMATIVE = 0.1
"""Share of groups with both outcomes below which GRPO is not worth starting: a step filled by dynamic sampling (DAPO,
arXiv:2503.14476) then draws more than 1 / 0.1 = 10 prompts for each one that it trains on. Our own bound. It is also
the share of groups of one outcome that is neglected when it is said why."""
MOSTLY_UNSOLVED = 0.5
"""Share of groups that no rollout solves from which a start model is weak. With groups of 8 that is a pass rate of
0.083. Our own bound: there half of the sampling is wasted, and an epoch of SFT costs less than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What there is to learn from, and to pay with.

    Example:
        Situation(num_demonstrations=800, has_verifier=True, pass_rates=(0.0, 0.25, 0.5), group_size=8)

    Raises:
        ConfigError: negative counts, pass rates without a verifier to measure them, an unknown cost or method.
    """

    num_demonstrations: int = 0
    num_preference_pairs: int = 0
    has_verifier: bool = False
    """A program decides whether a completion solves its task."""
    has_reward_model: bool = False
    """A network that scores completions; without it, but with pairs, one could be trained first."""
    pass_rates: PassRates | None = None
    """Of the start model on the training prompts: measured or fitted; None: not measured yet."""
    group_size: int = 8
    """Completions a prompt, G >= 2."""
    highest_cost: RelativeCost = "highest"
    """The dearest relative cost that is acceptable."""
    memory_bytes: int | None = None
    """Of the device; None: memory is no limit."""
    memory_needed: Mapping[Method, int] = field(default_factory=dict, hash=False)
    """Bytes by method, from `estimate_memory`; a method that is not listed is taken to fit."""

    def __post_init__(self) -> None:
        require_count("num_demonstrations", self.num_demonstrations, least=0)
        require_count("num_preference_pairs", self.num_preference_pairs, least=0)
        require_count("group_size", self.group_size, least=2, advice="A rollout cannot be its own baseline.")
        if self.memory_bytes is not None:
            require_count("memory_bytes", self.memory_bytes, advice="Give bytes, or None for no limit.")
        costs, methods = get_args(RelativeCost), tuple(METHOD_FACTS)
        require(self.highest_cost in costs, "highest_cost", self.highest_cost, " or ".join(costs), "Give one of them.")
        for name, needed in self.memory_needed.items():
            require(name in methods, "memory_needed", name, " or ".join(methods), "Give bytes by method.")
            require_count(f"memory_needed[{name!r}]", needed, least=0, advice="Give bytes.")
        if self.pass_rates is not None and not self.has_verifier:
            raise ConfigError(
                "pass_rates are given, but has_verifier is False: expected a verifier, as it decides the outcomes that "
                "a pass rate counts.\n  Set has_verifier=True, or leave pass_rates out."
            )


class Start(StrEnum):
    """What the start model makes of the training prompts."""

    UNMEASURED = "unmeasured"
    UNSOLVED = "unsolved"
    """Nearly every group fails as a whole."""
    SPLIT = "split"
    """Nearly every group fails or succeeds as a whole: prompts are too hard or too easy, with little between."""
    SOLVED = "solved"
    """Nearly every group succeeds as a whole."""
    WEAK = "weak"
    """Some groups have both outcomes, but most fail as a whole."""
    READY = "ready"
    """Enough groups have both outcomes."""


_WARM_UP = frozenset({Start.UNMEASURED, Start.UNSOLVED, Start.SPLIT, Start.WEAK})
"""Where cheaper training before GRPO or PPO is worth its price."""
_NO_SIGNAL = frozenset({Start.UNSOLVED, Start.SPLIT})
"""Where GRPO on outcomes must not come first."""


def start_of(situation: Situation) -> Start:
    """Where the start model stands, by the shares of groups that have both outcomes, none solved, or all solved.

    Raises:
        ConfigError: for unusable pass rates.
    """
    if situation.pass_rates is None:
        return Start.UNMEASURED
    all_fail = all_fail_probability(situation.pass_rates, situation.group_size)
    if informative_fraction(situation.pass_rates, situation.group_size) >= FEW_INFORMATIVE:
        return Start.WEAK if all_fail >= MOSTLY_UNSOLVED else Start.READY
    if all_fail < FEW_INFORMATIVE:
        return Start.SOLVED
    all_pass = all_pass_probability(situation.pass_rates, situation.group_size)
    return Start.UNSOLVED if all_pass < FEW_INFORMATIVE else Start.SPLIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One stage of training: Step(method="grpo", signal="verifier", reason="...")."""

    method: Method
    signal: Signal
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A method that is not used, and why: LeftOut(method="ppo", reason="there is no reward model")."""

    method: Method
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodChoice:
    """The stages in the order in which they run, and a reason for every method.

    Example:
        choose_method(Situation(num_demonstrations=800, has_verifier=True)).summary     # "sft, then grpo"
    """

    start: Start
    steps: tuple[Step, ...]
    """Empty where nothing is worth training: `advice` then says what would change that."""
    left_out: tuple[LeftOut, ...]
    """Every other method, cheapest first."""
    advice: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The methods in order, or "nothing to train"."""
        return ", then ".join(step.method for step in self.steps) or "nothing to train"


def choose_method(situation: Situation) -> MethodChoice:
    """The stages that fit the situation, by the rules at the top of this module.

    Raises:
        ConfigError: if there is nothing that any method could learn from, or the pass rates are unusable.
    """
    start = start_of(situation)
    missing = {method: _missing(method, situation) for method in METHOD_FACTS}
    if all(missing.values()):
        raise ConfigError(
            "no method can learn from this: " + "; ".join(f"{name}: {why}" for name, why in missing.items()) + ".\n"
            "  Write a verifier for the outcome (best), collect demonstrations or preference pairs, or train a reward "
            "model."
        )
    usable = {name for name in METHOD_FACTS if missing[name] is None and _too_much(name, situation) is None}
    steps = _steps(situation, start, usable)
    chosen = {step.method for step in steps}
    left_out = tuple(
        LeftOut(method=name, reason=missing[name] or _too_much(name, situation) or _not_chosen(name, steps, start))
        for name in METHOD_FACTS
        if name not in chosen
    )
    return MethodChoice(start=start, steps=steps, left_out=left_out, advice=_advice(situation, start, steps))


def _missing(method: Method, situation: Situation) -> str | None:
    """What the method would learn from and is not there, or None."""
    if method == "sft" and situation.num_demonstrations < MIN_DEMONSTRATIONS:
        return f"{situation.num_demonstrations} demonstrations, of {MIN_DEMONSTRATIONS} that it needs"
    if method == "dpo" and situation.num_preference_pairs < MIN_PREFERENCE_PAIRS:
        return f"{situation.num_preference_pairs} preference pairs, of {MIN_PREFERENCE_PAIRS} that it needs"
    if method == "grpo" and not (situation.has_verifier or situation.has_reward_model):
        return "neither a verifier nor a reward model scores fresh samples"
    if method == "ppo" and not situation.has_reward_model:
        return "there is no reward model"
    return None


def _too_much(method: Method, situation: Situation) -> str | None:
    """Why the method is out of reach, or None."""
    facts, costs = METHOD_FACTS[method], get_args(RelativeCost)
    if costs.index(facts.relative_cost) > costs.index(situation.highest_cost):
        return f"its relative cost is {facts.relative_cost}, the limit is {situation.highest_cost}"
    needed, there = situation.memory_needed.get(method), situation.memory_bytes
    if needed is not None and there is not None and needed > there:
        return f"it needs {needed / 1e9:.2f} GB of memory, there are {there / 1e9:.2f} (held: {facts.extra_networks})"
    return None


def _steps(situation: Situation, start: Start, usable: set[Method]) -> tuple[Step, ...]:
    online = _online(situation, start, usable)
    steps: list[Step] = []
    if "sft" in usable and (
        start in _WARM_UP or (online is None and "dpo" not in usable and start is not Start.SOLVED)
    ):
        steps.append(Step(method="sft", signal="demonstrations", reason=_sft_reason(situation, start)))
    before_outcomes = online is not None and online.signal == "verifier" and start in _WARM_UP
    if "dpo" in usable and (online is None or before_outcomes):
        steps.append(Step(method="dpo", signal="preference pairs", reason=_dpo_reason(situation, start, online)))
    return (*steps, *([online] if online else []))


def _online(situation: Situation, start: Start, usable: set[Method]) -> Step | None:
    """The stage that learns from fresh samples, if there is to be one."""
    has_signal = start not in _NO_SIGNAL or bool(usable & {"sft", "dpo"})
    if situation.has_verifier and "grpo" in usable and start is not Start.SOLVED and has_signal:
        return Step(method="grpo", signal="verifier", reason=_grpo_reason(situation, start))
    if not situation.has_reward_model:
        return None
    if "ppo" in usable:
        reason = (
            "the reward model scores fresh samples, and a value model tells how much each token of one completion "
            "added; the dearest method, and it holds the most networks"
        )
        return Step(method="ppo", signal="reward model", reason=reason)
    if "grpo" in usable:
        reason = (
            f"the reward model scores groups of fresh samples; without PPO's value model the trained memory is about "
            f"half, at the price of {situation.group_size} completions a prompt and one advantage for all tokens of a "
            "completion"
        )
        return Step(method="grpo", signal="reward model", reason=reason)
    return None


def _sft_reason(situation: Situation, start: Start) -> str:
    because = {
        Start.UNMEASURED: "the cheapest start, as the pass rate of the start model is not known",
        Start.UNSOLVED: "nearly no group holds a success that GRPO could learn from",
        Start.SPLIT: "it may bring the prompts that are never solved within reach",
        Start.WEAK: "most groups hold no success; more will after it",
    }.get(start, "nothing else that is within the limits learns from more")
    return f"{situation.num_demonstrations} demonstrations: {because}"


def _dpo_reason(situation: Situation, start: Start, online: Step | None) -> str:
    pairs = f"{situation.num_preference_pairs} preference pairs"
    if start is Start.SOLVED:
        return f"{pairs} may show what the verifier, which is satisfied already, does not see"
    if online is None:
        return f"{pairs} say what is better, and nothing that is within the limits scores fresh samples"
    return f"{pairs} are learned from without generation, which is far cheaper: GRPO then starts higher"


def _grpo_reason(situation: Situation, start: Start) -> str:
    fit = "the verifier decides outcomes on groups of fresh samples, so the policy can exceed demonstrations; no critic"
    if situation.pass_rates is None:
        return fit
    share = informative_fraction(situation.pass_rates, situation.group_size)
    when = " before the stages above" if start in _NO_SIGNAL else ""
    return f"{fit}; {share:.0%} of the groups of {situation.group_size} have both outcomes{when}"


def _not_chosen(method: Method, steps: tuple[Step, ...], start: Start) -> str:
    """Why a method that could be used is not."""
    online = next((step for step in steps if step.method in ("grpo", "ppo")), None)
    if method == "sft":
        if start is Start.SOLVED:
            return "the start model already solves what the demonstrations show"
        return "the start model already solves enough: imitation would tie it to the demonstrations"
    if method == "dpo":
        if online is not None and online.signal == "reward model":
            return "the reward model scores fresh samples; pairs are fixed samples. Take it where that is too dear"
        return "enough groups teach without it; put it first if the pairs show what the verifier does not see"
    if method == "ppo":
        return "the verifier decides the outcome: a reward model and a value model would only cost memory"
    if start is Start.SOLVED:
        return "nearly every rollout solves its task: groups of equal rewards teach nothing"
    if start in _NO_SIGNAL:
        return f"fewer than {FEW_INFORMATIVE:.0%} of the groups have both outcomes, and nothing comes before it"
    return "the reward model's scores are not outcomes: PPO's value model makes more of them, and it is within reach"


def _advice(situation: Situation, start: Start, steps: tuple[Step, ...]) -> tuple[str, ...]:
    methods = [step.method for step in steps]
    signals = {step.signal for step in steps}
    lines = []
    if start is Start.SOLVED:
        lines.append("The start model solves nearly every prompt: get harder prompts before paying for GRPO.")
    if start is Start.SPLIT:
        lines.append("Prompts are solved always or never: add ones between, and set the others aside.")
    if start is Start.UNSOLVED and "verifier" not in signals:
        lines.append(
            f"Nearly no group holds a success: give {MIN_DEMONSTRATIONS} or more demonstrations, easier prompts or a "
            "larger group_size."
        )
    if "verifier" in signals:
        lines.append("The verifier bounds what is learned: attack it before training.")
        if start is Start.UNMEASURED:
            lines.append("Measure the pass rate of the prompts: whether GRPO can start, and with which group size.")
        elif start in _WARM_UP and methods != ["grpo"]:
            lines.append(f"Measure the pass rate again after {methods[-2]}, before paying for GRPO.")
    if "reward model" in signals:
        lines.append("A reward model is over-optimised sooner or later: keep a held-out judgement of another kind.")
    return tuple(lines)
