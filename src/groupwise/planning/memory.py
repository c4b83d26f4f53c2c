"""Bytes that training holds, part by part, at the moment when it holds most.

A step has three such moments, and the largest total binds:

    sampling   weights, the sampler's copy of them, optimizer state, keys and values; gradients went with their update
    training   weights, gradients, optimizer state, activations of one micro-batch, the LM head's own gradient
    update     weights, gradients, optimizer state; a tied embedding's gradient comes in two parts

A trained parameter holds weight + gradient + two moments of AdamW, all in the model's own format: 4 + 4 + 8 = 16 bytes
in float32, 2 + 2 + 4 = 8 in bf16. The usual mixed precision has 2 + 4 + 12 = 18: a float32 copy of the weight is added.
Adapters are float32 whatever the model is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from groupwise.planning.activations import LOGIT_COPIES, kept_bytes, logits_bytes, uses_own_layers, working_bytes
from groupwise.planning.bounds import require, require_count
from groupwise.planning.compute import key_bytes_per_token
from groupwise.planning.hardware import Hardware
from groupwise.planning.model_shape import ModelShape
from groupwise.planning.step_tokens import (
    Method,
    Sampled,
    TrainedTokens,
    require_method,
    sampled,
    stored_trunk,
    trained_tokens,
)
from groupwise.planning.workload import Workload

PREFILL_TOKENS = 2048
"""Prompt tokens of one prefill; a longer prompt is prefilled whole."""
MASK_BYTES = 4
"""A (query, key) pair of a token tree on a CPU: block masks are float32 and live as long as the micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """What one device holds at its fullest moment.

    Example:
        MemoryEstimate(phase="update", parts={"weights": 4000, "gradients": 4000, "optimizer": 8000},
                       phases={"update": 16000}, memory_bytes=1 << 34)
    """

    phase: str
    """The moment that binds: "sampling", "training" or "update"."""
    parts: Mapping[str, int]
    """Bytes of each part at that moment; parts that hold nothing are left out."""
    phases: Mapping[str, int]
    """Total of each moment."""
    memory_bytes: int
    """What the device has."""

    @property
    def total(self) -> int:
        """Sum of the parts."""
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        """True where the total is at most what the device has. Allocators need some percent more."""
        return self.total <= self.memory_bytes


def estimate_memory(
    method: Method,
    shape: ModelShape,
    workload: Workload,
    hardware: Hardware,
    *,
    lora_rank: int | None = None,
    ranks: int = 1,
    gradient_checkpointing: bool = False,
    cache_bytes: int | None = None,
    max_rows: int | None = None,
    mixed_precision: bool = False,
    prefix_sharing: bool = True,
) -> MemoryEstimate:
    """The fullest moment of a step on each of `ranks` devices.

    PPO holds a critic that is trained like the policy and a frozen reward model, both of the policy's size; GRPO needs
    neither, its rewards come from a verifier. A reference (workload.has_reference) is a frozen copy, except with
    adapters, where it is the policy without them. cache_bytes and max_rows bound the decode batch, as rollout.cache_gb
    and rollout.max_rows do.

    With several ranks, weights, gradients and optimizer states are sharded (FSDP): to train, two layers, embedding and
    LM head are gathered; to sample, all weights. Rollouts are divided, the micro-batch of a rank is not.

    Raises:
        ConfigError: for an unknown method, a count below 1, or mixed precision in float32.
    """
    _require_bounds(ranks, cache_bytes, max_rows)
    state = state_bytes(
        method,
        shape,
        hardware.bytes_per_number,
        has_reference=workload.has_reference,
        lora_rank=lora_rank,
        mixed_precision=mixed_precision,
    )
    sharded = {"process": hardware.process_bytes, **{name: math.ceil(n / ranks) for name, n in state.items()}}
    tokens = trained_tokens(method, workload, prefix_sharing=prefix_sharing)
    drawn = sampled(method, workload)
    moments: dict[str, dict[str, int]] = {}
    if drawn:
        sampling = _sampling_parts(
            shape,
            workload,
            hardware,
            _share_of_rank(drawn, ranks, max_rows),
            lora_rank=lora_rank,
            prefix_sharing=prefix_sharing,
        )
        if ranks > 1:
            sampling["gathered"] = shape.num_params * hardware.bytes_per_number
        if cache_bytes is not None:
            sampling["kv_cache"] = min(sampling["kv_cache"], cache_bytes)
        moments["sampling"] = {**{name: n for name, n in sharded.items() if not _is_gradient(name)}, **sampling}
    if tokens.nodes:
        training = _training_parts(
            shape,
            hardware.bytes_per_number,
            tokens,
            lora_rank=lora_rank,
            ranks=ranks,
            gradient_checkpointing=gradient_checkpointing,
            prefix_sharing=prefix_sharing,
        )
        # the first backward pass makes the gradients while activations are freed, but seldom in their places: the
        # demo's process peaked at the sum of both
        moments["training"] = {**sharded, **training}
    moments["update"] = {**sharded, "head_gradient": _tied_gradient(shape, hardware.bytes_per_number, lora_rank)}
    totals = {name: sum(parts.values()) for name, parts in moments.items()}
    phase = max(totals, key=totals.__getitem__)
    return MemoryEstimate(
        phase=phase,
        parts={name: size for name, size in moments[phase].items() if size},
        phases=totals,
        memory_bytes=hardware.memory_bytes,
    )


