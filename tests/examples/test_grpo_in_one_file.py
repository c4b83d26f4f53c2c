"""The one-file example and the library give the same numbers, step by step; and it stands alone and learns."""

from __future__ import annotations

import ast
import copy
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.curation import PromptLedger
from groupwise.models import load_model, tree_scores
from groupwise.models.tiny import save_tiny_model
from groupwise.rollout import Sampling, TorchEngine
from groupwise.rollout.sampling import uniforms
from groupwise.training import GrpoOptions, OptimOptions, StageOptions, grpo, run_stage
from groupwise.training.algorithm import Updates
from groupwise.training.batch import derive_seed
from groupwise.training.grpo import StepSampling
from groupwise.types import Group, Prompt, Status, Task, Verdict

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "grpo_in_one_file.py"
PROMPTS = ("one", "a longer one", "two")
SEED = 3
NUM_STEPS = 5
TOLERANCE = 1e-5
ADAM_EPS = 1e-4
"""At the usual 1e-8 a first update is the learning rate times the sign of a gradient, however small that is: where the
gradient is 1e-8 that is the sign of its rounding."""

Reward = Callable[[str, str], float]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("grpo_in_one_file", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model with many end tokens, so that completions differ in length."""
    folder = save_tiny_model(tmp_path_factory.mktemp("tiny"), family="llama")
    loaded = load_model(str(folder), device="cpu")
    config = loaded.model.generation_config
    assert config is not None
    config.eos_token_id = [*loaded.end_token_ids, *range(0, 256, 8)]
    config.save_pretrained(folder)
    return str(folder)


def share_of_letters(prompt: str, completion: str) -> float:
    """Some fraction for nearly every completion."""
    return sum(c.isalpha() for c in completion) / (len(prompt) + len(completion))


def begins_with_letter(prompt: str, completion: str) -> float:
    """The same for all completions of a small group, now and then."""
    return float(completion[:1].isalpha())


@dataclass(kw_only=True)
class Judge:
    """The reward function as the library's verifier."""

    reward: Reward

    def judge(self, task: Task, completion_text: str) -> Verdict:
        assert isinstance(task.prompt, str)
        reward = self.reward(task.prompt, completion_text)
        return Verdict(status=Status.SCORED, reward=reward, outcome=reward > 0, reason="letters")

    def gold(self, task: Task) -> str:
        return "a"


@dataclass(kw_only=True)
class Collections:
    """A recorder: every collection of the library in order, also those that were no step, and the weights after it."""

    model: Any
    groups: list[Sequence[Group]] = field(default_factory=list)
    advantages: list[Sequence[Sequence[float]]] = field(default_factory=list)
    rows: list[Mapping[str, float]] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)

    def rollouts(
        self,
        stage: str,
        step: int,
        groups: Sequence[Group],
        advantages: Sequence[Sequence[float]],
        *,
        left_out: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self.groups.append(groups)
        self.advantages.append(advantages)

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        self.rows.append(values)
        self.weights.append(weights(self.model))

    def event(self, name: str, payload: Mapping[str, Any]) -> None:
        pass

    def mean(self, name: str) -> float:
        """Of a number over the steps."""
        found = [row[name] for row in self.rows if row["updated"]]
        return sum(found) / len(found)


def weights(model: Any) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def by_library(folder: str, checkpoints: Path, settings: Any, reward: Reward) -> Collections:
    loaded = load_model(folder, device="cpu")
    tasks = [Task(id=f"q{n}", prompt=prompt) for n, prompt in enumerate(PROMPTS)]
    algorithm = grpo(
        GrpoOptions(
            clip_low=settings.clip,
            beta=settings.beta,
            eps=settings.std_eps,
            updates=Updates(epochs=settings.num_updates),
        ),
        engine=TorchEngine(loaded),
        verifier=Judge(reward=reward),
        tasks=tasks,
        prompts=[Prompt(task_id=t.id, token_ids=tuple(loaded.tokenizer.encode(t.prompt))) for t in tasks],
        ledger=PromptLedger([task.id for task in tasks], seed=SEED),
        step_sampling=StepSampling(prompts_per_step=2, group_size=settings.group_size),
        sampling=Sampling(max_tokens=settings.max_tokens, temperature=settings.temperature),
        seed=SEED,
    )
    optim = {"lr": settings.learning_rate, "betas": settings.betas, "max_grad_norm": settings.max_grad_norm}
    collections = Collections(model=loaded.model)
    run_stage(
        StageOptions(
            name="stage", num_steps=NUM_STEPS, optim=OptimOptions(eps=ADAM_EPS, **optim), checkpoints=checkpoints
        ),
        algorithm,
        loaded,
        scores=tree_scores,
        recorder=collections,
        policy_version=0,
        on_new_weights=lambda version: None,
        on_step=lambda step, metrics: None,
        should_stop=lambda: False,
    )
    return collections


def library_uniforms(collection: int, settings: Any) -> Tensor:
    """[2, G, L] the numbers with which the library draws the completions of this collection."""
    seed = derive_seed(SEED, "rollouts", collection)
    streams = [[(p, g) for g in range(settings.group_size)] for p in range(2)]
    return torch.stack([torch.stack([uniforms(seed, s, settings.max_tokens) for s in group]) for group in streams])


def compare(example: ModuleType, folder: str, checkpoints: Path, reward: Reward, **given: Any) -> Collections:
    """Both, from the same weights with the same settings; what the library did, once everything was equal."""
    settings = example.Settings(**{"group_size": 5, "max_tokens": 7, "max_grad_norm": 0.5, **given})
    library = by_library(folder, checkpoints, settings, reward)
    model, tokenizer = example.load(folder)
    start, reference = weights(model), copy.deepcopy(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), settings.learning_rate, settings.betas, eps=ADAM_EPS, weight_decay=0.0
    )
    for number, (theirs, row) in enumerate(zip(library.groups, library.rows, strict=True)):
        prompts = [group.task.prompt for group in theirs]
        draws = library_uniforms(number, settings)
        ours, updates = example.grpo_step(model, reference, optimizer, tokenizer, prompts, reward, draws, settings)
        for group, of_library, advantages in zip(ours, theirs, library.advantages[number], strict=True):
            assert group.completions == [list(r.completion.token_ids) for r in of_library.rollouts]
            assert group.rewards.tolist() == [r.verdict.reward for r in of_library.rollouts]
            assert group.advantages.tolist() == pytest.approx(advantages, abs=1e-12)
        assert len(updates) == (settings.num_updates if row["updated"] else 0)
        for ours_of, name in (("loss", "loss"), ("grad_norm", "grad_norm"), ("kl", "kl_to_ref")):
            values = [getattr(update, ours_of) for update in updates]
            if values:  # the library reports the mean over the updates of a step
                assert sum(values) / len(values) == pytest.approx(row.get(name, 0.0), rel=TOLERANCE, abs=TOLERANCE)
        torch.testing.assert_close(weights(model), library.weights[number], rtol=0, atol=TOLERANCE)
    assert sum(row["updated"] for row in library.rows) == NUM_STEPS
    assert (weights(model) - start).abs().max() > 500 * TOLERANCE
    return library


