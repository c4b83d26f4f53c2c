"""From the times of pieces of a step to the rates that a plan is made with.

What a piece computes and moves is asked of planning/compute.py, the same formulas that will use the rates: an estimate
of the very work that was timed gives the very time that was measured.

A decode step of b rows takes bytes / decode_bytes_per_s + operations / decode_flops: two batch sizes give two equations
for the two rates.
"""

from __future__ import annotations

from groupwise.launch.timings import Sizes, Timings
from groupwise.planning.compute import Phase, estimate_compute
from groupwise.planning.hardware import Hardware
from groupwise.planning.model_shape import ModelShape
from groupwise.planning.workload import Workload

LEAST_SHARE = 0.01
"""Where the two decode times do not separate, this share of one goes to the part that would be nothing."""


def hardware_of(
    timings: Timings,
    shape: ModelShape,
    sizes: Sizes,
    *,
    name: str,
    memory_bytes: int,
    process_bytes: int,
    bytes_per_number: int,
    price_per_hour: float | None = None,
) -> tuple[Hardware, bool]:
    """The rates behind these times; False where the two decode times could not be told apart into bytes and operations.

    Raises:
        ConfigError: for a time that is not positive and finite.
    """
    few = counted(shape, sizes, sizes.few_prompts, sizes.decode_tokens, bytes_per_number)
    many = counted(shape, sizes, sizes.many_prompts, sizes.decode_tokens, bytes_per_number)
    train = counted(shape, sizes, sizes.prompts, sizes.completion, bytes_per_number)
    steps = sizes.decode_tokens - 1
    decode_bytes_per_s, decode_flops, separable = separate(
        _decode_work(few), _decode_work(many), steps * timings.few.median, steps * timings.many.median
    )
    hardware = Hardware(
        name=name,
        memory_bytes=memory_bytes,
        bytes_per_number=bytes_per_number,
        train_flops=train["train"].flops / timings.train.median,
        prefill_flops=many["prefill"].flops / timings.prefill.median,
        decode_flops=decode_flops,
        decode_bytes_per_s=decode_bytes_per_s,
        update_bytes_per_s=train["update"].seconds / timings.update.median,
        process_bytes=process_bytes,
        price_per_hour=price_per_hour,
        measured=True,
    )
    return hardware, separable


def counted(
    shape: ModelShape, sizes: Sizes, prompts: int, completion_tokens: int, bytes_per_number: int
) -> dict[str, Phase]:
    """The phases of a step of these sizes on a machine that does one operation and moves one byte a second."""
    unit = Hardware(
        name="one a second",
        memory_bytes=1,
        bytes_per_number=bytes_per_number,
        train_flops=1.0,
        prefill_flops=1.0,
        decode_flops=1.0,
        decode_bytes_per_s=1.0,
        update_bytes_per_s=1.0,
        process_bytes=0,
    )
    workload = Workload(
        prompts_per_step=prompts,
        group_size=sizes.group,
        prompt_tokens=sizes.trunk + sizes.branch,
        trunk_tokens=sizes.trunk,
        completion_tokens=completion_tokens,
        longest_completion=completion_tokens,
        max_completion_tokens=completion_tokens,
        live_share=1.0,
        has_reference=False,
        tokens_per_microbatch=1 << 30,
        steps=1,
    )
    return {phase.name: phase for phase in estimate_compute("grpo", shape, workload, unit).phases}


def _decode_work(phases: dict[str, Phase]) -> tuple[float, float]:
    """(bytes, operations) of a decode phase at unit rates, where seconds are their sum."""
    decode = phases["decode"]
    return decode.seconds - decode.flops, decode.flops


def separate(
    few: tuple[float, float], many: tuple[float, float], few_seconds: float, many_seconds: float
) -> tuple[float, float, bool]:
    """(bytes/s, FLOP/s, whether both were found) from two batches of (bytes, operations) and their seconds.

        seconds = bytes / bytes_per_s + operations / flops        for each batch

    Where the solution is not positive (noise, or a GPU to which 8 rows and 64 cost the same), the part that vanishes
    gets LEAST_SHARE of the seconds of the batch in which it weighs most: bytes in the smaller one, operations in the
    larger.
    """
    (few_bytes, few_flops), (many_bytes, many_flops) = few, many
    determinant = few_bytes * many_flops - many_bytes * few_flops
    per_byte = (few_seconds * many_flops - many_seconds * few_flops) / determinant
    per_flop = (few_bytes * many_seconds - many_bytes * few_seconds) / determinant
    least_per_byte = LEAST_SHARE * few_seconds / few_bytes
    least_per_flop = LEAST_SHARE * many_seconds / many_flops
    separable = per_byte >= least_per_byte and per_flop >= least_per_flop
    if per_byte < least_per_byte:
        per_byte = least_per_byte
        per_flop = (many_seconds - per_byte * many_bytes) / many_flops
    elif per_flop < least_per_flop:
        per_flop = least_per_flop
        per_byte = (few_seconds - per_flop * few_flops) / few_bytes
    return 1 / per_byte, 1 / per_flop, separable
