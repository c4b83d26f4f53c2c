"""Parts by hand, the published bytes a parameter, and measured peaks."""

from __future__ import annotations

import dataclasses

import pytest
from plan_sizes import (
    LLAMA2_7B,
    ONE_LAYER,
    QWEN3_0_6B,
    QWEN3_4B,
    QWEN25_7B,
    ROUND,
    SMOLLM2_135M,
    TWO_CORES,
    workload,
)

from groupwise.errors import ConfigError
from groupwise.planning.activations import TILE_BYTES
from groupwise.planning.hardware import named_hardware
from groupwise.planning.memory import estimate_memory, state_bytes
from groupwise.planning.model_shape import ModelShape

SMALL = workload(prompts=1, group=2, prompt=4, trunk=0, completion=3, reference=True)
"""A tree of 4 + 3 + 3 nodes."""
FLOAT32 = dataclasses.replace(ROUND, bytes_per_number=4)


def test_the_parts_of_sampling_by_hand() -> None:
    work = workload(prompts=1, group=512, prompt=4, trunk=0, completion=129, reference=True, microbatch=133)
    estimate = estimate_memory("grpo", LLAMA2_7B, work, ROUND)
    sampling = {
        "process": 7,
        "weights": 2 * LLAMA2_7B.num_params,
        "optimizer": 4 * LLAMA2_7B.num_params,
        "reference": 2 * LLAMA2_7B.num_params,
        "kv_cache": (4 + 512 * 128) * 524_288,  # the prompt once, 128 own tokens a row
        "activations": 4 * (524_288 + 2 * (3 * 11008 + 2 * 4096)),  # the prompt's prefill
        "logits": 2 * 512 * 32000 * 4,
        "sampling_weights": 2 * 32 * 4096 * (3 * 4096 + 2 * 11008),  # q, k, v and gate, up side by side
    }
    assert estimate.phase == "sampling"
    assert estimate.parts == sampling
    assert estimate.total == sum(sampling.values()) == estimate.phases["sampling"]
    assert not estimate.fits
    ppo = estimate_memory("ppo", LLAMA2_7B, work, ROUND)
    assert ppo.phase == "sampling"
    assert not any("gradients" in name for name in ppo.parts)  # neither the policy's nor the critic's


def test_the_parts_of_training_by_hand() -> None:
    estimate = estimate_memory("sft", ONE_LAYER, workload(1, 1, 4, 0, 3), FLOAT32)
    # 7 nodes: a layer keeps 2 * 2 + 3 * 2 + 2 * 2 + 2 * 3 = 20, the last norm 4, the angles 4; 3 rows of 2 in the head
    assert estimate.parts == {
        "process": 7,
        "weights": 4 * 50,
        "gradients": 4 * 50,
        "optimizer": 8 * 50,
        "activations": 4 * (7 * 28 + 6) + TILE_BYTES,
        "head_gradient": 4 * 10,
        "masks": 4 * 28,
    }
    assert estimate.phase == "training"
    # one micro-batch begins without gradients; two begin the second with them
    two = estimate_memory("sft", ONE_LAYER, workload(2, 1, 4, 0, 3, microbatch=7), FLOAT32)
    assert two.parts == {**estimate.parts, "gradients": 4 * 50}
    # the update: 16 bytes a parameter, and the tied embedding's second gradient
    assert estimate.phases["update"] == 7 + 16 * 50 + 4 * 10


@pytest.mark.parametrize("method", ["sft", "dpo", "ppo", "grpo"])
@pytest.mark.parametrize("rank", [None, 8])
def test_parts_add_up_and_the_fullest_moment_binds(method: str, rank: int | None) -> None:
    for card in (TWO_CORES, named_hardware("a100")):
        for work in (workload(), workload(completion=500, microbatch=1024), workload(live=0.0)):
            estimate = estimate_memory(method, SMOLLM2_135M, work, card, lora_rank=rank)  # type: ignore[arg-type]
            assert estimate.total == estimate.phases[estimate.phase] == max(estimate.phases.values())
            assert min(estimate.parts.values()) > 0
            assert ("sampling" in estimate.phases) == (method in ("ppo", "grpo"))


def test_published_bytes_per_parameter() -> None:
    """float32: 4 + 4 + 8. bf16 throughout: 2 + 2 + 4. Mixed precision: 18; GRPO 18, with a reference 20; PPO 40."""

    def per_parameter(method: str, size: int, *, reference: bool, mixed: bool = False) -> float:
        parts = state_bytes(method, QWEN25_7B, size, has_reference=reference, mixed_precision=mixed)  # type: ignore[arg-type]
        return sum(parts.values()) / QWEN25_7B.num_params

    assert per_parameter("sft", 4, reference=False) == 16
    assert per_parameter("sft", 2, reference=False) == 8
    assert per_parameter("grpo", 2, reference=False, mixed=True) == 18
    assert per_parameter("grpo", 2, reference=True, mixed=True) == 20
    assert per_parameter("ppo", 2, reference=True, mixed=True) == 40


