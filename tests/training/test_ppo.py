"""PPO over the loop: what is collected, both losses, both critics, and that they learn."""

from __future__ import annotations

import copy
import functools
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from training_cases import (
    END,
    FakeEngine,
    ListRecorder,
    SaysYes,
    group,
    said,
    small_llama,
    small_policy,
    tasks_and_prompts,
    verdict,
)

from groupwise.curation import PromptLedger
from groupwise.errors import VerifierError
from groupwise.models import LoadedModel, tree_scores
from groupwise.models.value_model import (
    padded_values,
    score_function,
    tree_values,
    value_head_for,
    value_model_from,
    with_value_head,
)
from groupwise.rollout import Engine, Sampling, TorchEngine
from groupwise.training.algorithm import Algorithm, Updates
from groupwise.training.batch import Batch
from groupwise.training.loop import StageOptions, run_stage
from groupwise.training.optim import OptimOptions, build_optimizer
from groupwise.training.ppo import PpoOptions, companion, policy_loss, ppo
from groupwise.training.ppo_batch import OLD_VALUES, RETURNS, RewardOptions, ppo_batch
from groupwise.training.ppo_networks import Networks, OwnCritic, SharedCritic, score_rollouts
from groupwise.training.step import LossRows, optimizer_step
from groupwise.training.updates import Learner
from groupwise.types import Stop, Task, Verdict, Verifier

OPTIM = OptimOptions(lr=3e-3)


def networks(loaded: LoadedModel, *, shared: bool = False, reference: nn.Module | None = None) -> Networks:
    model = loaded.model
    critic: OwnCritic | SharedCritic
    if shared:
        critic = SharedCritic(head=value_head_for(model))
    else:
        critic = OwnCritic(
            model=value_model_from(model), scores=score_function(tree_values), optim=replace(OPTIM, lr=1e-2)
        )
    return Networks(
        policy=model,
        scores=with_value_head(tree_scores, critic.head) if isinstance(critic, SharedCritic) else tree_scores,
        critic=critic,
        reference=None if reference is None else lambda: nullcontext(reference),  # type: ignore[arg-type,return-value]
        tokens_per_microbatch=32,
    )


def algorithm(
    options: PpoOptions,
    parts: Networks,
    *,
    engine: Engine,
    verifier: Verifier | None = None,
    num_tasks: int = 4,
    ledger: PromptLedger | None = None,
    kl_coef: float | None = None,
) -> Algorithm:
    tasks, prompts = tasks_and_prompts(num_tasks)
    return ppo(
        options,
        networks=parts,
        engine=engine,
        verifier=verifier or SaysYes(),
        tasks=tasks,
        prompts=prompts,
        ledger=ledger or PromptLedger([t.id for t in tasks], seed=0),
        sampling=Sampling(max_tokens=8),
        seed=3,
        kl_coef=kl_coef,
    )


def answers(*texts: str) -> FakeEngine:
    """Prompt number p of a call is answered by text p; tokens differ from answer to answer."""
    return FakeEngine(lambda p, c: said(texts[p], 5 + p, 9 + c, END))


def some_batch(parts: Networks) -> Batch:
    """Two live groups and a truncated completion, seen by these networks."""
    groups = [group(0, [1, 0, 0, 1], [2, 7, 3, 5]), group(2, [1, 0, 0], [6, 3, 8])]
    rollouts = [(g, r) for g in groups for r in g.rollouts]
    scored, _ = score_rollouts(rollouts, parts, temperature=1.0)
    return ppo_batch(scored, RewardOptions(), kl_coef=0.02)[0]


def opinionated(parts: Networks) -> Networks:
    critic = parts.critic
    head = critic.head if isinstance(critic, SharedCritic) else critic.model.head
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        head.linear.weight.copy_(torch.randn(head.linear.weight.shape, generator=generator) / 4)
    return parts


def flat(*modules: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for m in modules for p in m.parameters()]).clone()