def test_one_update_without_a_reference_gives_the_same_numbers(
    example: ModuleType, folder: str, tmp_path: Path
) -> None:
    compare(example, folder, tmp_path, share_of_letters, num_updates=1, beta=0.0)


def test_a_reference_and_a_temperature_give_the_same_numbers(example: ModuleType, folder: str, tmp_path: Path) -> None:
    library = compare(example, folder, tmp_path, share_of_letters, num_updates=1, beta=0.2, temperature=0.7)
    assert library.mean("kl_to_ref") > 0.1


def test_several_updates_with_an_active_clip_give_the_same_numbers(
    example: ModuleType, folder: str, tmp_path: Path
) -> None:
    library = compare(example, folder, tmp_path, share_of_letters, num_updates=3, beta=0.1, clip=0.1, temperature=1.3)
    assert library.mean("clipped_low") > 0.1
    assert library.mean("clipped_high") > 0.1


def test_a_step_without_a_signal_is_none_for_both(example: ModuleType, folder: str, tmp_path: Path) -> None:
    library = compare(example, folder, tmp_path, begins_with_letter, num_updates=2, beta=0.0, group_size=2)
    updated = [row["updated"] for row in library.rows]
    assert (1.0, 0.0) in pairwise(updated)  # where AdamW has a momentum


def test_it_learns_by_itself(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    rewards = example.main(num_steps=25)
    assert sum(rewards[:3]) / 3 < 0.25
    assert sum(rewards[-3:]) / 3 > 0.4
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 25
    assert lines[0].split()[:4] == ["step", "1", "reward", f"{rewards[0]:.3f}"]


def test_it_is_one_short_file_that_needs_nothing_of_ours() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    nodes = list(ast.walk(ast.parse(text)))
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    assert {name.split(".")[0] for name in names} <= {"torch", "transformers", *sys.stdlib_module_names}
