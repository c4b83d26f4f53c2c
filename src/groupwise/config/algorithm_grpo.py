"""[[stages]] with algorithm.name = "grpo": the methods that compare completions of one prompt with each other.

Every method of the family is a point in the settings of GrpoSection. A preset is such a point with a name: PRESETS says
which settings it writes. They are filled in before anything is checked, so that a resolved recipe shows them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from .algorithm_grpo_rules import problems_of
from .section import Section, problem

Setting = str | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A named method: Preset(source="arXiv:2503.20783", values={"scale": "none", "beta": 0.0})."""

    source: str
    values: Mapping[str, Setting]
    """By setting; a dot leads into a table: "loss.kind". What is not named keeps its default, and may be set freely."""


_CLIP = {"clip_low": 0.2, "clip_high": 0.2}
_GSPO = {"clip_low": 3e-4, "clip_high": 4e-4}
_CISPO = {"clip_low": 1.0, "clip_high": 4.0}
_CLIPPED: Mapping[str, Setting] = {"loss.kind": "clipped", **_CLIP}
_IN_GROUP: Mapping[str, Setting] = {"advantage.kind": "group", "scale": "std"}
_K1_IN_REWARD: Mapping[str, Setting] = {"kl.place": "reward", "kl.estimator": "k1"}

PRESETS: Mapping[str, Preset] = {
    "grpo": Preset(
        source="arXiv:2402.03300, eq. 3 and section 4.2",
        values={
            **_CLIPPED,
            **_IN_GROUP,
            "normalize": "sequence",
            "beta": 0.04,
            "kl.place": "loss",
            "kl.estimator": "k3",
        },
    ),
    "dr_grpo": Preset(
        source="arXiv:2503.20783, listing 1 and table 6",
        values={**_CLIPPED, "advantage.kind": "group", "scale": "none", "normalize": "constant", "beta": 0.0},
    ),
    "dapo": Preset(
        source="arXiv:2503.14476, eq. 8 and 13; its sampling is rollout.extra_rounds",
        values={
            **_IN_GROUP,
            "loss.kind": "clipped",
            "clip_low": 0.2,
            "clip_high": 0.28,
            "normalize": "token",
            "beta": 0.0,
            "advantage.truncated": "penalise",
            "advantage.overlong_share": 0.2,
            "advantage.overlong_penalty": 0.5,
        },
    ),
    "rloo": Preset(
        source="arXiv:2402.14740",
        values={
            "loss.kind": "reinforce",
            "advantage.kind": "leave_one_out",
            "scale": "none",
            "normalize": "constant",
            "beta": 0.03,
            **_K1_IN_REWARD,
        },
    ),
    "gspo": Preset(
        source="arXiv:2507.18071, eq. 5",
        values={"loss.kind": "gspo", **_GSPO, **_IN_GROUP, "normalize": "sequence", "beta": 0.0},
    ),
    "gspo_token": Preset(
        source="arXiv:2507.18071, eq. 13",
        values={"loss.kind": "gspo_token", **_GSPO, **_IN_GROUP, "normalize": "sequence", "beta": 0.0},
    ),
    "cispo": Preset(
        source="arXiv:2506.13585, section 3.1; the upper bound of 5 is TRL's, the paper gives none",
        values={"loss.kind": "cispo", **_CISPO, **_IN_GROUP, "normalize": "token", "beta": 0.0},
    ),
    "maxrl": Preset(
        source="arXiv:2602.02710",
        values={**_CLIPPED, "advantage.kind": "max_rl", "scale": "none", "normalize": "token", "beta": 0.0},
    ),
    "lite_ppo": Preset(
        source="arXiv:2508.08221",
        values={
            **_CLIPPED,
            "advantage.kind": "group",
            "advantage.std": "sample",
            "scale": "batch_std",
            "normalize": "token",
            "beta": 0.0,
        },
    ),
    "reinforce_pp": Preset(
        source="arXiv:2501.03262",
        values={
            **_CLIPPED,
            "advantage.kind": "batch",
            "scale": "none",
            "normalize": "token",
            "beta": 0.001,
            **_K1_IN_REWARD,
        },
    ),
    "reinforce_pp_baseline": Preset(
        source="arXiv:2501.03262, with the mean of the group as baseline",
        values={**_CLIPPED, "advantage.kind": "group", "scale": "centered_batch_std", "normalize": "token"},
    ),
}
"""The one table of presets. docs/algorithms.md prints it."""