def after_plain_descent(parts: Networks, batch: Batch, options: PpoOptions, limit: int) -> tuple[Tensor, Any]:
    """One step of plain gradient descent at rate 1 of policy and critic: the change is the gradient itself."""
    shared = isinstance(parts.critic, SharedCritic)
    trained = [parts.policy, parts.critic.head] if isinstance(parts.critic, SharedCritic) else [parts.policy]
    step = functools.partial(optimizer_step, temperature=1.0, tokens_per_microbatch=limit, max_grad_norm=float("inf"))
    metrics = step(
        parts.policy,
        torch.optim.SGD(nn.ModuleList(trained).parameters(), lr=1.0),
        batch,
        policy_loss(options, with_values=shared),
        scores=parts.scores,
    )
    if isinstance(parts.critic, OwnCritic):
        critic = companion(parts.critic, options)
        trained.append(parts.critic.model)
        optimizer = torch.optim.SGD(critic.model.parameters(), lr=1.0)
        metrics |= step(critic.model, optimizer, critic.batch_of(batch), critic.loss, scores=critic.scores)
    return flat(*trained), metrics


# ------------------------------------------------------------------------------------------------------- losses


def test_the_joint_loss_has_the_gradient_of_its_formula() -> None:
    """mean_t max(-A r, -A clip(r)) + 0.5 mean_t 1/2 max((V - G)^2, (clip(V) - G)^2), written with plain logits."""
    parts = opinionated(networks(small_policy(), shared=True))
    assert isinstance(parts.critic, SharedCritic)
    batch = some_batch(parts)
    generator = torch.Generator().manual_seed(1)
    assert batch.old_logprobs is not None
    assert batch.advantages is not None
    # weights that have moved since: some ratios and values are beyond their clip
    moved = [x + 0.3 * torch.randn(x.shape, generator=generator) for x in (batch.old_logprobs, batch.extra[OLD_VALUES])]
    batch = replace(batch, old_logprobs=moved[0], extra={**batch.extra, OLD_VALUES: moved[1]})
    options = PpoOptions(prompts_per_step=2, value_coef=0.5)
    before = flat(parts.policy, parts.critic.head)

    total, low, high = torch.zeros(()), 0.0, 0.0
    num_tokens = sum(s.num_trained for s in batch.sequences)
    for row, sequence in enumerate(batch.sequences):
        output = parts.policy(torch.tensor([sequence.token_ids]), output_hidden_states=True)
        for t in range(sequence.num_trained):
            place = sequence.prompt_length + t - 1
            logprob = output.logits[0, place].log_softmax(-1)[sequence.token_ids[place + 1]]
            ratio = (logprob - moved[0][row, t]).exp()
            a = batch.advantages[row, t]
            total = total + torch.maximum(-a * ratio, -a * ratio.clamp(0.8, 1.2)) / num_tokens
            low += bool(ratio < 0.8 and a < 0) / num_tokens
            high += bool(ratio > 1.2 and a > 0) / num_tokens
            v = parts.critic.head(output.hidden_states[-1][0, place])[0]
            old, g = moved[1][row, t], batch.extra[RETURNS][row, t]
            near = torch.clamp(v, old - 0.2, old + 0.2)
            total = total + 0.5 * torch.maximum((v - g) ** 2, (near - g) ** 2) / 2 / num_tokens
    total.backward()
    trained = [p for m in (parts.policy, parts.critic.head) for p in m.parameters()]
    expected = before - torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in trained])
    found, metrics = after_plain_descent(parts, batch, options, 4096)
    assert (found - before).abs().max() > 1e-3
    assert_close(found, expected, atol=1e-6, rtol=0)
    assert metrics["loss"] == pytest.approx(total.item(), abs=1e-6)
    assert 0 < low != high > 0
    assert (metrics["clipped_low"], metrics["clipped_high"]) == (pytest.approx(low), pytest.approx(high))
    assert 0 < metrics["critic_clipped"] < 1


