"""Sampling prompts to learn their pass rates: the sampler of a curation, and what its counts were measured with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from transformers import PreTrainedModel

from groupwise.config import Recipe
from groupwise.curation import (
    CuratedRow,
    CurateOptions,
    Curation,
    Drawn,
    RetireRule,
    Screening,
    curate,
    next_visit,
)
from groupwise.curation.curation_file import Identity
from groupwise.errors import ConfigError
from groupwise.launch.assemble import Policy, RenderedTasks, retire_rule, sampling
from groupwise.launch.display import Display
from groupwise.models.lora import adapted_layers, effective_weight
from groupwise.rollout import collect_groups
from groupwise.training.batch import derive_seed
from groupwise.training.grpo import refuse_unscored
from groupwise.types import Group, Verifier
from groupwise.verifiers import TaskVerifier

VALUES_PER_TENSOR = 256
"""Weights of each tensor that go into the hash, evenly spread: any training step changes nearly all of them."""
TOKENS_AT_ONCE = 2**18
"""Tokens of one call of the engine: minutes on a CPU, which is what an interruption may cost."""


def measure_pass_rates(
    recipe: Recipe,
    train: RenderedTasks,
    *,
    options: CurateOptions,
    policy: Policy,
    verifier: Verifier,
    seed: int,
    display: Display,
    title: str,
    screening: Screening | None = None,
    known: Sequence[CuratedRow] = (),
    save: Callable[[Curation], object] = lambda curation: None,
    saw: Callable[[Sequence[Group]], object] = lambda groups: None,
) -> Curation:
    """Curates the tasks with completions that are drawn as training draws them; `display` shows how far it is.

    The total that it shows is what is sure to come; it grows where prompts stay open. `saw` gets all that was sampled.

    Raises:
        VerifierError: if more than curation.max_unscored_frac of a call's completions could not be judged.
    """
    before, total, note = 0, 0, ""

    def sample(places: Sequence[int], num_samples: int, stream: int) -> list[Drawn]:
        groups = collect_groups(
            policy.engine,
            verifier,
            [train.tasks[place] for place in places],
            [train.prompts[place] for place in places],
            group_size=num_samples,
            sampling=sampling(recipe),
            seed=derive_seed(seed, stream),
            progress=lambda done, _: advance(before + done, total, note),
        ).groups
        refuse_unscored(groups, recipe.curation.max_unscored_frac)
        saw(groups)
        return [drawn_of(group) for group in groups]

    started_with: int | None = None

    def after_call(curation: Curation) -> None:
        nonlocal before, total, note, started_with
        save(curation)
        started_with = curation.num_samples if started_with is None else started_with
        visit = next_visit(curation)
        before = curation.num_samples - started_with
        total = before + (0 if visit is None else visit.num_left)
        note = f"{len(curation.kept())} kept"

    with display.working(title) as advance:
        return curate(
            train.tasks,
            sample,
            options=options,
            excluded=None if screening is None else screening.excluded,
            notes=None if screening is None else screening.notes,
            known=known,
            prompt_tokens=[len(prompt.token_ids) for prompt in train.prompts],
            save=after_call,
        )


def drawn_of(group: Group) -> Drawn:
    """The counts and lengths of one group."""
    lengths = [len(rollout.completion.token_ids) for rollout in group.rollouts]
    pairs = list(zip(lengths, group.rollouts, strict=True))
    return Drawn(
        solved=group.num_solved,
        scored=group.num_scored,
        num_samples=len(group.rollouts),
        completion_tokens=sum(lengths),
        scored_tokens=sum(n for n, rollout in pairs if rollout.verdict.reward is not None),
        solved_tokens=sum(n for n, rollout in pairs if rollout.verdict.outcome is True),
        longest_tokens=max(lengths, default=0),
    )


def curate_options(recipe: Recipe, *, budget: int | None = None) -> CurateOptions:
    """The limits and the rule of a recipe's [curation].

    One call of the engine draws what it decodes at once, or more where completions are short.

    Raises:
        ConfigError: for limits that contradict each other.
    """
    section, rollout = recipe.curation, recipe.rollout
    short = min(CurateOptions().completions_at_once, TOKENS_AT_ONCE // rollout.max_completion_tokens)
    try:
        return CurateOptions(
            samples_per_prompt=section.samples_per_prompt,
            max_samples_per_prompt=section.max_samples_per_prompt,
            budget=budget,
            completions_at_once=max(rollout.max_rows, short),
            rule=retire_rule(section.model_copy(update={"enabled": True}))
            or RetireRule(solved_above=section.solved_above, hopeless_below=section.hopeless_below),
        )
    except ValueError as error:
        raise ConfigError(f"[curation]: {error}") from error


def measured_with(recipe: Recipe, policy: Policy, verifier: TaskVerifier) -> Identity:
    """What counts depend on, for the weights as they are now."""
    drawn = sampling(recipe)
    return Identity(
        model=recipe.model.name,
        weights=weights_hash(policy.loaded.model),
        verifier=verifier.version,
        sampling={
            "temperature": drawn.temperature,
            "top_p": drawn.top_p,
            "top_k": drawn.top_k,
            "max_completion_tokens": drawn.max_tokens,
            "stop": list(drawn.stop),
        },
        seed=recipe.seed,
    )


@torch.no_grad()
def weights_hash(model: PreTrainedModel) -> str:
    """A hash of what the model computes with: some values of every tensor, those of adapters added to their layers.

    A fresh adapter changes nothing, here as in the model.
    """
    layers = adapted_layers(model)
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if ".lora_" in name:
            continue
        layer, _, parameter = name.rpartition(".base_layer.")
        if layer and layer in layers:
            name = f"{layer}.{parameter}"
            tensor = effective_weight(layers[layer]) if parameter == "weight" else tensor
        step = max(1, tensor.numel() // VALUES_PER_TENSOR)
        values = tensor.detach().flatten()[::step].to("cpu", torch.float32)
        digest.update(f"{name} {tuple(tensor.shape)}".encode() + values.numpy().tobytes())
    return digest.hexdigest()[:16]