DEFAULTS: Mapping[tuple[str, Setting], Mapping[str, Setting]] = {
    ("loss.kind", "gspo"): _GSPO,
    ("loss.kind", "gspo_token"): _GSPO,
    ("loss.kind", "cispo"): _CISPO,
    ("advantage.kind", "leave_one_out"): {"scale": "none"},
    ("advantage.kind", "max_rl"): {"scale": "none"},
    ("advantage.kind", "batch"): {"scale": "none"},
    ("kl.place", "reward"): {"kl.estimator": "k1"},
}
"""What other settings default to where a setting has a value. Like a preset's, these are filled in and shown."""


class LossSection(Section):
    """What is minimised on the rollouts of a step, and in how many updates."""

    kind: Literal["clipped", "gspo", "gspo_token", "cispo", "reinforce"] = "clipped"
    """clipped = a clipped ratio for each token (GRPO); gspo, gspo_token = one for each completion; cispo = the ratio is
    a cut weight; reinforce = no ratio."""
    dual_clip: float | None = Field(default=None, gt=1)
    """Bad tokens that became this many times as probable stop counting, above 1, such as 3; None = they count."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the entropy that the loss pays for, in nats a token, 0 or more; 0 = none."""
    report_entropy: bool = True
    """Report the mean entropy of the trained tokens, also where nothing pays for it; under 2 % of an update's time."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the rollouts of a step, 1 or more."""
    minibatches: int = Field(default=1, ge=1)
    """Parts that each pass is cut into, 1 or more, at most the completions of a step; epochs x minibatches updates.
    With one update every ratio is 1 and no clip acts."""
    importance_level: Literal["token", "sequence", "product"] = "token"
    """What importance_cap weighs: a token, a completion by its geometric mean a token, or a whole completion."""
    importance_floor: float | None = Field(default=None, ge=0, le=1)
    """Weights below it and above importance_cap become 0 (IcePop: 0.5 and 5), 0 to 1; None = weights above
    importance_cap are cut to it, and low ones stay."""


class AdvantageSection(Section):
    """How the rewards of a step become advantages."""

    kind: Literal["group", "leave_one_out", "max_rl", "batch"] = "group"
    """What a reward is compared with: group = the mean of its group, leave_one_out = that of its siblings (RLOO),
    max_rl = group, in units of that mean, batch = the mean of all tokens of the step, over their std (REINFORCE++)."""
    std: Literal["population", "sample"] = "population"
    """population = divide by n, sample = divide by n - 1. Without effect where nothing is divided by a std."""
    eps: float = Field(default=1e-6, ge=0)
    """Added to the std before the division, 0 or more."""
    skip_dead_groups: bool = True
    """Spend no forward and backward pass on groups without a gradient (all rewards equal, and no KL or entropy)."""
    truncated: Literal["count", "mask", "penalise"] = "count"
    """Completions cut at rollout.max_completion_tokens: count = as they are judged; mask = out of the loss, still part
    of the mean; penalise = long ones lose reward before they reach the limit."""
    overlong_share: float = Field(default=0.2, gt=0, le=1)
    """With penalise: the last part of the limit, in which the reward falls evenly, above 0, at most 1 (DAPO: 0.2)."""
    overlong_penalty: float = Field(default=0.5, gt=0)
    """With penalise: what a completion at the limit loses, above 0. DAPO's 1 for rewards -1 and 1 is 0.5 here."""
    step_end: str | None = Field(default=None, min_length=1)
    """Text that ends a step of a completion, such as "\\n"; its steps then have the rewards that the verdict's parts
    step_1, step_2, ... give (process supervision). None = one reward a completion."""


class GrpoKlSection(Section):
    """The KL to the model at the start of the stage, where beta is above 0."""

    estimator: Literal["k1", "k2", "k3"] = "k3"
    """How it is estimated at a sampled token; docs/algorithms.md says which has which gradient. k1 in the reward."""
    place: Literal["loss", "reward"] = "loss"
    """loss = added to the loss of each token; reward = its sum is subtracted from the reward of the completion."""
    weighted: bool = False
    """In the loss: times the ratio, so that its gradient is that of KL(policy || reference) whoever sampled."""


class LengthPenaltySection(Section):
    """Right answers earn less the longer they are; wrong ones keep what they have, so a group without a right answer is
    left as it is."""

    strength: float = Field(gt=0, lt=1)
    """What an answer of rollout.max_completion_tokens loses of its reward, above 0, under 1."""
    free_tokens: int = Field(ge=0)
    """Tokens that cost nothing, 0 or more, fewer than rollout.max_completion_tokens; beyond them it grows evenly."""


