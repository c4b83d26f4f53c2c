"""Operations by hand and against published references; seconds against measured steps; the order of the methods."""

from __future__ import annotations

import dataclasses
import math

import pytest
from plan_sizes import (
    LLAMA2_7B,
    ONE_LAYER,
    QWEN3_1_7B,
    QWEN3_4B,
    QWEN3_8B,
    QWEN25_7B,
    ROUND,
    SMOLLM2_135M,
    TWO_CORES,
    workload,
)

from groupwise.errors import ConfigError
from groupwise.planning.compute import (
    ComputeEstimate,
    estimate_compute,
    key_bytes_per_token,
    training_flops,
    update_bytes,
)
from groupwise.planning.hardware import named_hardware
from groupwise.planning.model_shape import ModelShape

SMALL = workload(prompts=1, group=2, prompt=4, trunk=0, completion=3, reference=True, steps=10)
"""One tree of 4 + 3 + 3 nodes; depths 1..4 and twice 5..7 sum to 46; 1 + 2 * 2 positions need logits."""


def _by_name(estimate: ComputeEstimate) -> dict[str, tuple[float, float]]:
    return {phase.name: (phase.flops, phase.seconds) for phase in estimate.phases}


def test_grpo_by_hand() -> None:
    phases = _by_name(estimate_compute("grpo", ONE_LAYER, SMALL, ROUND))
    # attention: 4 operations * 2 wide * 1 layer = 8 a pair. forward: 2 * 34 * 10 + 8 * 46 + 2 * 10 * 5 = 1148
    assert phases["reference"] == (1148, 1148 / 20)
    assert phases["train"] == (3 * 1148, 3 * 1148 / 10)
    # prefill: 2 * 34 * 4 + 8 * 10 pairs + logits of the last position 2 * 10
    assert phases["prefill"] == (372, 372 / 20)
    # decode: 2 rows * 2 forwards at a mean context of 4 + 1.5: 2 * 44 * 4 + 8 * 4 * 5.5 = 528
    # read: 2 forwards * 44 weights * 2 bytes = 176; keys 2 * 1 * 2 * 2 = 8 bytes a token of
    # 2 rows * 2 forwards * 1.5 own + 2 forwards * 4 of the prompt = 14 tokens
    assert phases["decode"] == (528, (176 + 14 * 8) / 4 + 528 / 5)
    # update: 10 numbers * 2 bytes * 50 parameters
    assert phases["update"] == (0, 1000 / 2)
    assert set(phases) == {"prefill", "decode", "reference", "train", "update"}


def test_totals_and_price_by_hand() -> None:
    estimate = estimate_compute("sft", ONE_LAYER, SMALL, ROUND)
    # one sequence of 7: forward 2 * 34 * 7 + 8 * 28 + 2 * 10 * 3 = 760, as much for the reference
    assert estimate.flops == 760 + 3 * 760
    assert estimate.seconds == pytest.approx(760 / 20 + 3 * 760 / 10 + 500)
    assert (estimate.run_flops, estimate.run_seconds) == (10 * estimate.flops, 10 * estimate.seconds)
    assert estimate.price == pytest.approx(estimate.run_seconds / 1000)  # 3.6 an hour
    assert estimate.generation_share == 0
    assert estimate_compute("sft", ONE_LAYER, SMALL, dataclasses.replace(ROUND, price_per_hour=None)).price is None


def test_adapters_save_the_weight_gradients_of_the_base() -> None:
    full = _by_name(estimate_compute("grpo", ONE_LAYER, SMALL, ROUND))["train"][0]
    lora = _by_name(estimate_compute("grpo", ONE_LAYER, SMALL, ROUND, lora_rank=2))
    # 62 adapter weights on 10 nodes; matrices 2 * 34 * 10 + 2 * 10 * 5 = 780 lose one of three products
    assert lora["train"][0] == full - 780 + 6 * 62 * 10
    assert lora["update"][1] == 10 * 4 * 62 / 2  # float32