def _require_bounds(ranks: int, cache_bytes: int | None, max_rows: int | None) -> None:
    require_count("ranks", ranks, advice="Give the number of devices.")
    if cache_bytes is not None:
        require_count("cache_bytes", cache_bytes, advice="Give what keys and values may hold, or None for no bound.")
    if max_rows is not None:
        require_count("max_rows", max_rows, advice="Give the size of the decode batch, or None for all rows at once.")


def state_bytes(
    method: Method,
    shape: ModelShape,
    bytes_per_number: int,
    *,
    has_reference: bool,
    lora_rank: int | None = None,
    mixed_precision: bool = False,
) -> dict[str, int]:
    """Weights, gradients and optimizer state of every network of a method, before any sharding.

    With mixed precision and a reference, PPO holds 18 + 18 + 2 + 2 = 40 bytes a parameter and GRPO 20.

    Raises:
        ConfigError: for an unknown method, a rank below 1, or mixed precision where the model is float32 anyway.
    """
    require_method(method)
    require(
        not (mixed_precision and bytes_per_number == 4),
        "mixed_precision",
        mixed_precision,
        "False where numbers are float32",
        "Plan for a GPU, or leave it out.",
    )
    trained = shape.num_params if lora_rank is None else shape.lora_params(lora_rank)
    weight = bytes_per_number if lora_rank is None else 4
    gradient, optimizer = (4, 12) if mixed_precision and lora_rank is None else (weight, 2 * weight)
    frozen = shape.num_params * bytes_per_number
    weights = frozen + (0 if lora_rank is None else 4 * trained)
    parts = {"weights": weights, "gradients": gradient * trained, "optimizer": optimizer * trained}
    if has_reference and lora_rank is None:
        parts["reference"] = frozen
    if method == "ppo":
        parts |= {f"critic_{name}": parts[name] for name in ("weights", "gradients", "optimizer")}
        parts["reward_model"] = frozen
    return parts


def _is_gradient(name: str) -> bool:
    """True for the policy's and the critic's: each update frees its gradients."""
    return name.endswith("gradients")


def _tied_gradient(shape: ModelShape, bytes_per_number: int, lora_rank: int | None) -> int:
    """A tied matrix has two gradients, of the LM head and of the embedding; the first waits for the second."""
    is_tied = shape.tied_embeddings and lora_rank is None
    return shape.head_params * bytes_per_number if is_tied else 0


