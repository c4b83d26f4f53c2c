"""How every side of `generation_vs_peers.py` is timed and reports. Standard library only, like `workload.py`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from statistics import median

from workload import Workload, digest, peak_rss_bytes

WARM_UP_TOKENS = 2

Generate = Callable[[list[list[int]], int, int], list[list[int]]]
"""generate(prompts, max_tokens, call number) -> the token ids of every completion, group after group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationReport:
    """What a worker prints: a number of generation calls in one process, loading and warming up excluded."""

    side: str
    call_seconds: list[float]
    """Wall time of each call."""
    call_cpu_seconds: list[float]
    seconds: float
    """Median of the calls."""
    tokens_per_second: float
    """Completion tokens of one call over `seconds`."""
    prompt_tokens: int
    """Of the prompts of one call, each counted once."""
    completion_tokens: int
    """Of one call."""
    prompt_digest: str
    threads: int
    peak_rss_bytes: int
    versions: dict[str, str]


def measure_calls(
    generate: Generate,
    *,
    side: str,
    workload: Workload,
    num_calls: int,
    prompt_ids: list[list[int]],
    new_weights: Callable[[int], None],
    threads: int,
    packages: Sequence[str],
) -> None:
    """Warm up, time `num_calls` calls, print the report as the last line.

    Args:
        generate: the call that is timed.
        side: its name.
        workload: what it is asked for.
        num_calls: calls timed, 1 or more.
        prompt_ids: the prompts.
        new_weights: called with the call's number before each call, outside the time: while training, the weights are
            others at each step, so that nothing kept from an earlier call may be used.
        threads: what the side computes with.
        packages: distributions whose version is reported.

    Raises:
        ValueError: if the number or the length of completions is not the workload's.
    """
    generate(prompt_ids[:1], WARM_UP_TOKENS, 0)
    expected = [workload.completion_tokens] * workload.num_completions
    wall: list[float] = []
    cpu: list[float] = []
    for call in range(1, num_calls + 1):
        new_weights(call)
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        completions = generate(prompt_ids, workload.completion_tokens, call)
        wall.append(time.perf_counter() - wall_start)
        cpu.append(time.process_time() - cpu_start)
        lengths = [len(completion) for completion in completions]
        if lengths != expected:
            raise ValueError(f"{side}: completion lengths are {lengths}, the workload asks for {expected}")
    report = GenerationReport(
        side=side,
        call_seconds=wall,
        call_cpu_seconds=cpu,
        seconds=median(wall),
        tokens_per_second=sum(expected) / median(wall),
        prompt_tokens=sum(len(ids) for ids in prompt_ids),
        completion_tokens=sum(expected),
        prompt_digest=digest(prompt_ids),
        threads=threads,
        peak_rss_bytes=peak_rss_bytes(),
        versions={name: version(name) for name in packages},
    )
    print(json.dumps(asdict(report)))
