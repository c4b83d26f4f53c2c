"""From times to rates: two equations for decoding, and an estimate that gives back what was measured."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import ConfigError
from groupwise.launch.hardware_rates import LEAST_SHARE, counted, hardware_of, separate
from groupwise.launch.measure_hardware import CPU_SIZES, GPU_SIZES, QUICK_SIZES
from groupwise.launch.shapes_to_measure import COPIES, QUICK_SHAPE, SHAPES, shape_to_time
from groupwise.launch.timings import Sizes, Times, Timings
from groupwise.planning.compute import estimate_compute
from groupwise.planning.hardware import Hardware
from groupwise.planning.model_shape import ModelShape
from groupwise.planning.workload import Workload

TIMINGS = Timings(
    prefill=Times(seconds=(0.9, 1.0, 1.3)),
    few=Times(seconds=(0.06, 0.05, 0.07)),
    many=Times(seconds=(0.24, 0.25, 0.23)),
    train=Times(seconds=(5.0, 6.0, 5.5)),
    update=Times(seconds=(0.12,)),
)


def made(timings: Timings, shape: ModelShape = SHAPES["smollm2-135m"], sizes: Sizes = CPU_SIZES) -> Hardware:
    return hardware_of(timings, shape, sizes, name="x", memory_bytes=1, process_bytes=0, bytes_per_number=4)[0]


def test_two_batches_by_hand() -> None:
    # 10 bytes/s and 100 operations/s: (20 / 10 + 100 / 100, 20 / 10 + 800 / 100) = (3, 10) seconds
    assert separate((20, 100), (20, 800), 3.0, 10.0) == (pytest.approx(10), pytest.approx(100), True)


@given(
    bytes_per_s=st.floats(1e8, 1e13),
    flops=st.floats(1e9, 1e15),
    more_keys=st.floats(0, 2),
)
def test_rates_come_back_wherever_both_parts_matter(bytes_per_s: float, flops: float, more_keys: float) -> None:
    few, many = (5e8, 2e9), (5e8 * (1 + more_keys), 16e9)
    seconds = [b / bytes_per_s + f / flops for b, f in (few, many)]
    found = separate(few, many, *seconds)
    if found[2]:
        assert found[0] == pytest.approx(bytes_per_s, rel=1e-3)
        assert found[1] == pytest.approx(flops, rel=1e-3)
    else:  # one of them takes no time worth telling; the batches' times still come out
        share = max(few[0] / bytes_per_s / seconds[0], many[1] / flops / seconds[1])
        assert share > 1 - 20 * LEAST_SHARE


@pytest.mark.parametrize(("few_seconds", "many_seconds"), [(1.0, 1.0), (1.0, 0.9), (1.0, 8.0), (1.0, 20.0)])
def test_times_that_do_not_separate_give_positive_rates_and_say_so(few_seconds: float, many_seconds: float) -> None:
    bytes_per_s, flops, separable = separate((20, 100), (20, 800), few_seconds, many_seconds)
    assert not separable
    assert 0 < bytes_per_s < math.inf
    assert 0 < flops < math.inf
    # the batch that decides is met: many rows where bytes vanish, few where operations do
    decides = (20 / bytes_per_s + 800 / flops, many_seconds) if many_seconds > 2 else (20 / bytes_per_s, few_seconds)
    assert decides[0] == pytest.approx(decides[1], rel=2 * LEAST_SHARE)


@pytest.mark.parametrize("sizes", [CPU_SIZES, GPU_SIZES])
def test_an_estimate_of_the_timed_work_gives_the_measured_time(sizes: Sizes) -> None:
    shape = SHAPES["smollm2-135m"]
    hardware = made(TIMINGS, sizes=sizes)

    def estimated(prompts: int, tokens: int) -> dict[str, float]:
        workload = Workload(
            prompts_per_step=prompts,
            group_size=sizes.group,
            prompt_tokens=sizes.trunk + sizes.branch,
            trunk_tokens=sizes.trunk,
            completion_tokens=tokens,
            longest_completion=tokens,
            max_completion_tokens=tokens,
            live_share=1.0,
            has_reference=False,
            tokens_per_microbatch=10**6,
            steps=1,
        )
        return {phase.name: phase.seconds for phase in estimate_compute("grpo", shape, workload, hardware).phases}

    many = estimated(sizes.many_prompts, sizes.decode_tokens)
    assert many["prefill"] == pytest.approx(1.0)
    assert many["decode"] == pytest.approx(0.24 * (sizes.decode_tokens - 1))
    few = estimated(sizes.few_prompts, sizes.decode_tokens)
    assert few["decode"] == pytest.approx(0.06 * (sizes.decode_tokens - 1))
    trained = estimated(sizes.prompts, sizes.completion)
    assert trained["train"] == pytest.approx(5.5)
    assert trained["update"] == pytest.approx(0.12)


def test_what_is_counted_is_what_is_timed() -> None:
    phases = counted(QUICK_SHAPE, QUICK_SIZES, 2, 3, 4)
    nodes = 6 + 2 * 4 + 2 * 2 * 3  # a trunk, two branches, two completions of three tokens each
    assert nodes == 26
    body = 2 * QUICK_SHAPE.body_matmul_params * nodes
    # 5 positions a prompt have a trained successor: its last token, and two tokens of each completion
    head = 2 * QUICK_SHAPE.head_params * 2 * 5
    pairs = 21 + 2 * (4 * 6 + 10) + 4 * (3 * 10 + 6)  # each node sees itself and what stands before it
    attention = 4 * pairs * QUICK_SHAPE.query_width * QUICK_SHAPE.num_layers
    assert phases["train"].flops == 3 * (body + head + attention)


def test_times_that_are_not_positive_are_refused() -> None:
    for name in ("train", "prefill"):
        with pytest.raises((ConfigError, ZeroDivisionError)):
            made(dataclasses.replace(TIMINGS, **{name: Times(seconds=(0.0,))}))
    with pytest.raises(ConfigError, match="train_flops"):
        made(dataclasses.replace(TIMINGS, train=Times(seconds=(float("nan"),))))


def test_median_and_spread() -> None:
    times = Times(seconds=(1.0, 9.0, 2.0, 3.0, 4.0))
    assert times.median == 3.0
    assert times.spread == pytest.approx((4.0 - 2.0) / 3.0)
    assert Times(seconds=(5.0,)).spread == 0.0


def test_a_large_model_is_timed_by_its_first_layers() -> None:
    large = dataclasses.replace(SHAPES["qwen2.5-0.5b"], gated_mlp=False, extra_params=10**6)
    timed = shape_to_time(large, memory_bytes=64 << 30, bytes_per_number=4, most=200_000_000)
    assert 1 <= timed.num_layers < large.num_layers
    assert timed.num_params <= 200_000_000 < dataclasses.replace(timed, num_layers=timed.num_layers + 1).num_params
    assert timed.gated_mlp  # as the random model has it
    assert timed.extra_params == 0


def test_a_model_that_fits_is_timed_whole_and_one_that_never_fits_is_refused() -> None:
    shape = SHAPES["smollm2-135m"]
    assert shape_to_time(shape, memory_bytes=64 << 30, bytes_per_number=4, most=160_000_000) == shape
    least = dataclasses.replace(shape, num_layers=1).num_params * 4 * COPIES
    assert shape_to_time(shape, memory_bytes=least, bytes_per_number=4, most=160_000_000).num_layers == 1
    with pytest.raises(ConfigError, match=r"--shape smollm2-135m"):
        shape_to_time(shape, memory_bytes=least - 4 * COPIES, bytes_per_number=4, most=160_000_000)
