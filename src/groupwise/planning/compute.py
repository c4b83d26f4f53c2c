"""Floating-point operations, seconds and price of training steps, phase by phase, for four methods on one model.

What is counted, 2 operations a multiply-accumulate:

    forward     2 a weight of the body and node,  2 a weight of the LM head and position that needs logits,
                4 * heads * head_dim * layers a (query, key) pair that must be seen
    training    3 times that; with adapters on a frozen model 2 times, and 6 an adapter weight and node
    gradient checkpointing adds the body's forward once

Nodes and pairs are those of token trees (step_tokens.py): a prefix counts once. Not counted: norms, softmax, drawing
tokens, masked pairs, logits that the backward pass makes again, judging. What these cost is part of measured rates.

Phases and their seconds:

    prefill          operations / prefill_flops: trunk once, the rest of each prompt once
    decode           sum over forwards of (weight bytes + key bytes) / decode_bytes_per_s + operations / decode_flops
    old_logprobs     a forward of the batch; only where it is used more than once (epochs > 1)
    reference        a forward of the batch; only with a reference
    reward_model, values   PPO: a forward each of a model as large as the policy, without LM head
    train, train_critic    operations / train_flops, `epochs` times
    update           bytes moved / update_bytes_per_s

Every forward takes at least layers * layer_s on top, which is 0 for a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from groupwise.planning.bounds import require, require_count, require_number
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

NUMBERS_MOVED = 10
"""A trained parameter and update: AdamW reads weight, gradient and two moments and writes all but the gradient (7);
clipping reads the gradient for its norm, then reads and writes it to scale it (3)."""
BACKWARD = 3
"""A forward and its backward launch about three times the kernels of a forward alone."""
GENERATION = ("prefill", "decode")
"""The phases in which completions are sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One part of an optimizer step.

    Example:
        Phase(name="train", flops=3.1e12, seconds=24.0)
    """

    name: str
    flops: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeEstimate:
    """What one step costs, and the whole run of `steps`.

    Example:
        ComputeEstimate(method="sft", phases=(Phase(name="train", flops=3.1e12, seconds=24.0),), steps=10,
                        price_per_hour=None)
    """

    method: str
    phases: tuple[Phase, ...]
    """Of one step, in the order in which they happen; those that do not happen are left out."""
    steps: int
    price_per_hour: float | None

    @property
    def flops(self) -> float:
        """Of one step."""
        return math.fsum(phase.flops for phase in self.phases)

    @property
    def seconds(self) -> float:
        """Of one step."""
        return math.fsum(phase.seconds for phase in self.phases)

    @property
    def run_flops(self) -> float:
        """Of all steps."""
        return self.steps * self.flops

    @property
    def run_seconds(self) -> float:
        """Of all steps."""
        return self.steps * self.seconds

    @property
    def price(self) -> float | None:
        """Of all steps, in the currency of price_per_hour; None where there is none."""
        return None if self.price_per_hour is None else self.run_seconds / 3600 * self.price_per_hour

    @property
    def generation_share(self) -> float:
        """Share of the seconds that goes into sampling, 0..1."""
        return math.fsum(phase.seconds for phase in self.phases if phase.name in GENERATION) / self.seconds


def estimate_compute(
    method: Method,
    shape: ModelShape,
    workload: Workload,
    hardware: Hardware,
    *,
    prefix_sharing: bool = True,
    lora_rank: int | None = None,
    gradient_checkpointing: bool = False,
    max_rows: int | None = None,
) -> ComputeEstimate:
    """The phases of one step; see the module for what is counted.

    SFT and DPO use prompts_per_step demonstrations or pairs a step and ignore group_size, live_share and epochs. PPO
    samples as many completions as GRPO, each of a prompt of its own, and has a critic and a reward model of the
    policy's size. Dead groups (1 - live_share) cost GRPO neither forward nor backward, unless there is a reference.

    prefix_sharing=False forwards every sequence whole, padded to the longest, with logits at all positions. max_rows
    bounds the decode batch: rows that wait need more forwards. A model that token trees cannot serve is decoded one
    prompt at a time, which is prefix_sharing=False and max_rows=workload.group_size.

    Raises:
        ConfigError: for an unknown method, or a lora_rank or max_rows below 1.
    """
    require_method(method)
    if max_rows is not None:
        require_count("max_rows", max_rows, advice="Give the size of the decode batch, or None for all rows at once.")
    lora_params = 0 if lora_rank is None else shape.lora_params(lora_rank)
    drawn = sampled(method, workload)
    tokens = trained_tokens(method, workload, prefix_sharing=prefix_sharing)
    epochs = workload.epochs if drawn else 1
    forward = forward_flops(shape, tokens)
    without_head = forward_flops(shape, tokens, with_head=False)
    train = train_flops(shape, tokens, lora_params, gradient_checkpointing=gradient_checkpointing)
    phases: list[Phase] = []

    launch_s = shape.num_layers * hardware.layer_s * tokens.microbatches  # of one forward of all micro-batches

    def add(name: str, flops: float, rate: float, forwards: int = 1) -> None:
        if flops:
            phases.append(Phase(name=name, flops=flops, seconds=flops / rate + forwards * launch_s))

    if drawn:
        phases += _generation(shape, workload, hardware, drawn, prefix_sharing=prefix_sharing, max_rows=max_rows)
    if epochs > 1:
        add("old_logprobs", forward, hardware.prefill_flops)
    if workload.has_reference:
        add("reference", forward, hardware.prefill_flops)
    if method == "ppo":
        add("reward_model", without_head, hardware.prefill_flops)
        add("values", without_head, hardware.prefill_flops)
    add("train", epochs * train, hardware.train_flops, BACKWARD * epochs)
    if method == "ppo":
        critic = train_flops(shape, tokens, lora_params, gradient_checkpointing=gradient_checkpointing, with_head=False)
        add("train_critic", epochs * critic, hardware.train_flops, BACKWARD * epochs)
    if tokens.nodes:
        moved = epochs * (2 if method == "ppo" else 1) * update_bytes(shape, hardware, lora_rank=lora_rank)
        phases.append(Phase(name="update", flops=0.0, seconds=moved / hardware.update_bytes_per_s))
    return ComputeEstimate(
        method=method, phases=tuple(phases), steps=workload.steps, price_per_hour=hardware.price_per_hour
    )


def update_bytes(shape: ModelShape, hardware: Hardware, *, lora_rank: int | None = None) -> int:
    """Bytes that clipping and AdamW move in one update: NUMBERS_MOVED a trained parameter; adapters are float32."""
    if lora_rank is not None:
        return NUMBERS_MOVED * 4 * shape.lora_params(lora_rank)
    return NUMBERS_MOVED * hardware.bytes_per_number * shape.num_params


def key_bytes_per_token(shape: ModelShape, bytes_per_number: int) -> int:
    """Keys and values of one token in all layers."""
    return 2 * shape.num_layers * shape.key_width * bytes_per_number


def training_flops(shape: ModelShape, lengths: Sequence[int]) -> float:
    """Forward and backward of whole sequences of these lengths in the convention of verl's flops counter.

        6 * (all matrices, embedding and LM head both counted) * sum(s) + 6 * heads * head_dim * layers * sum(s^2)

    It counts the input embedding as a product and every position's logits, and halves attention because it is causal.
    It serves to compare rates with published ones; `estimate_compute` counts differently.

    Raises:
        ConfigError: for no lengths, or one below 1.
    """
    require(len(lengths) > 0, "lengths", list(lengths), "the lengths of one or more sequences", "Give them in tokens.")
    for length in lengths:
        require_number("lengths", length, least=1, advice="Give the length of each sequence in tokens.")
    dense = shape.body_matmul_params + 2 * shape.head_params
    squares = math.fsum(length * length for length in lengths)
    return 6 * dense * math.fsum(lengths) + 6 * shape.query_width * shape.num_layers * squares


def _attention_flops(shape: ModelShape, pairs: float) -> float:
    """Queries times keys, and weights times values, in all layers."""
    return 4 * pairs * shape.query_width * shape.num_layers


def _body_flops(shape: ModelShape, tokens: TrainedTokens) -> float:
    return 2 * shape.body_matmul_params * tokens.nodes + _attention_flops(shape, tokens.pairs)


def forward_flops(shape: ModelShape, tokens: TrainedTokens, *, with_head: bool = True) -> float:
    """Operations of one forward."""
    head = 2 * shape.head_params * tokens.head_rows if with_head else 0.0
    return _body_flops(shape, tokens) + head


def train_flops(
    shape: ModelShape,
    tokens: TrainedTokens,
    lora_params: int,
    *,
    gradient_checkpointing: bool,
    with_head: bool = True,
) -> float:
    """Forward and backward. A frozen matrix has no weight gradient: 4 instead of 6; attention has no weights."""
    head = 2 * shape.head_params * tokens.head_rows if with_head else 0.0
    matrices = 2 * shape.body_matmul_params * tokens.nodes + head
    attention = _attention_flops(shape, tokens.pairs)
    again = _body_flops(shape, tokens) if gradient_checkpointing else 0.0
    if lora_params:
        adapters = lora_params * tokens.nodes
        return 2 * matrices + 3 * attention + 6 * adapters + again + (2 * adapters if gradient_checkpointing else 0.0)
    return 3 * (matrices + attention) + again


def _generation(
    shape: ModelShape,
    workload: Workload,
    hardware: Hardware,
    drawn: Sampled,
    *,
    prefix_sharing: bool,
    max_rows: int | None,
) -> Iterator[Phase]:
    """Prefill, then decoding. The first token comes from the prefill, and the last one is never read again: a row of
    T tokens takes part in T - 1 forwards."""
    prompt, steps = workload.prompt_tokens, workload.completion_tokens - 1
    row_steps = drawn.num_rows * steps
    yield _prefill(shape, workload, hardware, drawn, prefix_sharing=prefix_sharing)
    if not row_steps:
        return
    context = prompt + workload.completion_tokens / 2
    flops = 2 * shape.matmul_params * row_steps + _attention_flops(shape, row_steps * context)
    forwards = _num_forwards(workload, drawn.num_rows, max_rows)
    weights = forwards * shape.matmul_params * hardware.bytes_per_number
    keys = _keys_read(workload, drawn, forwards, prefix_sharing=prefix_sharing)
    read = weights + keys * key_bytes_per_token(shape, hardware.bytes_per_number)
    launched = forwards * shape.num_layers * hardware.layer_s
    seconds = read / hardware.decode_bytes_per_s + flops / hardware.decode_flops + launched
    yield Phase(name="decode", flops=flops, seconds=seconds)


def _prefill(
    shape: ModelShape, workload: Workload, hardware: Hardware, drawn: Sampled, *, prefix_sharing: bool
) -> Phase:
    """Every prompt through the body, its last position through the LM head."""
    prompt = workload.prompt_tokens
    trunk = workload.trunk_tokens if prefix_sharing else 0.0
    copies = drawn.num_prompts if prefix_sharing else drawn.num_rows
    branch = prompt - trunk
    nodes = trunk + copies * branch
    pairs = trunk * (trunk + 1) / 2 + copies * (branch * trunk + branch * (branch + 1) / 2)
    flops = 2 * shape.body_matmul_params * nodes + _attention_flops(shape, pairs) + 2 * shape.head_params * copies
    launched = shape.num_layers * hardware.layer_s
    return Phase(name="prefill", flops=flops, seconds=flops / hardware.prefill_flops + launched)


def _num_forwards(workload: Workload, num_rows: int, max_rows: int | None) -> float:
    """Decode steps of a step's sampling. Where rows wait, a place is taken again as soon as it is free: the batch is
    full until the last rows have entered, which then need the longest completion's tail."""
    steps, longest = workload.completion_tokens - 1, workload.longest_completion - 1
    if max_rows is None or num_rows <= max_rows:
        return longest
    return num_rows * steps / max_rows + longest - steps


def _keys_read(workload: Workload, drawn: Sampled, forwards: float, *, prefix_sharing: bool) -> float:
    """Tokens whose keys are read, over all decode steps.

    A trunk is read in every step, a prompt's branch once a step until the last of its rows has ended, what a row has
    produced by that row.
    """
    steps = workload.completion_tokens - 1
    own = drawn.num_rows * steps * workload.completion_tokens / 2
    if not prefix_sharing:
        return own + drawn.num_rows * steps * workload.prompt_tokens
    trunk = stored_trunk(drawn.num_prompts, workload)
    branch = drawn.num_prompts * (workload.prompt_tokens - trunk)
    return own + trunk * forwards + branch * _longest_of_group(workload, drawn)


def _longest_of_group(workload: Workload, drawn: Sampled) -> float:
    """Decode steps until the last row of a prompt has ended: between the mean and the step's longest, growing with the
    logarithm of the number of rows, as the expected maximum of exponential lengths does."""
    steps, longest = workload.completion_tokens - 1, workload.longest_completion - 1
    if drawn.num_rows == 1:
        return steps
    return steps + (longest - steps) * math.log(drawn.rows_per_prompt) / math.log(drawn.num_rows)