@pytest.mark.parametrize("shared", [False, True])
def test_how_the_step_is_cut_changes_no_gradient_and_no_number(shared: bool) -> None:
    options = PpoOptions(prompts_per_step=2)
    start = opinionated(networks(small_policy(), shared=shared))
    batch = some_batch(start)
    assert batch.old_logprobs is not None
    batch = replace(batch, old_logprobs=batch.old_logprobs - 0.3 * (torch.arange(8)[None] % 2))

    def run(limit: int) -> tuple[Tensor, dict[str, float]]:
        return after_plain_descent(opinionated(networks(small_policy(), shared=shared)), batch, options, limit)

    whole, metrics = run(4096)
    assert metrics["clipped_high"] > 0
    for limit in (1, 9, 20):
        cut, same = run(limit)
        assert_close(cut, whole, atol=2e-6, rtol=0)
        for name in ("loss", "clipped_high", "clipped_low", "kl_to_old", "value_loss", "critic_value_loss"):
            assert same.get(name) == pytest.approx(metrics.get(name), abs=1e-6), name


def test_with_one_update_the_clip_never_acts_and_the_gradient_is_reinforce() -> None:
    parts = networks(small_policy())
    batch = some_batch(parts)
    assert batch.advantages is not None
    options = PpoOptions(prompts_per_step=2, clip=1e-3)
    logprobs = tree_scores(small_llama(), batch.sequences, temperature=1.0).logprobs.detach().requires_grad_()
    mask = logprobs.detach() != 0
    rows = LossRows(
        policy_logprobs=logprobs,
        old_logprobs=batch.old_logprobs,
        advantages=batch.advantages,
        mask=mask,
        denominator=batch.denominator,
    )
    loss, reported = policy_loss(options, with_values=False)(rows)
    loss.backward()
    assert_close(logprobs.grad, torch.where(mask, -batch.advantages, 0.0) / batch.denominator, atol=1e-6, rtol=1e-4)
    assert not reported["clipped_low"].any()
    assert not reported["clipped_high"].any()


@pytest.mark.parametrize("shared", [False, True])
def test_what_stands_under_the_mask_never_matters(shared: bool) -> None:
    options = PpoOptions(prompts_per_step=2)
    parts = opinionated(networks(small_policy(), shared=shared))
    clean = some_batch(parts)
    mask = torch.arange(8)[None] < torch.tensor([s.num_trained for s in clean.sequences])[:, None]

    def spoiled(cells: Tensor | None) -> Tensor:
        assert cells is not None
        return torch.where(mask, cells, float("nan"))

    dirty = replace(
        clean,
        advantages=spoiled(clean.advantages),
        old_logprobs=spoiled(clean.old_logprobs),
        extra={name: spoiled(cells) for name, cells in clean.extra.items()},
    )
    expected, metrics = after_plain_descent(copy.deepcopy(parts), clean, options, 20)
    found, same = after_plain_descent(parts, dirty, options, 20)
    assert_close(found, expected, atol=0, rtol=0)
    assert same == pytest.approx(metrics)


# --------------------------------------------------------------------------------------------------- collecting


@pytest.mark.parametrize("shared", [False, True])
def test_a_cut_completion_goes_on_with_the_critics_value_there(shared: bool) -> None:
    parts = opinionated(networks(small_policy(), shared=shared))
    whole = group(0, [1, 0], [4, 6])
    cut = replace(
        whole.rollouts[1],
        completion=replace(whole.rollouts[1].completion, stop=Stop.LENGTH, token_ids=(5, 6, 7, 8, 9, 9)),
    )
    rollouts = [(whole, whole.rollouts[0]), (whole, cut)]
    scored, entropy = score_rollouts(rollouts, parts, temperature=1.0)
    assert scored.cut.tolist() == [False, True]
    assert scored.values.shape == (2, 6)
    assert scored.next_values[0] == 0
    longer = replace(scored.sequences[1], token_ids=(*scored.sequences[1].token_ids, 3))
    if isinstance(parts.critic, OwnCritic):
        expected = padded_values(parts.critic.model, [longer])
    else:
        expected = parts.scores(parts.policy, [longer], temperature=1.0).values  # type: ignore[assignment]
    assert_close(torch.cat([scored.values[1], scored.next_values[1:]]), expected[0].detach(), atol=1e-5, rtol=1e-5)
    plain = tree_scores(parts.policy, scored.sequences, temperature=1.0, entropy=True)
    assert_close(scored.old_logprobs, plain.logprobs.detach(), atol=1e-5, rtol=1e-5)
    assert plain.entropies is not None
    assert entropy == pytest.approx(plain.entropies.sum().item() / 10, rel=1e-5)


