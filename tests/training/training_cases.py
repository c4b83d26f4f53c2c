"""Tiny models, rollouts and seams for the tests of the training room."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from groupwise.models import LoadedModel, tree_scores
from groupwise.rollout import Engine, Sampling
from groupwise.rollout.engine import group_sizes
from groupwise.training.batch import Batch
from groupwise.training.grpo import GrpoOptions, loss_function, make_batch, step_advantages
from groupwise.training.step import optimizer_step
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict

END = 1
VOCABULARY = 24
MAX_TOKENS = 8


def small_llama(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=END,
    )
    return LlamaForCausalLM(config).eval()


class IdTokenizer:
    """Writes a token id as its number: no tokenizer is needed to see what was sampled."""

    eos_token_id = END

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return " ".join(str(i) for i in token_ids if not (skip_special_tokens and i == END))

    def save_pretrained(self, folder: Path) -> None:
        (Path(folder) / "tokenizer.json").write_text("{}")


def small_policy(seed: int = 0) -> LoadedModel:
    return LoadedModel(model=small_llama(seed), tokenizer=IdTokenizer(), end_token_ids=(END,), source="tiny")


def weights(model: LlamaForCausalLM) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


def verdict(reward: float | None) -> Verdict:
    if reward is None:
        return Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason="snapshot_missing")
    return Verdict(status=Status.SCORED, reward=reward, outcome=reward == 1.0, reason="same_rows")


def group(number: int, rewards: Sequence[float | None], lengths: Sequence[int]) -> Group:
    """Random completions of these lengths; prompts of all groups share their first two tokens."""
    generator = torch.Generator().manual_seed(number)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(2, VOCABULARY, (count,), generator=generator).tolist())

    completions = [(*ids(length - 1), END) for length in lengths]
    return Group(
        task=Task(id=f"q{number}", prompt="?"),
        prompt=Prompt(task_id=f"q{number}", token_ids=(2, 3, *ids(2))),
        rollouts=tuple(
            Rollout(
                completion=Completion(text="", token_ids=c, sampler_logprobs=(-1.0,) * len(c)), verdict=verdict(reward)
            )
            for c, reward in zip(completions, rewards, strict=True)
        ),
    )


def mixed_groups() -> list[Group]:
    """Two live groups, one of them with an unscored rollout, one solved by all and one by none: 15 scored rollouts."""
    return [
        group(0, [1, 0, 0, 1], [2, 7, 3, 5]),
        group(1, [1, 1, 1, 1], [4, 2, 3, 3]),
        group(2, [1, None, 0, 0], [6, 3, 8, 2]),
        group(3, [0, 0, 0, 0], [3, 3, 2, 8]),
    ]


def batch_of(groups: Sequence[Group], options: GrpoOptions) -> Batch:
    batch = make_batch(groups, step_advantages(groups, options), options, max_completion_tokens=MAX_TOKENS)
    assert batch is not None
    return batch


def weights_after_plain_descent(batch: Batch, options: GrpoOptions, *, tokens_per_microbatch: int = 4096) -> Any:
    """One step of plain gradient descent at rate 1: the change of the weights is the gradient itself."""
    model = small_llama()
    optimizer_step(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        batch,
        loss_function(options),
        scores=tree_scores,
        temperature=1.0,
        tokens_per_microbatch=tokens_per_microbatch,
        max_grad_norm=float("inf"),
    )
    return weights(model)


class FakeEngine:
    """Answers every prompt with what `answer(prompt number, completion number)` gives."""

    def __init__(self, answer: Callable[[int, int], Completion]) -> None:
        self.answer = answer
        self.calls: list[tuple[int | Sequence[int], Sampling, int]] = []
        self.versions: list[int] = []

    def generate(
        self,
        prompts: Sequence[Prompt],
        group_size: int | Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        progress: Any = None,
    ) -> list[list[Completion]]:
        self.calls.append((group_size, sampling, seed))
        sizes = group_sizes(len(prompts), group_size)
        if progress is not None:
            progress(sum(sizes), sum(sizes))
        return [[self.answer(p, c) for c in range(size)] for p, size in enumerate(sizes)]

    def set_policy_version(self, version: int) -> None:
        self.versions.append(version)


class ShiftedEngine:
    """Samples as `engine` does, and reports log-probabilities that are off by `offset` from call number `start` on."""

    def __init__(self, engine: Engine, offset: float, *, start: int = 0) -> None:
        self.engine, self.offset, self.start = engine, offset, start
        self.calls = 0

    def generate(
        self,
        prompts: Sequence[Prompt],
        group_size: int | Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        progress: Any = None,
    ) -> list[list[Completion]]:
        offset = self.offset if self.calls >= self.start else 0.0
        self.calls += 1
        return [
            [replace(c, sampler_logprobs=tuple(x + offset for x in c.sampler_logprobs)) for c in group]
            for group in self.engine.generate(prompts, group_size, sampling, seed=seed, progress=progress)
        ]

    def set_policy_version(self, version: int) -> None:
        self.engine.set_policy_version(version)


def said(text: str, *token_ids: int, stop: Stop = Stop.END) -> Completion:
    ids = token_ids or (5, END)
    return Completion(text=text, token_ids=ids, sampler_logprobs=(-1.0,) * len(ids), stop=stop)


class SaysYes:
    """Solved where the completion is "yes"; the verifier fails on "broken"."""

    def judge(self, task: Task, completion_text: str) -> Verdict:
        if completion_text == "broken":
            raise RuntimeError("no database")
        return verdict(float(completion_text == "yes"))

    def gold(self, task: Task) -> str:
        return "yes"


class ListRecorder:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.groups: list[tuple[Sequence[Group], Sequence[Sequence[float]]]] = []
        self.left_out: list[Sequence[Sequence[str]] | None] = []
        self.events: list[tuple[str, Mapping[str, Any]]] = []

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        self.rows.append({**values, "step": step})

    def rollouts(
        self,
        stage: str,
        step: int,
        groups: Sequence[Group],
        advantages: Sequence[Sequence[float]],
        *,
        left_out: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self.groups.append((groups, advantages))
        self.left_out.append(left_out)

    def event(self, name: str, payload: Mapping[str, Any]) -> None:
        json.dumps(payload)
        self.events.append((name, payload))


def tasks_and_prompts(count: int) -> tuple[list[Task], list[Prompt]]:
    tasks = [Task(id=f"q{i}", prompt="?") for i in range(count)]
    return tasks, [Prompt(task_id=t.id, token_ids=(2, 3, 4 + i)) for i, t in enumerate(tasks)]