def test_gradient_checkpointing_adds_the_body_s_forward() -> None:
    plain = _by_name(estimate_compute("grpo", ONE_LAYER, SMALL, ROUND))["train"][0]
    again = _by_name(estimate_compute("grpo", ONE_LAYER, SMALL, ROUND, gradient_checkpointing=True))["train"][0]
    assert again == plain + 2 * 34 * 10 + 8 * 46


def test_dead_groups_cost_sampling_only() -> None:
    dead = dataclasses.replace(SMALL, has_reference=False, live_share=0.0)
    assert set(_by_name(estimate_compute("grpo", ONE_LAYER, dead, ROUND))) == {"prefill", "decode"}
    half = dataclasses.replace(dead, live_share=0.5)
    train = _by_name(estimate_compute("grpo", ONE_LAYER, half, ROUND))["train"][0]
    assert train == 3 * 1148 / 2


def test_a_batch_used_twice_needs_old_logprobs_once() -> None:
    once = _by_name(estimate_compute("ppo", ONE_LAYER, SMALL, ROUND))
    twice = _by_name(estimate_compute("ppo", ONE_LAYER, dataclasses.replace(SMALL, epochs=2), ROUND))
    assert "old_logprobs" not in once
    assert twice["old_logprobs"] == once["reference"] == twice["reference"]
    for name in ("train", "train_critic", "update"):
        assert twice[name][1] == 2 * once[name][1]
    assert set(twice) == {*once, "old_logprobs"}
    assert {"reward_model", "values"} <= set(once)


def test_rows_that_wait_need_more_forwards() -> None:
    work = workload(prompts=8, group=8, completion=50, longest=100)
    free = estimate_compute("grpo", SMOLLM2_135M, work, TWO_CORES)
    assert estimate_compute("grpo", SMOLLM2_135M, work, TWO_CORES, max_rows=64) == free
    # 64 rows * 49 tokens in places for 16, then a tail of 50: 246 forwards instead of 99
    narrow = estimate_compute("grpo", SMOLLM2_135M, work, TWO_CORES, max_rows=16)
    more = _by_name(narrow)["decode"][1] - _by_name(free)["decode"][1]
    assert more == pytest.approx((246 - 99) * 4 * SMOLLM2_135M.matmul_params / TWO_CORES.decode_bytes_per_s)


def test_keys_are_read_once_for_all_that_share_them() -> None:
    work = workload(prompts=3, group=2, prompt=600, trunk=500, completion=3, longest=5)
    flops, seconds = _by_name(estimate_compute("grpo", ONE_LAYER, work, ROUND))["decode"]
    # 4 forwards. Tokens read: 6 rows * 2 forwards * 1.5 of their own; the trunk in each forward; of each prompt 100
    # more until the last of its 2 rows has ended: log 2 / log 6 of the way from 2 to 4 forwards
    tokens = 18 + 4 * 500 + 3 * 100 * (2 + 2 * math.log(2) / math.log(6))
    assert seconds == pytest.approx((4 * 44 * 2 + 8 * tokens) / 4 + flops / 5)
    plain = _by_name(estimate_compute("grpo", ONE_LAYER, work, ROUND, prefix_sharing=False))["decode"]
    assert plain[1] == pytest.approx((4 * 44 * 2 + 8 * (18 + 6 * 2 * 600)) / 4 + flops / 5)


def test_sharing_a_prefix_saves_its_repetitions() -> None:
    """G(P + T) becomes P + GT in the linear layers: 8 * 1100 against 1000 + 8 * 100 nodes."""
    work = workload(prompts=1, group=8, prompt=1000, completion=100, microbatch=10**5)
    shared = _by_name(estimate_compute("grpo", SMOLLM2_135M, work, TWO_CORES))
    plain = _by_name(estimate_compute("grpo", SMOLLM2_135M, work, TWO_CORES, prefix_sharing=False))
    assert plain["train"][0] / shared["train"][0] > 8 * 1100 / 1800
    assert plain["prefill"][0] / shared["prefill"][0] == pytest.approx(8, rel=1e-3)
    assert plain["decode"][0] == shared["decode"][0]
    assert plain["decode"][1] > shared["decode"][1]