def test_unscored_rollouts_are_left_out_and_counted() -> None:
    options = PpoOptions(prompts_per_step=4, max_unscored_frac=0.5)
    collected = algorithm(options, networks(small_policy()), engine=answers("yes", "broken", "no", "broken")).collect(0)
    assert collected is not None
    assert collected.batch is not None
    assert len(collected.batch.sequences) == 2
    assert collected.batch.denominator == 6
    assert collected.metrics["unscored_frac"] == 0.5
    assert collected.metrics["reward_mean"] == 0.5  # before any KL, and without those that nobody judged
    assert [row[0] == 0 for row in collected.advantages] == [False, True, False, True]
    assert len(collected.groups) == 4


def test_too_many_unscored_rollouts_stop_and_none_that_is_scored_is_no_step() -> None:
    options = PpoOptions(prompts_per_step=2, max_unscored_frac=0.5)
    engine = answers("broken", "broken")
    with pytest.raises(VerifierError, match="max_unscored_frac"):
        algorithm(options, networks(small_policy()), engine=engine).collect(0)
    tolerant = replace(options, max_unscored_frac=1.0)
    collected = algorithm(tolerant, networks(small_policy()), engine=engine).collect(0)
    assert collected is not None
    assert collected.batch is None
    assert collected.advantages == ((0.0,), (0.0,))
    assert (collected.left_out, collected.metrics["num_trained_rollouts"]) == ((("unscored",), ("unscored",)), 0)


def test_what_could_not_be_judged_is_left_out_and_nothing_else() -> None:
    """Dead groups teach the critic, so that they have a place."""
    engine = FakeEngine(lambda p, c: said("broken" if (p, c) == (1, 0) else "yes", 5 + c, 9, END))
    options = PpoOptions(prompts_per_step=2, completions_per_prompt=2, max_unscored_frac=1.0)
    collected = algorithm(options, networks(small_policy()), engine=engine).collect(0)
    assert collected is not None
    assert collected.batch is not None
    assert collected.left_out == (("", ""), ("unscored", ""))
    assert collected.metrics["num_trained_rollouts"] == len(collected.batch.sequences) == 3


@pytest.mark.parametrize(("num", "size"), [(3, 1), (2, 4)])
def test_a_step_samples_so_many_completions_of_so_many_prompts(num: int, size: int) -> None:
    engine = answers("yes", "no", "no")
    options = PpoOptions(prompts_per_step=num, completions_per_prompt=size)
    collected = algorithm(options, networks(small_policy()), engine=engine).collect(0)
    assert collected is not None
    assert collected.batch is not None
    assert len(collected.batch.sequences) == num * size
    assert [call[0] for call in engine.calls] == [size]