def test_adapters_are_float32_and_need_no_reference() -> None:
    adapters = QWEN25_7B.lora_params(16)
    parts = state_bytes("grpo", QWEN25_7B, 2, has_reference=True, lora_rank=16)
    assert parts == {
        "weights": 2 * QWEN25_7B.num_params + 4 * adapters,
        "gradients": 4 * adapters,
        "optimizer": 8 * adapters,
    }


def test_shards_divide_the_state_and_leave_logits_and_activations() -> None:
    work = workload(16, 8, 343, 0, 500, microbatch=2048)
    card = named_hardware("h100")
    one, four = (estimate_memory("sft", QWEN25_7B, work, card, ranks=ranks, mixed_precision=True) for ranks in (1, 4))
    for name in ("weights", "gradients", "optimizer"):
        assert four.parts[name] == -(-one.parts[name] // 4)
    assert four.parts["activations"] == one.parts["activations"]
    matrices = 2 * QWEN25_7B.body_matmul_params // 28 + 2 * QWEN25_7B.head_params
    assert four.parts["gathered"] == 2 * matrices
    assert "gathered" not in one.parts


def test_the_cache_is_bounded() -> None:
    work = workload(64, 8, 343, 0, 1000)
    card = named_hardware("a100")

    def kept(**options: int) -> int:
        estimate = estimate_memory("grpo", QWEN3_0_6B, work, card, **options)  # type: ignore[arg-type]
        assert estimate.phase == "sampling"
        return estimate.parts["kv_cache"]

    assert kept() == 114_688 * (64 * 343 + 512 * 999)
    # 256 of 512 rows: 32 groups and half as many slots again
    assert kept(max_rows=256) == 114_688 * (48 * 343 + 256 * 999)
    assert kept(cache_bytes=20 * 10**9) == 20 * 10**9


def test_logits_are_kept_without_prefix_sharing_only() -> None:
    work = workload(1, 4, 200, 0, 50)
    shared = estimate_memory("sft", SMOLLM2_135M, work, TWO_CORES)
    plain = estimate_memory("grpo", SMOLLM2_135M, work, TWO_CORES, prefix_sharing=False)
    assert "logits" not in shared.parts
    assert plain.phase == "training"
    assert plain.parts["logits"] == 3 * 4 * 1000 * 49152


@pytest.mark.parametrize(
    ("sizes", "phase", "measured"),
    [((2, 8, 343, 30, 32), "sampling", 3.56e9 - 0.54e9), ((2, 8, 40, 30, 128), "training", 4.34e9)],
)
def test_measured_peaks_of_whole_steps(sizes: tuple[int, int, int, int, int], phase: str, measured: float) -> None:
    """The processes of benchmarks/step_vs_trl.py in their second step (jobs a and d): SmolLM2-135M in float32.

    Job a was measured while the gradients, 0.54 GB, stayed through the next sampling; they are taken off.
    """
    estimate = estimate_memory("grpo", SMOLLM2_135M, workload(*sizes), TWO_CORES)
    assert estimate.phases[phase] == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(
    ("shape", "tokens", "rank", "gibibytes"),
    [
        (QWEN3_0_6B, 16384, None, 12.5),
        (QWEN3_0_6B, 65536, None, 19.6),
        (QWEN3_0_6B, 16384, 16, 5.15),
        (QWEN3_4B, 16384, 16, 23.3),
        (QWEN3_4B, 65536, 16, 42.0),
    ],
)
def test_published_peaks(shape: ModelShape, tokens: int, rank: int | None, gibibytes: float) -> None:
    """prime-rl's benchmark on one H100 with recompute and a fused LM head: another program, hence 35 %."""
    work = workload(2, 1, 1, 0, tokens - 1, microbatch=tokens)
    estimate = estimate_memory(
        "sft",
        shape,
        work,
        named_hardware("h100"),
        lora_rank=rank,
        gradient_checkpointing=True,
        mixed_precision=rank is None,
    )
    assert estimate.total / 2**30 == pytest.approx(gibibytes, rel=0.35)
    assert estimate.fits


def test_bad_input_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'grop'.*sft, dpo, ppo, grpo"):
        estimate_memory("grop", ONE_LAYER, SMALL, ROUND)  # type: ignore[arg-type]
    for name in ("ranks", "cache_bytes", "max_rows", "lora_rank"):
        with pytest.raises(ConfigError, match=f"{name} = 0"):
            estimate_memory("grpo", ONE_LAYER, SMALL, ROUND, **{name: 0})
    with pytest.raises(ConfigError, match="mixed_precision"):
        estimate_memory("grpo", ONE_LAYER, SMALL, FLOAT32, mixed_precision=True)