@pytest.mark.parametrize(
    ("shape", "lengths", "tera"),
    [
        (LLAMA2_7B, [512, 1024, 2048], 149.226491215872),
        (LLAMA2_7B, [4096] * 3, 536.372695793664),
        (QWEN25_7B, [512, 1024, 2048], 167.073690943488),
        (QWEN25_7B, [4096] * 3, 591.764889010176),
        (QWEN3_8B, [512, 1024, 2048], 180.997438046208),
        (QWEN3_8B, [4096] * 3, 648.394032807936),
    ],
)
def test_training_flops_are_verl_s_references(shape: ModelShape, lengths: list[int], tera: float) -> None:
    assert training_flops(shape, lengths) == pytest.approx(tera * 1e12, rel=1e-12)


def test_our_count_differs_from_verl_s_by_the_embedding() -> None:
    """With a prompt of one token nearly every position needs logits, and causal pairs are s (s + 1) / 2."""
    work = workload(prompts=1, group=1, prompt=1, completion=1023)
    ours = _by_name(estimate_compute("sft", LLAMA2_7B, work, ROUND))["train"][0]
    theirs = training_flops(LLAMA2_7B, [1024]) - 6 * LLAMA2_7B.head_params * 1024
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize(
    ("shape", "bytes_per_token"), [(QWEN25_7B, 57_344), (QWEN3_1_7B, 114_688), (LLAMA2_7B, 524_288)]
)
def test_published_key_bytes_per_token(shape: ModelShape, bytes_per_token: int) -> None:
    assert key_bytes_per_token(shape, 2) == bytes_per_token


@pytest.mark.parametrize("card", ["a100", "h100", "rtx4090"])
@pytest.mark.parametrize("shape", [QWEN3_1_7B, QWEN25_7B])
def test_methods_come_out_in_the_published_order(card: str, shape: ModelShape) -> None:
    """PPO > GRPO > DPO > SFT in seconds, and the two that sample spend most of their step in it."""
    work = workload(
        16, 8, 300, 60, 1000, longest=3000, live=0.7, reference=True, microbatch=16384, limit=4096, steps=100
    )
    runs = {m: estimate_compute(m, shape, work, named_hardware(card)) for m in ("sft", "dpo", "grpo", "ppo")}
    seconds = [runs[m].seconds for m in ("sft", "dpo", "grpo", "ppo")]
    assert seconds == sorted(seconds)
    assert runs["grpo"].seconds > 10 * runs["sft"].seconds
    assert runs["grpo"].generation_share > 0.5
    assert runs["sft"].generation_share == runs["dpo"].generation_share == 0


def test_cost_of_one_sequence_in_the_published_order() -> None:
    """By operations, of one prompt and one completion or pair: SFT 6NC, GRPO 2N(P/G + T) more, PPO two models."""
    work = workload(1, 1, 200, 0, 200, reference=True)
    flops = {m: estimate_compute(m, QWEN25_7B, work, ROUND).flops for m in ("sft", "dpo", "grpo", "ppo")}
    assert flops["ppo"] > flops["grpo"] > flops["sft"]
    assert flops["dpo"] > flops["sft"]
    assert flops["dpo"] / flops["sft"] == pytest.approx(600 / 400, rel=0.1)  # a tree of 200 + 2 * 200 nodes


@pytest.mark.parametrize(
    ("sizes", "measured"),
    [
        ((2, 8, 343, 30, 32), 9.8),
        ((1, 16, 1000, 0, 32), 15.0),
        ((4, 8, 660, 600, 48), 23.3),
        ((2, 8, 40, 30, 128), 24.1),
    ],
)
def test_seconds_of_measured_steps(sizes: tuple[int, int, int, int, int], measured: float) -> None:
    """benchmarks/README.md, one step of SmolLM2-135M on two cores: rates fitted to the first job predict the others.

    b and c were measured cold, which costs up to a quarter; hence 30 %.
    """
    estimate = estimate_compute("grpo", SMOLLM2_135M, workload(*sizes), TWO_CORES)
    assert estimate.seconds == pytest.approx(measured, rel=0.3)