@pytest.mark.parametrize(("far", "moves"), [(True, 1.2), (False, 0.8)])
def test_the_adaptive_coefficient_follows_the_distance(far: bool, moves: float) -> None:
    """Over horizon = 4 completions, which is a step: the error is cut at 20 % on both sides."""
    loaded = small_policy()
    # the sampled tokens are unlikely to the other model, so that their k1 is large
    reference = small_llama(0)
    if far:
        with torch.no_grad():
            reference.lm_head.weight[[5, 6, 7, 8, 9, END]] *= -3
            loaded.model.lm_head.weight[[5, 6, 7, 8, 9, END]] *= 3
    options = PpoOptions(prompts_per_step=4, kl_coef=0.1, kl_target=0.5, kl_horizon=4)
    parts = networks(loaded, reference=reference)
    made = algorithm(options, parts, engine=TorchEngine(loaded) if far else answers(*["yes"] * 4))
    first, second = made.collect(0), made.collect(1)
    assert first is not None
    assert second is not None
    assert first.metrics["kl_coef"] == 0.1  # the step itself is paid with the coefficient it began with
    assert (first.metrics["kl_to_ref_sum"] > 0.6) is far
    assert second.metrics["kl_coef"] == pytest.approx(0.1 * moves)
    fixed = algorithm(replace(options, kl_target=None), parts, engine=answers(*["yes"] * 4))
    for number in range(2):
        collected = fixed.collect(number)
        assert collected is not None
        assert collected.metrics["kl_coef"] == 0.1


def test_what_a_checkpoint_keeps_goes_on_where_it_was() -> None:
    options = PpoOptions(prompts_per_step=2, kl_coef=0.1, kl_target=0.5, kl_horizon=4)
    loaded = small_policy()
    parts = networks(loaded, reference=small_llama(0))
    made = algorithm(options, parts, engine=TorchEngine(loaded))
    for number in range(3):
        made.collect(number)
    state = json.loads(json.dumps(made.state()))
    again = algorithm(
        options,
        parts,
        engine=TorchEngine(loaded),
        ledger=PromptLedger.from_state(state),
        kl_coef=state["kl_coef"],
    )
    one, other = made.collect(3), again.collect(3)
    assert one is not None
    assert other is not None
    assert one.groups == other.groups
    assert one.advantages == other.advantages
    assert one.metrics["kl_coef"] == other.metrics["kl_coef"] != 0.1


# ----------------------------------------------------------------------------------------------------- learning


class PaysById(SaysYes):
    """Whether a completion is right is decided by its prompt alone: nothing for the policy, all for the critic."""

    def judge(self, task: Task, completion_text: str) -> Verdict:
        return verdict(float(int(task.id[1:]) % 2))


class PaysEven(SaysYes):
    """The share of even token ids: something that a policy learns in a few steps."""

    def judge(self, task: Task, completion_text: str) -> Verdict:
        ids = [int(token) for token in completion_text.split()]
        return verdict(sum(i % 2 == 0 for i in ids) / max(len(ids), 1))


def learn(
    made: Algorithm, loaded: LoadedModel, folder: Path, steps: int, optim: OptimOptions = OPTIM
) -> list[dict[str, float]]:
    recorder = ListRecorder()
    run_stage(
        StageOptions(name="ppo", num_steps=steps, optim=optim, checkpoints=folder),
        made,
        loaded,
        scores=tree_scores,
        recorder=recorder,
        policy_version=0,
        on_new_weights=lambda version: None,
        on_step=lambda step, metrics: None,
        should_stop=lambda: False,
    )
    return recorder.rows


@pytest.mark.parametrize("shared", [False, True])
def test_the_critic_learns_which_prompts_pay(shared: bool, tmp_path: Path) -> None:
    loaded = small_policy()
    options = PpoOptions(prompts_per_step=8, value_clip=None, value_coef=1.0, kl_coef=0.0)
    made = algorithm(
        options,
        networks(loaded, shared=shared),
        engine=FakeEngine(lambda p, c: said("", 5 + p % 3, 9, END)),
        verifier=PaysById(),
        num_tasks=8,
    )
    rows = learn(made, loaded, tmp_path, 12, replace(OPTIM, lr=1e-2))
    assert rows[0]["explained_variance"] == pytest.approx(0, abs=1e-6)
    assert rows[-1]["explained_variance"] > 0.8
    assert rows[-1]["critic_value_loss"] < 0.2 * rows[0]["critic_value_loss"]


