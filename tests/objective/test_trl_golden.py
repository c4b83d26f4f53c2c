"""The same numbers as TRL's own loss code, recorded by scripts/record_trl_golden.py: values, gradients, clip shares."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from groupwise.objective import (
    aggregate,
    at_first_token,
    bradley_terry_loss,
    cispo_loss,
    clip_shares,
    clipped_policy_loss,
    dpo_loss,
    entropy_loss,
    gdpo_advantages,
    group_advantages,
    implicit_rewards,
    kl_estimate,
    leave_one_out,
    masked_importance_weight,
    masked_mean,
    overlong_penalty,
    sequence_logprobs,
    sequence_policy_loss,
    summarise_pairs,
    truncated_importance_weight,
    weighted_kl_estimate,
)

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).parent / "golden" / "trl_1_16.json"
GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))
INPUTS = {name: torch.tensor(values, dtype=torch.float64) for name, values in GOLDEN["inputs"].items()}
MASK = INPUTS["mask"].bool()
ROWS, TOKENS = MASK.shape[0], int(MASK.sum())
TOLERANCE = {"atol": 1e-6, "rtol": 0}

# How a loss type of TRL divides, in the words of `aggregate`. Its luspo multiplies each mean by the length again.
REDUCTIONS = {
    "grpo": ("sequence", ROWS),
    "bnpo": ("token", TOKENS),
    "dapo": ("token", TOKENS),
    "cispo": ("token", TOKENS),
    "dr_grpo": ("constant", ROWS * GOLDEN["max_length"]),
    "luspo": ("constant", ROWS),
}


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def leaf(name):
    """The recorded tensor, with NaN where nothing is trained: TRL multiplies by the mask, we must not look there."""
    return torch.where(MASK, INPUTS[name], torch.nan).requires_grad_()


def policy_term(policy, old, advantages, settings):
    low, high = settings.get("epsilon", 0.2), settings.get("epsilon_high")
    if settings["loss_type"] == "cispo":
        return cispo_loss(policy, old, advantages, MASK, clip_high=high - 1)
    function = sequence_policy_loss if settings.get("level") == "sequence" else clipped_policy_loss
    return function(policy, old, advantages, MASK, clip_low=low, clip_high=high, dual_clip=settings.get("delta"))


@pytest.mark.parametrize("name", sorted(GOLDEN["grpo"]))
def test_grpo_losses_are_those_of_trl(name):
    case = GOLDEN["grpo"][name]
    settings = case["settings"]
    policy, entropies, ref = leaf("policy"), leaf("entropies"), leaf("ref").detach()
    old = leaf("old").detach() if settings.get("old", True) else policy
    advantages = INPUTS["token_advantages" if settings.get("token_advantages") else "advantages"]
    losses = policy_term(policy, old, advantages, settings)
    if settings.get("beta"):
        kl = (
            weighted_kl_estimate(policy, old, ref, MASK)
            if settings.get("use_bias_correction_kl")
            else kl_estimate(policy, ref)
        )
        losses = losses + settings["beta"] * kl
        assert_close(masked_mean(kl, MASK), f64(case["kl"]), **TOLERANCE)
    normalize, denominator = REDUCTIONS[settings["loss_type"]]
    loss = aggregate(losses, MASK, normalize=normalize, denominator=denominator)
    if "entropy_coef" in settings:
        bonus = aggregate(entropy_loss(entropies, MASK), MASK, normalize="token", denominator=TOKENS)
        loss = loss + settings["entropy_coef"] * bonus
    assert_close(loss, f64(case["loss"]), **TOLERANCE)
    loss.backward()
    assert_close(policy.grad, f64(case["gradient"]), **TOLERANCE)
    if "entropy_gradient" in case:
        assert_close(entropies.grad, f64(case["entropy_gradient"]), **TOLERANCE)


@pytest.mark.parametrize(
    "name", sorted(n for n, c in GOLDEN["grpo"].items() if "clip_low_share" in c and "level" not in c["settings"])
)
def test_clip_shares_are_those_of_trl(name):
    case = GOLDEN["grpo"][name]
    settings = case["settings"]
    policy = leaf("policy")
    shares = clip_shares(
        policy,
        leaf("old") if settings.get("old", True) else policy,
        INPUTS["token_advantages" if settings.get("token_advantages") else "advantages"],
        MASK,
        clip_high=settings.get("epsilon_high"),
        dual_clip=settings.get("delta"),
    )
    assert_close(float(shares.low), case["clip_low_share"], **TOLERANCE)
    assert_close(float(shares.high), case["clip_high_share"], **TOLERANCE)
    assert (shares.dual > 0) == ("delta" in settings)  # the two-sided cases do reach their bound


def test_the_rloo_loss_is_that_of_trl():
    case, policy = GOLDEN["rloo"], leaf("policy")
    losses = sequence_policy_loss(
        policy, leaf("old"), INPUTS["advantages"], MASK, clip_low=0.2, clip_high=0.2, level="product"
    )
    loss = aggregate(losses, MASK, normalize="sequence", denominator=ROWS)
    assert_close(loss, f64(case["loss"]), **TOLERANCE)
    loss.backward()
    assert_close(policy.grad, f64(case["gradient"]), **TOLERANCE)


@pytest.mark.parametrize("name", sorted(GOLDEN["dpo"]))
def test_dpo_losses_are_those_of_trl(name):
    case = GOLDEN["dpo"][name]
    settings = case["settings"]
    kind, beta = settings["loss_type"], settings["beta"]
    policy, ref = leaf("ref" if settings.get("at_reference") else "policy"), leaf("ref").detach()
    average = kind in ("ipo", "sigmoid_norm")
    chosen, rejected = sequence_logprobs(policy, MASK, average=average).chunk(2)
    ref_chosen, ref_rejected = sequence_logprobs(ref, MASK, average=average).chunk(2)
    losses = dpo_loss(
        chosen,
        rejected,
        ref_chosen,
        ref_rejected,
        beta=beta,
        loss="sigmoid" if kind == "sigmoid_norm" else kind,
        label_smoothing=settings.get("label_smoothing", 0.0),
    )
    loss = aggregate(at_first_token(losses, MASK[:2]), MASK[:2], normalize="constant", denominator=2)
    assert_close(loss, f64(case["loss"]), **TOLERANCE)
    loss.backward()
    assert_close(policy.grad, f64(case["gradient"]), **TOLERANCE)
    rewards = implicit_rewards(sequence_logprobs(policy, MASK), sequence_logprobs(ref, MASK), beta=beta).chunk(2)
    assert_close(rewards[0].mean(), f64(case["chosen_reward"]), **TOLERANCE)
    assert_close(rewards[1].mean(), f64(case["rejected_reward"]), **TOLERANCE)
    if not settings.get("at_reference"):  # there all pairs are ties: TRL counts them as lost, we as half
        assert summarise_pairs(*rewards).accuracy == case["accuracy"]


@pytest.mark.parametrize("name", sorted(GOLDEN["reward"]))
def test_reward_model_losses_are_those_of_trl(name):
    case = GOLDEN["reward"][name]
    scores = f64(case["scores"]).requires_grad_()
    chosen, rejected = scores.chunk(2)
    margin = 0.0 if case["margin"] is None else f64(case["margin"])
    center = case["settings"]["center_rewards_coefficient"] or 0.0
    loss = bradley_terry_loss(chosen, rejected, margin=margin, center_coef=center).sum() / 3
    assert_close(loss, f64(case["loss"]), **TOLERANCE)
    loss.backward()
    assert_close(scores.grad, f64(case["gradient"]), **TOLERANCE)
    assert_close(summarise_pairs(chosen, rejected).accuracy, case["accuracy"], **TOLERANCE)


def test_the_overlong_penalty_is_that_of_trl():
    case = GOLDEN["overlong"]
    found = overlong_penalty(
        torch.tensor(case["lengths"]), max_tokens=case["max_tokens"], buffer_tokens=case["buffer_tokens"]
    )
    assert_close(found, torch.tensor(case["rewards"]))


@pytest.mark.parametrize("name", sorted(GOLDEN["advantages"]))
def test_advantages_are_those_of_trl(name):
    """TRL takes the sample std and adds 1e-4 to it."""
    case = GOLDEN["advantages"][name]
    settings = case["settings"]
    parts = torch.tensor([[torch.nan if x is None else x for x in row] for row in case["rewards"]]).double()
    scored = ~parts.isnan().all(dim=1)
    weights, group_ids = f64([1.0, 0.5]), torch.arange(2).repeat_interleave(4)
    rewards = parts @ weights - settings.get("beta", 0.0) * f64(case["kl"])
    if "trainer" in settings:
        found = leave_one_out(rewards, group_ids, scored=scored)
    elif "multi_objective_aggregation" in settings:
        found = gdpo_advantages(parts, weights, group_ids, scored=scored, std="sample", eps=1e-4)
    else:
        scale = {"group": "std", "batch": "batch_std"}.get(settings["scale_rewards"], "none")
        found = group_advantages(rewards, group_ids, scored=scored, scale=scale, std="sample", eps=1e-4)
    assert_close(found, f64(case["advantages"]), **TOLERANCE)


@pytest.mark.parametrize("name", sorted(GOLDEN["correction"]))
def test_importance_weights_are_those_of_trl(name):
    case = GOLDEN["correction"][name]
    over, action = name.split("_")
    level, settings = {"token": "token", "sequence": "product"}[over], case["settings"]
    if action == "truncate":
        weight = truncated_importance_weight(leaf("policy"), leaf("old"), MASK, cap=settings["clip_max"], level=level)
    else:
        bounds = {"floor": settings["clip_min"], "cap": settings["clip_max"]}
        weight = masked_importance_weight(leaf("policy"), leaf("old"), MASK, level=level, **bounds)
    assert_close(weight[MASK], f64(case["weight"])[MASK], **TOLERANCE)


def python_with_trl():
    """This interpreter, or the one that GROUPWISE_TRL_PYTHON names; None without either."""
    named = os.environ.get("GROUPWISE_TRL_PYTHON")
    return named or (sys.executable if importlib.util.find_spec("trl") is not None else None)


def assert_same(found, expected):
    """Equal up to rounding, wherever a number stands."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == (pytest.approx(expected, abs=1e-9) if isinstance(expected, float) else expected)


def test_trl_still_gives_what_was_recorded():
    python = python_with_trl()
    if python is None:
        pytest.skip("TRL is not installed here; set GROUPWISE_TRL_PYTHON to an interpreter that has it")
    done = subprocess.run(
        [python, str(ROOT / "scripts" / "record_trl_golden.py")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    found = json.loads(done.stdout)
    if found["trl"] != GOLDEN["trl"]:
        pytest.skip(f"TRL {found['trl']} is installed; the numbers were recorded with {GOLDEN['trl']}")
    assert_same(found, GOLDEN)