def test_rollout_share_of_a_published_run() -> None:
    """Qwen3-1.7B: 78.3 % of the step is rollout; the lengths of that run are not published, typical ones are used."""
    work = workload(64, 8, 200, 0, 1500, longest=7500, live=0.7, microbatch=32768, limit=8192)
    share = estimate_compute("grpo", QWEN3_1_7B, work, named_hardware("h100")).generation_share
    assert 0.6 < share < 0.95


def test_throughput_of_published_benchmarks() -> None:
    """prime-rl on one H100, two sequences of 65,536 tokens, recompute: Qwen3-4B with LoRA 4,164 tokens/s."""
    work = workload(2, 1, 1, 0, 65535, microbatch=65536)
    card = named_hardware("h100")
    estimate = estimate_compute("sft", QWEN3_4B, work, card, lora_rank=16, gradient_checkpointing=True)
    assert 2 * 65536 / estimate.seconds == pytest.approx(4164, rel=0.3)


def test_single_tokens_and_single_rows() -> None:
    """A completion of one token needs no decode step; one row alone is read until its own end."""
    work = workload(prompts=1, group=1, completion=1)
    assert "decode" not in _by_name(estimate_compute("grpo", SMOLLM2_135M, work, TWO_CORES))
    one = workload(prompts=1, group=1, completion=5, longest=9)
    assert math.isfinite(estimate_compute("ppo", SMOLLM2_135M, one, TWO_CORES).seconds)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'grop'.*sft, dpo, ppo, grpo"):
        estimate_compute("grop", ONE_LAYER, SMALL, ROUND)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="lora_rank = 0"):
        estimate_compute("sft", ONE_LAYER, SMALL, ROUND, lora_rank=0)
    with pytest.raises(ConfigError, match="max_rows = 0"):
        estimate_compute("grpo", ONE_LAYER, SMALL, ROUND, max_rows=0)
    with pytest.raises(ConfigError, match="lengths"):
        training_flops(ONE_LAYER, [])
    with pytest.raises(ConfigError, match="lengths = 0"):
        training_flops(ONE_LAYER, [3, 0])
    assert update_bytes(ONE_LAYER, ROUND) == 1000


def test_every_forward_launches_its_layers_by_hand() -> None:
    """ONE_LAYER at 7 s a layer: 1 prefill, 2 decode steps; reference 1, train 3 forwards' worth of launches."""
    slow = dataclasses.replace(ROUND, layer_s=7.0)
    before = _by_name(estimate_compute("grpo", ONE_LAYER, SMALL, ROUND))
    after = _by_name(estimate_compute("grpo", ONE_LAYER, SMALL, slow))
    more = {name: after[name][1] - before[name][1] for name in before}
    assert more == pytest.approx({"prefill": 7, "decode": 2 * 7, "reference": 7, "train": 3 * 7, "update": 0})
    assert {name: flops for name, (flops, _) in after.items()} == {name: flops for name, (flops, _) in before.items()}


def test_launches_count_layers_micro_batches_and_epochs() -> None:
    deep = dataclasses.replace(ONE_LAYER, num_layers=3)
    cut = dataclasses.replace(SMALL, prompts_per_step=2, tokens_per_microbatch=10, epochs=2)  # a tree of 10 nodes each
    slow = dataclasses.replace(ROUND, layer_s=1.0)
    before, after = (_by_name(estimate_compute("grpo", deep, cut, machine)) for machine in (ROUND, slow))
    assert after["train"][1] - before["train"][1] == pytest.approx(3 * 2 * 3 * 2)
    assert after["old_logprobs"][1] - before["old_logprobs"][1] == pytest.approx(3 * 2)
    assert after["prefill"][1] - before["prefill"][1] == pytest.approx(3)
