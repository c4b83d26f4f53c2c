"""[[stages]] with algorithm.name = "ppo": learn from rewards with a value network as the baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field, model_validator

from .section import Section, problem


class KlSection(Section):
    """What the model pays, token by token and in the reward, for leaving the reference: the model at the stage's start.

    The fixed coefficient is InstructGPT's (arXiv:2203.02155), the adaptive one that of arXiv:1909.08593,
    whose code began at coef = 0.15 with target = 6.
    """

    coef: float = Field(default=0.02, ge=0)
    """Weight of the KL in the reward, 0 or more; where target is given, at the start. 0 = no KL and no reference
    model."""
    estimator: Literal["k1", "k2", "k3"] = "k1"
    """How the KL of a token is estimated. k1 in the reward has the gradient of KL(policy || reference)."""
    target: float | None = Field(default=None, gt=0)
    """The coefficient follows so that a completion's KL comes to this many nats, above 0; None = it stays."""
    horizon: int | None = Field(default=None, ge=1)
    """Completions over which an error of 20 % or more moves the coefficient by 20 %, 1 or more; None = 10,000."""

    @model_validator(mode="after")
    def _adapts_something(self) -> KlSection:
        if self.target is not None and self.coef == 0:
            raise problem("target", "never moves coef = 0, which is multiplied; give coef, or remove target")
        if self.horizon is not None and self.target is None:
            raise problem(
                "horizon", "is how fast coef moves to reach target, which is not given; give it or remove this"
            )
        return self


class CriticSection(Section):
    """The value network: what a completion will still earn, seen from each of its tokens."""

    shared: bool = False
    """false = a network of its own, as in InstructGPT: it doubles what is trained. true = one more head on the policy,
    whose body then serves both: no more memory, and the two losses pull at the same weights."""
    lr: float | None = Field(default=None, gt=0)
    """Its own learning rate, above 0; InstructGPT used 9e-6. None = optim.lr. The other optimizer settings are the
    stage's. Not with shared = true."""
    start: str | None = Field(default=None, min_length=1)
    """Folder of a reward model, whose body it begins from, or the critic/ folder of a ppo checkpoint; None = from the
    policy. The head begins at zero except in the latter. Not with shared = true."""
    clip: float = Field(default=0.2, ge=0)
    """How far the value may move from that of the rollout before its gradient stops, 0 or more, in units of the reward;
    0 = any distance."""
    coef: float | None = Field(default=None, gt=0)
    """Weight of the value loss beside the policy's, above 0, with shared = true only; None = 0.1."""

    @model_validator(mode="after")
    def _has_what_it_is_told(self) -> CriticSection:
        if self.shared and self.lr is not None:
            raise problem("lr", "has no optimizer of its own with shared = true; remove it: optim.lr serves both")
        if self.shared and self.start is not None:
            raise problem("start", "names a body, and shared = true uses the policy's; remove one of them")
        if not self.shared and self.coef is not None:
            raise problem(
                "coef",
                "weighs two losses of one network, and with shared = false there are two; remove it, or use critic.lr",
            )
        return self


class TruncationSection(Section):
    """What a completion earns that was cut at rollout.max_completion_tokens. It is judged like any other."""

    penalty: float = Field(default=0.0, ge=0)
    """Subtracted from its reward, 0 or more; 0 = none."""
    bootstrap: bool = False
    """true = what it would still have earned is the critic's guess at the cut; false = nothing, the cut is its end."""

    @model_validator(mode="after")
    def _blames_one(self) -> TruncationSection:
        if self.penalty and self.bootstrap:
            raise problem(
                "bootstrap",
                "takes the cut for ours, and penalty = {penalty} takes it for the model's fault; keep one",
                penalty=self.penalty,
            )
        return self


class PpoSection(Section):
    """Proximal policy optimisation with a value network (arXiv:1707.06347).

    The defaults are those for language models, of the code of arXiv:1909.08593: 4 epochs over one mini-batch, clip 0.2
    for both networks, gamma 1, lam 0.95; with a KL of a fixed weight, as in InstructGPT (arXiv:2203.02155), which made
    1 epoch over 8 mini-batches of 64 completions. A step samples rollout.prompts_per_step prompts; rollout.group_size,
    extra_rounds and allocation are GRPO's.
    """

    name: Literal["ppo"]
    """ppo."""
    completions_per_prompt: int = Field(default=1, ge=1, le=256)
    """Completions of each prompt in a step, 1 to 256. The critic is the baseline, so that 1 is enough."""
    epochs: int = Field(default=4, ge=1)
    """Passes over the rollouts of a step, 1 or more."""
    minibatches: int = Field(default=1, ge=1)
    """Parts that each pass is cut into, 1 or more, at most the completions of a step. A step makes epochs x minibatches
    updates."""
    clip: float = Field(default=0.2, gt=0, lt=1)
    """The ratio is clipped at 1 - clip and 1 + clip; above 0, under 1."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount of a token; above 0, at most 1."""
    lam: float = Field(default=0.95, ge=0, le=1)
    """lambda of the advantages, 0 to 1: 1 = what was earned minus the value; lower trusts the critic more, and forgets
    the end reward: 0.95^100 = 0.006."""
    whiten: bool = True
    """Advantages are brought to mean 0 and std 1 over all tokens of a step."""
    truncation: TruncationSection = TruncationSection()
    """Completions that were cut."""
    retire: bool = False
    """true = [curation] chooses and sets aside prompts as for grpo. false = every prompt stays: the critic learns from
    those too that are always or never solved."""
    max_unscored_frac: float = Field(default=0.1, ge=0, le=1)
    """Stop where the verifier cannot judge more than this share of a step's completions, 0 to 1. Fewer are left out and
    counted."""
    kl: KlSection = KlSection()
    """The KL in the reward."""
    critic: CriticSection = CriticSection()
    """The value network."""


def with_critic_path(section: PpoSection, moved: Callable[..., Section]) -> PpoSection:
    """The section with the path in it changed: moved(section, *names) changes those fields of a section."""
    return section.model_copy(update={"critic": moved(section.critic, "start")})