@pytest.mark.parametrize("shared", [False, True])
def test_the_policy_learns_what_is_paid(shared: bool, tmp_path: Path) -> None:
    loaded = small_policy()
    options = PpoOptions(prompts_per_step=8, completions_per_prompt=2, updates=Updates(epochs=2, minibatches=2))
    made = algorithm(
        options,
        networks(loaded, shared=shared, reference=small_llama(0)),
        engine=TorchEngine(loaded),
        verifier=PaysEven(),
        num_tasks=8,
    )
    rows = learn(made, loaded, tmp_path, 12)
    means = [row["reward_mean"] for row in rows]
    assert sum(means[-3:]) / 3 > sum(means[:3]) / 3 + 0.2
    assert rows[0]["kl_to_ref"] == pytest.approx(0, abs=1e-6)
    assert rows[-1]["kl_to_ref_sum"] > 0.1
    assert all(row["logprob_gap_max"] < 1e-3 for row in rows)
    assert rows[-1]["policy_version"] == 12 * 4


@pytest.mark.parametrize("shared", [False, True])
def test_every_network_is_trained_at_its_own_rate(shared: bool) -> None:
    loaded = small_policy()
    parts = opinionated(networks(loaded, shared=shared))
    options = PpoOptions(prompts_per_step=4, updates=Updates())
    made = algorithm(options, parts, engine=answers("yes", "no", "no", "yes"))
    collected = made.collect(0)
    assert collected is not None
    assert collected.batch is not None
    head = parts.critic.head if isinstance(parts.critic, SharedCritic) else parts.critic.model.head
    networks_before = [flat(parts.policy), flat(head)]
    learner = Learner.of(made, loaded.model, OPTIM, num_steps=1, scores=tree_scores, reference=None)
    metrics, num_updates = learner.learn(collected.batch, 1, None)
    assert num_updates == 1
    assert not torch.equal(flat(parts.policy), networks_before[0])
    assert not torch.equal(flat(head), networks_before[1])
    assert metrics["lr"] == OPTIM.lr
    rates = [group["lr"] for optimizer in learner.companion_optimizers for group in optimizer.param_groups]
    assert rates == ([] if shared else [1e-2, 1e-2])


def test_the_norm_that_is_clipped_is_that_of_policy_and_head() -> None:
    parts = opinionated(networks(small_policy(), shared=True))
    assert isinstance(parts.critic, SharedCritic)
    batch = some_batch(parts)
    batch = replace(batch, extra={**batch.extra, RETURNS: batch.extra[RETURNS] + 100})  # the head's gradient is large
    before = flat(parts.policy, parts.critic.head)
    optimizer_step(
        parts.policy,
        torch.optim.SGD(nn.ModuleList([parts.policy, parts.critic.head]).parameters(), lr=1.0),
        batch,
        policy_loss(PpoOptions(prompts_per_step=2), with_values=True),
        scores=parts.scores,
        temperature=1.0,
        tokens_per_microbatch=64,
        max_grad_norm=0.5,
    )
    assert (flat(parts.policy, parts.critic.head) - before).norm().item() == pytest.approx(0.5, rel=1e-3)


def bytes_of(model: nn.Module) -> int:
    """Parameters, gradients and optimizer state, after one update."""
    optimizer = build_optimizer(model, OPTIM)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    state = [x for values in optimizer.state.values() for x in values.values() if x.dim()]
    return sum(x.nbytes for p in model.parameters() for x in (p, p.grad)) + sum(x.nbytes for x in state)  # type: ignore[union-attr]


def test_an_own_critic_doubles_what_is_trained_and_a_shared_one_adds_a_head() -> None:
    """Four times the parameters each: weight, gradient and two moments. The critic has no LM head."""
    model = small_llama()
    grpo = bytes_of(model)
    num_parameters = sum(p.numel() for p in model.parameters())
    assert grpo == 4 * 4 * num_parameters
    critic = bytes_of(value_model_from(small_llama()))
    lm_head = model.lm_head.weight.numel()
    head = 16 + 1
    assert critic == 4 * 4 * (num_parameters - lm_head + head)
    assert 1.9 < (grpo + critic) / grpo < 2.0
    assert bytes_of(value_head_for(model)) == 4 * 4 * head
