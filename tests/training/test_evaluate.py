"""Rates and lengths of a held-out evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from training_cases import FakeEngine, SaysYes, said, tasks_and_prompts

from groupwise.models import LoadedModel
from groupwise.rollout import Sampling, TorchEngine
from groupwise.training import Evaluation, evaluate_tasks
from groupwise.training.evaluate import with_success
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict


def evaluated(engine: FakeEngine, **options: Any) -> Evaluation:
    tasks, prompts = tasks_and_prompts(3)
    settings = {"samples_per_prompt": 4, "greedy": True, "sampling": Sampling(max_tokens=8), "seed": 9, **options}
    return evaluate_tasks(engine, SaysYes(), tasks, prompts, **settings)


def answer(prompt: int, sample: int) -> Any:
    """Prompt 0 is solved by 1 of 4, prompt 1 by all, prompt 2 by 1 of the 3 that can be judged."""
    if prompt == 2 and sample == 3:
        return said("broken", 5, 5, 5, 5, 5, 5, 5, 1)
    right = sample == 0 or prompt == 1
    return said("yes", 5, 1) if right else said("no", 5, 6, 7, 8, stop=Stop.LENGTH)


def test_rates_and_lengths_by_hand() -> None:
    evaluation = evaluated(FakeEngine(answer))
    assert evaluation.prompt_rates == pytest.approx([1 / 4, 1, 1 / 3])
    assert evaluation.greedy_outcomes == [True, True, True]
    assert evaluation.mean_length(right=True) == 2
    assert evaluation.mean_length(right=False) == 4  # the unscored one of 8 tokens is neither right nor wrong
    assert evaluation.truncated_frac == 5 / 12


def test_a_length_of_nothing_is_none() -> None:
    assert evaluated(FakeEngine(lambda p, c: said("no"))).mean_length(right=True) is None


def test_prompts_that_nothing_could_judge_have_no_rate() -> None:
    evaluation = evaluated(FakeEngine(lambda p, c: said("broken" if p else "yes")))
    assert evaluation.prompt_rates == [1]
    assert evaluation.greedy_outcomes == [True]


def test_greedy_is_one_sample_at_temperature_zero_and_the_seed_is_given() -> None:
    engine = FakeEngine(answer)
    evaluated(engine)
    assert engine.calls == [(4, Sampling(max_tokens=8), 9), (1, Sampling(max_tokens=8, temperature=0.0), 9)]


def test_greedy_alone_still_has_lengths() -> None:
    engine = FakeEngine(answer)
    evaluation = evaluated(engine, samples_per_prompt=0)
    assert len(engine.calls) == 1
    assert evaluation.prompt_rates == []
    assert evaluation.greedy_outcomes == [True] * 3
    assert evaluation.mean_length(right=True) == 2
    assert evaluation.truncated_frac == 0


def test_without_greedy_nothing_greedy_is_sampled() -> None:
    engine = FakeEngine(answer)
    assert evaluated(engine, greedy=False).greedy_outcomes == []
    assert len(engine.calls) == 1


def test_progress_counts_both_passes() -> None:
    seen: list[tuple[int, int]] = []
    evaluated(FakeEngine(answer), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(12, 15), (15, 15)]


def partly(reward: float | None) -> Rollout:
    if reward is None:
        return Rollout(
            completion=said("x"), verdict=Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason="broke")
        )
    return Rollout(
        completion=said("x"), verdict=Verdict(status=Status.SCORED, reward=reward, outcome=reward == 1, reason="part")
    )


def test_a_threshold_decides_in_place_of_the_verifier_and_scores_nothing_new() -> None:
    task, prompt = Task(id="q", prompt="?"), Prompt(task_id="q", token_ids=(1,))
    group = Group(task=task, prompt=prompt, rollouts=tuple(map(partly, (1.0, 0.5, 0.49, 0.0, None))))
    assert with_success(group, None) is group
    decided = with_success(group, 0.5)
    assert [r.verdict.outcome for r in decided.rollouts] == [True, True, False, False, None]
    assert [r.verdict.reward for r in decided.rollouts] == [1.0, 0.5, 0.49, 0.0, None]
    assert (decided.num_solved, decided.num_scored) == (2, 4)
    assert with_success(group, 1.0).num_solved == 1


class PaysHalf(SaysYes):
    """Half a reward for "no", which is no outcome."""

    def judge(self, task: Task, completion_text: str) -> Verdict:
        if completion_text == "no":
            return Verdict(status=Status.SCORED, reward=0.5, outcome=False, reason="part")
        return super().judge(task, completion_text)


def test_every_number_of_an_evaluation_goes_by_the_threshold() -> None:
    tasks, prompts = tasks_and_prompts(3)
    how = {"samples_per_prompt": 4, "greedy": True, "sampling": Sampling(max_tokens=8), "seed": 9}
    strict = evaluate_tasks(FakeEngine(answer), PaysHalf(), tasks, prompts, **how)
    mild = evaluate_tasks(FakeEngine(answer), PaysHalf(), tasks, prompts, success_reward=0.5, **how)
    assert (strict.success, mild.success) == ("outcome", "reward >= 0.5")
    assert strict.prompt_rates == pytest.approx([1 / 4, 1, 1 / 3])
    assert mild.prompt_rates == [1, 1, 1]
    assert mild.counts == [(4, 4), (4, 4), (3, 3)]
    assert (strict.mean_length(right=False), mild.mean_length(right=False)) == (4, None)


def test_what_nobody_could_judge_is_counted_and_is_in_no_rate() -> None:
    def half_lost(prompt: int, sample: int) -> Completion:
        return Completion(text="", stop=Stop.ABORTED) if sample % 2 else said("no", 5, stop=Stop.LENGTH)

    evaluation = evaluated(FakeEngine(half_lost))
    assert (evaluation.num_unscored, evaluation.num_greedy_unscored) == (6, 0)
    assert evaluation.counts == [(0, 2)] * 3
    assert evaluation.truncated_frac == 1  # of those that arrived
    nothing = evaluated(FakeEngine(lambda p, c: Completion(text="", stop=Stop.ABORTED)))
    assert (nothing.num_unscored, nothing.num_greedy_unscored) == (12, 3)
    assert (nothing.prompt_rates, nothing.greedy_outcomes, nothing.truncated_frac) == ([], [], 0.0)


def test_lengths_are_unknown_where_the_engine_tells_no_tokens() -> None:
    assert evaluated(FakeEngine(lambda p, c: Completion(text="yes"))).mean_length(right=True) is None


def test_an_evaluation_knows_what_it_was_drawn_with() -> None:
    evaluation = evaluated(FakeEngine(answer))
    assert (evaluation.sampling, evaluation.seed, evaluation.samples_per_prompt) == (Sampling(max_tokens=8), 9, 4)


def test_greedy_twice_is_identical_and_any_group_size_fits(tiny_model: Callable[..., LoadedModel]) -> None:
    """Two samples of six prompts are twelve rows, whatever training samples."""
    loaded = tiny_model("llama")
    engine = TorchEngine(loaded)
    tasks = [Task(id=f"q{n}", prompt="?") for n in range(6)]
    prompts = [Prompt(task_id=f"q{n}", token_ids=(5, 6, 7 + n)) for n in range(6)]
    how = {"greedy": True, "sampling": Sampling(max_tokens=6), "seed": 3}
    two = evaluate_tasks(engine, SaysYes(), tasks, prompts, samples_per_prompt=2, **how)
    engine.generate(prompts, 8, Sampling(max_tokens=6), seed=1)  # as a training step does in between
    five = evaluate_tasks(engine, SaysYes(), tasks, prompts, samples_per_prompt=5, **how)
    assert [len(group.rollouts) for group in two.groups] == [2] * 6
    assert [len(group.rollouts) for group in five.groups] == [5] * 6
    assert [g.rollouts[0].completion.token_ids for g in two.greedy_groups] == [
        g.rollouts[0].completion.token_ids for g in five.greedy_groups
    ]
    for few, many in zip(two.groups, five.groups, strict=True):  # the same seed: the first two are the same two
        assert [r.completion.token_ids for r in few.rollouts] == [r.completion.token_ids for r in many.rollouts[:2]]