class GrpoSection(Section):
    """Group relative policy optimisation and its family. The defaults are GRPO as published, without its KL."""

    name: Literal["grpo"]
    """grpo."""
    preset: Literal[
        "none",
        "grpo",
        "dr_grpo",
        "dapo",
        "rloo",
        "gspo",
        "gspo_token",
        "cispo",
        "maxrl",
        "lite_ppo",
        "reinforce_pp",
        "reinforce_pp_baseline",
    ] = "none"
    """A published method, which writes the settings that make it; a setting that contradicts it is refused. none = the
    settings alone decide."""
    loss: LossSection = LossSection()
    """The loss and its updates."""
    advantage: AdvantageSection = AdvantageSection()
    """From rewards to advantages."""
    scale: Literal["std", "none", "batch_std", "centered_batch_std"] = "std"
    """What divides a centred reward: its group's std (GRPO), nothing (Dr. GRPO), the std of the step's rewards
    (Lite PPO), or that of its centred rewards (REINFORCE++-baseline). advantage.kind other than group: none."""
    normalize: Literal["sequence", "token", "constant"] = "sequence"
    """Denominator of the loss: sequence = mean of each completion first (GRPO), token = all trained tokens (DAPO),
    constant = completions x rollout.max_completion_tokens (Dr. GRPO)."""
    clip_low: float = Field(default=0.2, gt=0, le=1)
    """The ratio is clipped below at 1 - clip_low; above 0, at most 1. Default 0.2; gspo 3e-4, cispo 1. With one update
    a batch the ratio is always 1."""
    clip_high: float | None = Field(default=None, gt=0)
    """The ratio is clipped above at 1 + clip_high, above 0; None = the same as clip_low. Default gspo 4e-4, cispo 4."""
    beta: float = Field(default=0.0, ge=0)
    """Weight of the KL to the model at the start of the stage, 0 or more; 0 = no KL and no reference model."""
    kl: GrpoKlSection = GrpoKlSection()
    """Where that KL stands. Without effect where beta = 0."""
    importance_cap: float | None = Field(default=None, ge=1)
    """A number, 1 or more, such as 2: each token's loss is weighted by min(p trainer / p sampler, importance_cap), a
    constant. Needed with rollout.top_p or rollout.top_k, which leave tokens out; otherwise the weight is 1 up to
    rounding. None = no weight."""
    length_penalty: LengthPenaltySection | None = None
    """What long right answers lose; None = nothing. Dead groups are still told by their outcomes."""
    max_unscored_frac: float = Field(default=0.1, ge=0, le=1)
    """Stop where the verifier cannot judge more than this share of a step's completions, 0 to 1."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        values = _plain(values)
        name = values.get("preset")
        preset = PRESETS.get(name) if isinstance(name, str) else None
        for key, value in (preset.values if preset else {}).items():
            given = _get(values, key)
            if given is not None and given != value:
                raise problem(
                    key,
                    'contradicts preset = "{preset}", which sets {setting} = {value}; remove one of them',
                    preset=name,
                    setting=key,
                    value=_toml(value),
                )
            _set(values, key, value)
        for (key, value), others in DEFAULTS.items():
            if _get(values, key) == value:
                for other, default in others.items():
                    if _get(values, other) is None:
                        _set(values, other, default)
        return values

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> GrpoSection:
        for key, message, values in problems_of(self):
            raise problem(key, message, **values)
        return self


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The tables as new dictionaries, so that nothing that was given changes."""
    return {
        key: _plain(value.model_dump(exclude_unset=True) if isinstance(value, Section) else value)
        if isinstance(value, Section | Mapping)
        else value
        for key, value in values.items()
    }


def _get(values: Mapping[str, Any], key: str) -> Any:
    table, _, name = key.rpartition(".")
    inner = values.get(table, {}) if table else values
    return inner.get(name) if isinstance(inner, Mapping) else None


def _set(values: dict[str, Any], key: str, value: Setting) -> None:
    table, _, name = key.rpartition(".")
    inner = values.setdefault(table, {}) if table else values
    if isinstance(inner, dict):  # anything else is reported as a wrong type where it stands
        inner[name] = value


def _toml(value: Setting) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value).lower() if isinstance(value, bool) else repr(value)
