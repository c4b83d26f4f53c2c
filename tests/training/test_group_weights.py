"""Every prompt the same weight, whatever its group size: exact expectations on a policy of three tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from training_cases import (
    FakeEngine,
    batch_of,
    group,
    said,
    tasks_and_prompts,
    verdict,
    weights_after_plain_descent,
)

from groupwise.curation import PromptLedger
from groupwise.rollout import Sampling
from groupwise.training.group_weights import baseline_factors, prompt_weights
from groupwise.training.grpo import (
    GrpoOptions,
    StepSampling,
    group_metrics,
    grpo,
    loss_function,
    make_batch,
    sizes_of,
    step_advantages,
)
from groupwise.training.step import LossRows
from groupwise.types import Completion, Group, Prompt, Rollout, Task

LOGITS = torch.tensor([[0.3, -0.4, 0.9], [-1.2, 0.5, 0.1]])
"""Two prompts, three tokens, one-token completions; token 0 solves the task."""
MAX_TOKENS = 8


def one_token_group(prompt: int, tokens: Sequence[int], lost: Sequence[int] = ()) -> Group:
    return Group(
        task=Task(id=f"q{prompt}", prompt="?"),
        prompt=Prompt(task_id=f"q{prompt}", token_ids=(prompt,)),
        rollouts=tuple(
            Rollout(
                completion=Completion(text="", token_ids=(token,), sampler_logprobs=(-1.0,)),
                verdict=verdict(None if i in lost else float(token == 0)),
            )
            for i, token in enumerate(tokens)
        ),
    )


def gradient(groups: Sequence[Group], options: GrpoOptions) -> Tensor:
    """[prompts, tokens] of the loss of one step, as optimizer_step computes it; zeros where there is no batch."""
    logits = LOGITS.clone().requires_grad_()
    batch = make_batch(groups, step_advantages(groups, options), options, max_completion_tokens=MAX_TOKENS)
    if batch is None:
        return torch.zeros_like(LOGITS)
    prompts = torch.tensor([s.token_ids[0] for s in batch.sequences])
    tokens = torch.tensor([s.token_ids[1] for s in batch.sequences])
    logprobs = torch.log_softmax(logits, dim=-1)[prompts, tokens][:, None]
    mask = torch.ones_like(logprobs, dtype=torch.bool)
    rows = LossRows(
        policy_logprobs=logprobs,
        mask=mask,
        denominator=batch.denominator,
        advantages=batch.advantages,
        weights=batch.weights,
    )
    loss_function(options)(rows)[0].backward()
    assert logits.grad is not None
    return logits.grad


def expected_gradient(sizes: tuple[int, int], options: GrpoOptions) -> Tensor:
    """Over every outcome of so many completions of each prompt, up to their order, weighted by its probability."""
    probabilities = torch.softmax(LOGITS, dim=-1)
    total = torch.zeros_like(LOGITS)
    outcomes = [itertools.combinations_with_replacement(range(3), size) for size in sizes]
    for of_prompt in itertools.product(*outcomes):
        orders = 1.0
        for tokens in of_prompt:
            orders *= math.factorial(len(tokens)) / math.prod(math.factorial(tokens.count(t)) for t in range(3))
        chance = torch.stack([probabilities[p, t] for p in (0, 1) for t in of_prompt[p]]).prod()
        total += orders * chance * gradient([one_token_group(p, of_prompt[p]) for p in (0, 1)], options)
    return total


def true_gradient() -> Tensor:
    """Of minus the mean pass rate, the two prompts counting the same."""
    logits = LOGITS.clone().requires_grad_()
    (-torch.softmax(logits, dim=-1)[:, 0].mean()).backward()
    assert logits.grad is not None
    return logits.grad


@pytest.mark.parametrize("normalize", ["sequence", "token", "constant"])
def test_sizes_change_no_expected_gradient(normalize: Any) -> None:
    """(2, 4) as (3, 3): (G - 1) / G of the gradient of the mean pass rate, G = 3; constant divides by the limit too."""
    options = GrpoOptions(scale="none", normalize=normalize, nominal_group_size=3)
    truth = 2 / 3 * true_gradient() / (MAX_TOKENS if normalize == "constant" else 1)
    for sizes in ((3, 3), (2, 4), (4, 2)):
        assert_close(expected_gradient(sizes, options), truth, atol=1e-6, rtol=1e-5)


def test_without_the_weights_the_larger_group_counts_for_more() -> None:
    found = expected_gradient((2, 4), GrpoOptions(scale="none"))
    truth = true_gradient()
    # prompt 0: 2 of 6 rollouts times (2 - 1) / 2, against 1/2: 1/3; prompt 1: 4 of 6 times 3/4, against 1/2: 1
    assert_close(found[0], truth[0] / 3, atol=1e-6, rtol=1e-5)
    assert_close(found[1], truth[1], atol=1e-6, rtol=1e-5)


def test_equal_sizes_need_no_weights() -> None:
    tokens = ((0, 1, 2), (0, 0, 2))
    groups = [one_token_group(p, tokens[p]) for p in (0, 1)]
    for scale in ("none", "std", "batch_std"):
        plain = GrpoOptions(scale=scale)  # type: ignore[arg-type]
        weighted = GrpoOptions(scale=scale, nominal_group_size=3)  # type: ignore[arg-type]
        assert_close(gradient(groups, weighted), gradient(groups, plain))


def test_with_the_groups_std_prompts_weigh_the_same_and_there_is_no_factor() -> None:
    """(0, 1) and (0, 1, 0, 1): advantages are +-1 in both, so that the gradients are as those of equal groups."""
    options = GrpoOptions(eps=0.0, nominal_group_size=3)
    groups = [one_token_group(0, (0, 1)), one_token_group(1, (0, 1, 0, 1))]
    assert step_advantages(groups, options) == ((1, -1), (1, -1, 1, -1))
    batch = make_batch(groups, step_advantages(groups, options), options, max_completion_tokens=8)
    assert batch is not None
    assert batch.weights is not None
    assert batch.weights.tolist() == [1.5] * 2 + [0.75] * 4
    assert batch.denominator == 6
    by_parts = GrpoOptions(scale="none", nominal_group_size=3, part_weights={"number": 1.0})
    assert max(abs(a) for row in step_advantages(groups, by_parts) for a in row) == 0  # no parts, and no factor either


def test_sizes_are_those_of_scored_rollouts() -> None:
    """Two of four are judged: as a group of two, with the weights of one."""
    options = GrpoOptions(scale="none", nominal_group_size=3)
    lossy = [one_token_group(0, (0, 1, 0, 1), lost=(2, 3)), one_token_group(1, (0, 0, 1, 2))]
    whole = [one_token_group(0, (0, 1)), one_token_group(1, (0, 0, 1, 2))]
    assert_close(gradient(lossy, options), gradient(whole, options))


def test_the_kl_weighs_prompts_the_same() -> None:
    options = GrpoOptions(scale="none", beta=0.1, nominal_group_size=3)
    groups = [group(0, [1, 0], [3, 2]), group(1, [0, 0, 1, 0], [2, 4, 1, 1])]
    for normalize, counts in (("sequence", [2, 4]), ("token", [5, 8])):
        options = GrpoOptions(scale="none", beta=0.1, nominal_group_size=3, normalize=normalize)  # type: ignore[arg-type]
        batch = make_batch(groups, step_advantages(groups, options), options, max_completion_tokens=8)
        assert batch is not None
        assert batch.weights is not None
        assert batch.weights.tolist() == [1.5, 1.5, 0.75, 0.75, 0.75, 0.75]
        assert batch.denominator == 1.5 * counts[0] + 0.75 * counts[1]


def test_the_numbers_by_hand() -> None:
    assert prompt_weights([2, 4, 6, 0]) == [2, 1, 4 / 6, 0]  # the mean of 2, 4 and 6 is 4
    assert prompt_weights([]) == []
    assert prompt_weights([0]) == [0]
    # 2 / 1 x 7/8, 8/7 x 7/8, 16/15 x 7/8; no advantage, no factor
    assert baseline_factors([2, 8, 16, 1, 0], 8) == pytest.approx([1.75, 1, 14 / 15, 1, 1])


def test_a_prompt_with_more_rollouts_does_not_count_for_more_in_the_pass_rate() -> None:
    metrics = group_metrics([group(0, [1, 0], [2, 2]), group(1, [0, 0, 0, 0, 0, 0], [2] * 6)])
    assert metrics["pass_rate"] == metrics["reward_mean"] == 0.25


def test_sizes_come_from_what_the_ledger_knew_before_the_step() -> None:
    tasks, prompts = tasks_and_prompts(3)
    counts = {"q0": (4, 8), "q1": (0, 30), "q2": (30, 30)}
    ledger = PromptLedger([t.id for t in tasks], seed=3, counts=counts)
    engine = FakeEngine(lambda p, c: said("yes" if c == 0 else "no"))

    class Pays:
        def judge(self, task: Task, completion_text: str) -> Any:
            return verdict(float(completion_text == "yes"))

        def gold(self, task: Task) -> str:
            return "yes"

    step = StepSampling(prompts_per_step=3, group_size=4, size_bounds=(2, 8))
    algorithm = grpo(
        GrpoOptions(scale="none", nominal_group_size=4),
        engine=engine,
        verifier=Pays(),
        tasks=tasks,
        prompts=prompts,
        ledger=ledger,
        step_sampling=step,
        sampling=Sampling(max_tokens=8),
        seed=5,
    )
    collected = algorithm.collect(0)
    assert collected is not None
    sizes = {g.task.id: len(g.rollouts) for g in collected.groups}
    assert sum(sizes.values()) == 3 * 4
    assert sizes["q0"] > sizes["q1"] == sizes["q2"] >= 2
    assert engine.calls[0][0] == tuple(sizes.values())
    found = (collected.metrics["smallest_group"], collected.metrics["largest_group"])
    assert found == (sizes["q1"], sizes["q0"])
    assert collected.batch is not None
    assert collected.batch.weights is not None
    assert len(collected.batch.sequences) == 12
    assert sizes_of(["q0", "q1"], ledger, StepSampling(prompts_per_step=2, group_size=4)) == 4


def test_allocation_and_replacement_work_together() -> None:
    tasks, prompts = tasks_and_prompts(8)
    ledger = PromptLedger([t.id for t in tasks], seed=3)
    engine = FakeEngine(lambda p, c: said("yes" if c == 0 and p else "no"))

    class Pays:
        def judge(self, task: Task, completion_text: str) -> Any:
            return verdict(float(completion_text == "yes"))

        def gold(self, task: Task) -> str:
            return "yes"

    algorithm = grpo(
        GrpoOptions(scale="none", nominal_group_size=4),
        engine=engine,
        verifier=Pays(),
        tasks=tasks,
        prompts=prompts,
        ledger=ledger,
        step_sampling=StepSampling(prompts_per_step=3, group_size=4, size_bounds=(2, 8), extra_rounds=3),
        sampling=Sampling(max_tokens=8),
        seed=5,
    )
    for number in range(3):
        collected = algorithm.collect(number)
        assert collected is not None
        assert collected.batch is not None
        kept = int(collected.metrics["num_kept_groups"])
        assert kept >= 3
        assert collected.batch.weights is not None
        per_group = collected.batch.weights.sum() / collected.batch.denominator
        assert per_group.item() == pytest.approx(sum(any(row) for row in collected.advantages) / kept)


def test_a_step_multiplies_the_loss_of_each_row_by_its_weight() -> None:
    """As advantages that are multiplied, where there is no KL; however the step is cut."""
    options = GrpoOptions(scale="none", nominal_group_size=3)
    batch = batch_of([group(0, [1, 0], [3, 5]), group(1, [0, 0, 1, 0], [2, 4, 1, 7])], options)
    assert batch.weights is not None
    multiplied = replace(batch, weights=None, advantages=batch.advantages * batch.weights)
    expected = weights_after_plain_descent(multiplied, options)
    unweighted = weights_after_plain_descent(replace(batch, weights=None), options)
    assert (expected - unweighted).abs().max() > 1e-3
    for limit in (4096, 9):
        found = weights_after_plain_descent(batch, options, tokens_per_microbatch=limit)
        assert_close(found, expected, atol=1e-6, rtol=0)