def _training_parts(
    shape: ModelShape,
    bytes_per_number: int,
    tokens: TrainedTokens,
    *,
    lora_rank: int | None,
    ranks: int,
    gradient_checkpointing: bool,
    prefix_sharing: bool,
) -> dict[str, int]:
    """What the largest micro-batch adds as its backward pass begins."""
    own_layers = uses_own_layers(
        shape, bytes_per_number=bytes_per_number, lora_rank=lora_rank, prefix_sharing=prefix_sharing
    )
    largest = tokens.largest
    working = working_bytes(
        shape,
        largest,
        bytes_per_number=bytes_per_number,
        lora_rank=lora_rank,
        gradient_checkpointing=gradient_checkpointing,
        own_layers=own_layers,
    )
    kept = kept_bytes(
        shape,
        largest,
        bytes_per_number=bytes_per_number,
        lora_rank=lora_rank,
        gradient_checkpointing=gradient_checkpointing,
        own_layers=own_layers,
        head_rows=tokens.head_rows * largest / tokens.nodes,
    )
    head = 0 if lora_rank is not None else shape.head_params * bytes_per_number
    parts = {"activations": kept + working, "head_gradient": head}
    if tokens.logit_tokens:
        copy = logits_bytes(math.ceil(tokens.logit_tokens), shape.vocab, 4)
        # the LM head's gradient is made when one copy has gone; what is inside the layers comes after the logits
        logits = max(LOGIT_COPIES * copy, (LOGIT_COPIES - 1) * copy + head)
        parts = {"activations": kept, "logits": max(logits, working)}
    if prefix_sharing and bytes_per_number == 4:
        parts["masks"] = math.ceil(MASK_BYTES * tokens.pairs_of_largest)
    if ranks > 1:
        layer = shape.body_matmul_params // shape.num_layers
        embeddings = shape.head_params * (1 if shape.tied_embeddings else 2)
        parts["gathered"] = (2 * layer + embeddings) * bytes_per_number
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class _DecodeBatch:
    """Rows and prompts that are decoded at the same time on one device."""

    rows: int
    prompts: int


def _share_of_rank(drawn: Sampled, ranks: int, max_rows: int | None) -> _DecodeBatch:
    """The decode batch of a rank. Where rows wait, there are half as many prompt slots again as full groups need."""
    rows, prompts = math.ceil(drawn.num_rows / ranks), math.ceil(drawn.num_prompts / ranks)
    if max_rows is None or rows <= max_rows:
        return _DecodeBatch(rows=rows, prompts=prompts)
    groups = math.ceil(max_rows / drawn.rows_per_prompt)
    return _DecodeBatch(rows=max_rows, prompts=min(prompts, groups + math.ceil(groups / 2)))


def _sampling_parts(
    shape: ModelShape,
    workload: Workload,
    hardware: Hardware,
    batch: _DecodeBatch,
    *,
    lora_rank: int | None,
    prefix_sharing: bool,
) -> dict[str, int]:
    """What generating the completions of a step adds."""
    size = hardware.bytes_per_number
    keys = key_bytes_per_token(shape, size)
    stored = _stored_tokens(workload, batch, is_cpu=size == 4, prefix_sharing=prefix_sharing)
    prefilled = max(workload.prompt_tokens, min(PREFILL_TOKENS, batch.prompts * workload.prompt_tokens))
    of_prefill = prefilled * (keys + (3 * shape.intermediate + 2 * shape.hidden) * size)
    return {
        "kv_cache": math.ceil(stored * keys),
        "activations": math.ceil(of_prefill),
        "logits": 2 * logits_bytes(batch.rows, shape.vocab, 4),  # and their exponentials
        "sampling_weights": _sampling_weights(shape, size, lora_rank) if prefix_sharing else 0,
    }


def _stored_tokens(workload: Workload, batch: _DecodeBatch, *, is_cpu: bool, prefix_sharing: bool) -> float:
    """Tokens whose keys and values are held: the trunk once, a prompt's branch once, room for every row's own.

    A GPU takes all of that room at once; on a CPU pages that were never written cost nothing.
    """
    own = (workload.longest_completion if is_cpu else workload.max_completion_tokens) - 1
    if not prefix_sharing:
        return batch.rows * (workload.prompt_tokens + own)
    trunk = stored_trunk(batch.prompts, workload)
    return trunk + batch.prompts * (workload.prompt_tokens - trunk) + batch.rows * max(1, own)


def _sampling_weights(shape: ModelShape, bytes_per_number: int, lora_rank: int | None) -> int:
    """Copies of weights that models/fused_forward.py makes for Llama-like models: on a CPU everything in the layout of
    its products, on a GPU only what it joins (q, k, v; gate, up), with adapters every matrix they change."""
    if not shape.gated_mlp:
        return 0
    if bytes_per_number == 4:
        return shape.matmul_params * bytes_per_number
    if lora_rank is not None:
        return shape.body_matmul_params * bytes_per_number
    joined = shape.query_width + 2 * shape.key_width + 2 * shape.intermediate
    return shape.num_layers * shape.hidden * joined * bytes_per_number
