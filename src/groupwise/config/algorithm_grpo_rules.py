"""What contradicts itself in the settings of a grpo stage, and what does not fit the rest of the recipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .rollout import RolloutSection
from .section import problem

if TYPE_CHECKING:
    from .algorithm_grpo import GrpoSection

_Problem = tuple[str, str, dict[str, Any]]


def problems_of(section: GrpoSection) -> Iterator[_Problem]:
    """What two settings of the section make impossible: key, message and the values in it, as `problem` takes them."""
    yield from _loss_problems(section)
    yield from _advantage_problems(section)
    yield from _kl_problems(section)


def _loss_problems(section: GrpoSection) -> Iterator[_Problem]:
    loss = section.loss
    if loss.kind == "gspo" and section.normalize != "sequence":
        yield (
            "normalize",
            'contradicts loss.kind = "gspo", whose ratio is that of a whole completion and counts once; write '
            'normalize = "sequence", or loss.kind = "gspo_token"',
            {},
        )
    if loss.kind == "reinforce" and loss.epochs * loss.minibatches > 1:
        key = "epochs" if loss.epochs > 1 else "minibatches"
        preset = "" if section.preset == "none" else f", in place of preset = {section.preset}"
        yield (
            f"loss.{key}",
            'makes more than one update, and loss.kind = "reinforce" has no guard against a policy that has moved; '
            'write loss.{setting} = 1, or loss.kind = "clipped"{preset}',
            {"setting": key, "preset": preset},
        )
    if loss.kind in ("reinforce", "cispo") and loss.dual_clip is not None:
        yield ("loss.dual_clip", 'is not part of loss.kind = "{kind}"; remove one of them', {"kind": loss.kind})
    if section.importance_cap is None and loss.importance_floor is not None:
        yield (
            "loss.importance_floor",
            "weighs nothing without importance_cap, which is not given; write importance_cap = 5.0, or remove it",
            {},
        )
    if section.importance_cap is None and loss.importance_level != "token":
        yield (
            "loss.importance_level",
            "weighs nothing without importance_cap, which is not given; write importance_cap = 2.0, or remove it",
            {},
        )


def _advantage_problems(section: GrpoSection) -> Iterator[_Problem]:
    advantage = section.advantage
    if advantage.kind != "group" and section.scale != "none":
        yield (
            "scale",
            'contradicts advantage.kind = "{kind}", which is not divided by it; write scale = "none", or '
            'advantage.kind = "group"',
            {"kind": advantage.kind},
        )
    if advantage.kind == "max_rl" and advantage.truncated == "penalise":
        yield (
            "advantage.truncated",
            'makes rewards negative, and advantage.kind = "max_rl" divides by their mean; remove one of them',
            {},
        )
    if advantage.step_end is not None and advantage.kind != "group":
        yield (
            "advantage.step_end",
            'needs advantage.kind = "group", not "{kind}": steps are compared with those of the group',
            {"kind": advantage.kind},
        )
    if advantage.step_end is not None and (advantage.truncated == "penalise" or section.length_penalty is not None):
        yield (
            "advantage.step_end",
            'takes the rewards of steps, which neither advantage.truncated = "penalise" nor length_penalty changes; '
            "remove one of them",
            {},
        )
    if advantage.step_end is not None and section.loss.kind == "gspo":
        yield (
            "advantage.step_end",
            'gives each token its own advantage, and loss.kind = "gspo" one to a completion; write gspo_token',
            {},
        )


def _kl_problems(section: GrpoSection) -> Iterator[_Problem]:
    kl = section.kl
    if kl.place == "reward" and section.beta == 0:
        yield ("kl.place", "has nothing to place with beta = 0; write beta = 0.03, or remove it", {})
    if kl.place == "reward" and kl.weighted:
        yield ("kl.weighted", '= true is a form of the loss, and kl.place = "reward"; remove one of them', {})
    if kl.place == "reward" and section.advantage.kind == "max_rl":
        yield (
            "kl.place",
            'makes rewards negative, and advantage.kind = "max_rl" divides by their mean; write kl.place = "loss"',
            {},
        )
    if kl.place == "reward" and section.advantage.step_end is not None:
        yield ("kl.place", "changes a completion's reward, and advantage.step_end takes those of its steps", {})
    if kl.place == "loss" and kl.estimator == "k1" and not kl.weighted and section.beta > 0:
        yield (
            "kl.estimator",
            'has a gradient of 0 on average in the loss: it is noise. Write kl.estimator = "k2" or "k3", '
            'kl.weighted = true, or kl.place = "reward"',
            {},
        )


def refuse_misfit(place: str, section: GrpoSection, rollout: RolloutSection, *, compares_parts: bool) -> None:
    """Raises the problem that this algorithm has with the rest of the recipe, if any; compares_parts = the verifier is
    composed and its parts are compared one by one."""
    if section.kl.place == "reward" and rollout.is_restricted:
        raise problem(
            f"{place}.kl.place",
            "needs probabilities over all tokens; set rollout.top_p = 1 and rollout.top_k = 0, or kl.place = loss",
        )
    num_completions = rollout.prompts_per_step * rollout.group_size
    if section.loss.minibatches > num_completions:
        raise problem(
            f"{place}.loss.minibatches",
            "must be at most the {num} completions of a step (rollout.prompts_per_step = {prompts} times "
            "rollout.group_size = {size})",
            num=num_completions,
            prompts=rollout.prompts_per_step,
            size=rollout.group_size,
        )
    if not compares_parts:
        return
    own = {
        "advantage.kind": section.advantage.kind != "group",
        "advantage.step_end": section.advantage.step_end is not None,
        "advantage.truncated": section.advantage.truncated == "penalise",
        "kl.place": section.kl.place == "reward",
    }
    for key, clashes in own.items():
        if clashes:
            raise problem(
                f"{place}.{key}", "changes the whole reward, and verifier.normalize_parts = true compares its parts"
            )
