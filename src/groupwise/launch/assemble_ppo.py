"""From a recipe to a ppo stage: the critic, its start and its optimizer, and the reference of the KL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.config import Recipe
from groupwise.config.algorithm_ppo import CriticSection, PpoSection
from groupwise.curation import PromptLedger
from groupwise.errors import EngineError
from groupwise.models import LoadedModel
from groupwise.models.gradient_checkpointing import with_gradient_checkpointing
from groupwise.models.logprobs import ScoreFunction
from groupwise.models.reference import frozen_reference
from groupwise.models.reward_files import load_reward_model, refuse_foreign_tokenizer, refuse_other_models
from groupwise.models.value_model import (
    HEAD_FILE,
    ValueModel,
    load_value_model,
    score_function,
    value_head_for,
    value_model_from,
    values_of,
    with_value_head,
)
from groupwise.rollout import Engine, Sampling
from groupwise.rollout.engine import Progress
from groupwise.training.algorithm import Algorithm, Updates
from groupwise.training.optim import OptimOptions
from groupwise.training.ppo import PpoOptions, ppo
from groupwise.training.ppo_batch import RewardOptions
from groupwise.training.ppo_networks import Networks, OwnCritic, SharedCritic
from groupwise.types import Prompt, Task


def build_ppo(
    section: PpoSection,
    *,
    recipe: Recipe,
    optim: OptimOptions,
    loaded: LoadedModel,
    scores: ScoreFunction,
    engine: Engine,
    verifier: Any,
    tasks: tuple[Task, ...],
    prompts: tuple[Prompt, ...],
    ledger: PromptLedger,
    sampling: Sampling,
    seed: int,
    progress: Callable[[int], Progress] | None = None,
    value_meter: Callable[[ScoreFunction], ScoreFunction] | None = None,
) -> Algorithm:
    """The ppo stage over these tasks; prompts[i] belongs to tasks[i]. The model as it is now is the reference.

    value_meter is put around the scores of a critic of its own.

    Raises:
        EngineError: if algorithm.critic.start names nothing that can be used.
    """
    critic = build_critic(section.critic, recipe=recipe, optim=optim, loaded=loaded)
    if value_meter is not None and isinstance(critic, OwnCritic):
        critic = replace(critic, scores=value_meter(critic.scores))
    return ppo(
        ppo_options(recipe, section),
        networks=Networks(
            policy=loaded.model,
            scores=with_value_head(scores, critic.head) if isinstance(critic, SharedCritic) else scores,
            critic=critic,
            reference=frozen_reference(loaded.model) if section.kl.coef > 0 else None,
            tokens_per_microbatch=optim.tokens_per_microbatch,
        ),
        engine=engine,
        verifier=verifier,
        tasks=tasks,
        prompts=prompts,
        ledger=ledger,
        sampling=sampling,
        seed=seed,
        progress=progress,
    )


def ppo_options(recipe: Recipe, section: PpoSection) -> PpoOptions:
    """The settings of the section and the step's size; what is not given keeps the default of PpoOptions."""
    given: dict[str, Any] = {"value_coef": section.critic.coef, "kl_horizon": section.kl.horizon}
    return PpoOptions(
        prompts_per_step=recipe.rollout.prompts_per_step,
        completions_per_prompt=section.completions_per_prompt,
        updates=Updates(epochs=section.epochs, minibatches=section.minibatches),
        clip=section.clip,
        value_clip=section.critic.clip or None,
        reward=RewardOptions(
            gamma=section.gamma,
            lam=section.lam,
            whiten=section.whiten,
            truncation_penalty=section.truncation.penalty,
            bootstrap=section.truncation.bootstrap,
            kl_estimator=section.kl.estimator,
        ),
        kl_coef=section.kl.coef,
        kl_target=section.kl.target,
        max_unscored_frac=section.max_unscored_frac,
        **{name: value for name, value in given.items() if value is not None},
    )


def build_critic(
    section: CriticSection, *, recipe: Recipe, optim: OptimOptions, loaded: LoadedModel
) -> OwnCritic | SharedCritic:
    """The value network as it starts the stage.

    Raises:
        EngineError: if section.start names nothing that can be used.
    """
    if section.shared:
        return SharedCritic(head=value_head_for(loaded.model))
    model = value_model_from(loaded.model) if section.start is None else _started(recipe.resolve(section.start), loaded)
    scores = score_function(values_of(model))
    return OwnCritic(
        model=model,
        scores=with_gradient_checkpointing(scores) if recipe.model.gradient_checkpointing else scores,
        optim=optim if section.lr is None else replace(optim, lr=section.lr),
    )


def refuse_missing_critics(recipe: Recipe) -> None:
    """Stops before anything is loaded where a ppo stage is to start its critic from a folder that holds none.

    Raises:
        EngineError: with the folder.
    """
    for stage in recipe.stages:
        start = stage.algorithm.critic.start if isinstance(stage.algorithm, PpoSection) else None
        if start is None or (recipe.resolve(start) / HEAD_FILE).is_file():
            continue
        try:
            refuse_other_models(recipe.resolve(start))
        except EngineError as error:
            raise EngineError(
                f"stage {stage.name!r}: algorithm.critic.start = {start!r} holds no critic, and is not a reward model "
                f"either.\n  Give a reward model's folder, the critic/ folder of a ppo checkpoint, or remove it to "
                f"start from the policy.\n  {error}"
            ) from error


def _started(folder: Path, loaded: LoadedModel) -> ValueModel:
    if (folder / HEAD_FILE).is_file():
        critic = load_value_model(folder, device=loaded.model.device, dtype=loaded.model.dtype)
        known, needed = (m.config.get_text_config().vocab_size for m in (critic, loaded.model))
        if known != needed:
            raise EngineError(
                f"algorithm.critic.start: {folder} has {known} token ids, the policy {loaded.source} has {needed}.\n"
                "  Give a critic that was trained beside this model, or remove it to start from the policy."
            )
        return critic
    reward = load_reward_model(
        folder, device=str(loaded.model.device), dtype=str(loaded.model.dtype).removeprefix("torch.")
    )
    refuse_foreign_tokenizer(loaded, reward)
    body = reward.model.body.requires_grad_(True)
    return ValueModel(body, value_head_for(body)).eval()
