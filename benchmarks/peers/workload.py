"""What the workers of every benchmark are given and how a step is reported: sizes, prompts, reward, stopwatch.

It imports the standard library only, because it runs in environments that share nothing else. All workers take their
prompts, their reward and their output line from here, so that a difference between the sides is a difference between
the libraries.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

Message = dict[str, str]

WORD_TEXT = """
    account address amount balance branch budget client company contract country credit currency customer date
    debit delivery department discount employee exchange factory figure grade group income invoice item label
    language level list market member month name number office order owner page payment period person plan price
    product project purchase quality quantity record region report result return review salary sale score
    service share size state station status stock store student supply system table team term total trade value
    week year
"""
WORDS = WORD_TEXT.split()
"""Plain nouns, one token each with a leading space in common vocabularies, so that the length can be met exactly."""

LEARNING_RATE = 1e-6
MAX_GRAD_NORM = 1.0
TEMPERATURE = 1.0
"""Settings that do not change the work of a step, equal on both sides all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The size of a step.

    Example:
        Workload(num_prompts=8, group_size=8, prompt_tokens=660, shared_tokens=600, completion_tokens=48, seed=17)
    """

    num_prompts: int
    group_size: int
    prompt_tokens: int
    """Of each prompt, chat template included."""
    completion_tokens: int
    """Of each completion, exactly: the end token is forbidden before."""
    seed: int
    shared_tokens: int = 0
    """What all prompts begin with, a system turn of that many tokens included in `prompt_tokens`; 0: the template's own
    system turn and nothing else."""

    @property
    def num_completions(self) -> int:
        """Completions of the step."""
        return self.num_prompts * self.group_size


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What a worker prints: one measured optimizer step, loading excluded."""

    side: str
    seconds: float
    """Wall time from before generation to after the weight update."""
    cpu_seconds: float
    """User and system time of the process over the same interval. A busy machine distorts it less than wall time."""
    phases: dict[str, float]
    """Wall seconds of "rollout" (generate and score) and "update" (advantages, forward, backward, AdamW)."""
    peak_rss_bytes: int
    """Largest resident memory of the process, loading included."""
    prompt_tokens: int
    """Of all rollouts together; a prompt counts once for each of its completions."""
    completion_tokens: int
    prompt_digest: str
    """Equal on two sides exactly when both trained on the same prompt token ids."""
    threads: int
    versions: dict[str, str]


def parse_worker_arguments(
    description: str | None, options: Mapping[str, tuple[int, str]] | None = None
) -> tuple[Path, Workload, argparse.Namespace]:
    """Read the arguments that the driver passes to every worker.

    Args:
        description: what --help shows.
        options: whole numbers that only this worker understands, as name -> (default, help).

    Returns:
        The model folder, the workload, and the raw arguments.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", type=Path, required=True, help="folder with float32 weights and tokenizer")
    parser.add_argument("--num-prompts", type=int, default=2)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=343)
    parser.add_argument("--shared-tokens", type=int, default=0)
    parser.add_argument("--completion-tokens", type=int, default=32)
    parser.add_argument("--seed", type=int, default=17)
    for name, (default, text) in (options or {}).items():
        parser.add_argument(f"--{name}", type=int, default=default, help=text)
    args = parser.parse_args()
    workload = Workload(
        num_prompts=args.num_prompts,
        group_size=args.group_size,
        prompt_tokens=args.prompt_tokens,
        shared_tokens=args.shared_tokens,
        completion_tokens=args.completion_tokens,
        seed=args.seed,
    )
    return args.model, workload, args


def render(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Token ids of a prompt: chat template and generation prompt included."""
    ids = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=True, return_dict=False)
    return [int(token_id) for token_id in ids]


def build_prompts(tokenizer: Any, workload: Workload) -> list[list[Message]]:
    """Chat prompts of exactly `workload.prompt_tokens` tokens, the same for the same seed and tokenizer.

    The texts differ from the first word of the user turn on. Before it stands the system turn: the template's own, or
    with `shared_tokens` one of random words, so long that the prompts have exactly that many tokens in common.

    Raises:
        ValueError: if no choice of words meets a length, because it is shorter than the chat template itself.
    """
    rng = random.Random(workload.seed)
    openings = [f"{WORDS[number % len(WORDS)]}:" for number in range(workload.num_prompts)]
    system: list[Message] = []
    if workload.shared_tokens:
        # two turns that differ at once show where the common part ends, also where there is one prompt only
        probes = (WORDS[0], WORDS[-1])

        def common(text: str) -> int:
            turn = {"role": "system", "content": text}
            return common_prefix_length(*(render(tokenizer, [turn, _user_turn(probe)]) for probe in probes))

        text = _fill("schema:", workload.shared_tokens, common, rng, "--shared-tokens")
        system = [{"role": "system", "content": text}]
    prompts = []
    for opening in openings:

        def length(text: str) -> int:
            return len(render(tokenizer, [*system, _user_turn(text)]))

        text = _fill(opening, workload.prompt_tokens, length, rng, "--prompt-tokens")
        prompts.append([*system, _user_turn(text)])
    return prompts


def _user_turn(text: str) -> Message:
    return {"role": "user", "content": text}


def _fill(text: str, wanted: int, length: Callable[[str], int], rng: random.Random, option: str) -> str:
    """The text and random words after it, so many that length(text) is `wanted`."""
    missing = wanted - length(text)
    attempts = 0
    while missing > 0 and attempts < 20 * wanted:
        attempts += 1
        longer = f"{text} {rng.choice(WORDS)}"
        left = wanted - length(longer)
        if left >= 0:
            text, missing = longer, left
    if missing != 0:
        raise ValueError(
            f"build_prompts: cannot make {wanted} tokens, {missing} are left over; choose a larger {option}"
        )
    return text


def common_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading token ids two prompts have in common."""
    same = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        same += 1
    return same


def digest(token_ids: Sequence[Sequence[int]]) -> str:
    """Short fingerprint of prompt token ids, in order."""
    return hashlib.sha256(json.dumps([list(ids) for ids in token_ids]).encode()).hexdigest()[:16]


def token_reward(completion_ids: Sequence[int]) -> float:
    """The reward: mean of the last three digits of the token ids, as a share of 1000.

    It costs nothing, and in a group of two short completions it differs all the same, so that no group is dead.
    """
    return sum(token_id % 1000 for token_id in completion_ids) / (1000 * max(len(completion_ids), 1))


@dataclass(slots=True)
class Stopwatch:
    """Wall and CPU time of one step: start(), mark_rollout_done(), stop()."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    rollout_seconds: float = 0.0
    _wall_start: float = 0.0
    _cpu_start: float = 0.0

    def start(self) -> None:
        """Begin: the model is loaded, nothing has been generated."""
        self._wall_start, self._cpu_start = time.perf_counter(), time.process_time()

    def mark_rollout_done(self) -> None:
        """Every completion is generated and scored."""
        self.rollout_seconds = time.perf_counter() - self._wall_start

    def stop(self) -> None:
        """End: the weights are updated."""
        self.seconds = time.perf_counter() - self._wall_start
        self.cpu_seconds = time.process_time() - self._cpu_start

    @property
    def phases(self) -> dict[str, float]:
        """The two parts of the step, in wall seconds."""
        return {"rollout": self.rollout_seconds, "update": self.seconds - self.rollout_seconds}


def peak_rss_bytes() -> int:
    """Largest resident set of this process so far."""
    kilobytes_or_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes_or_bytes if sys.platform == "darwin" else kilobytes_or_bytes * 1024


def print_report(
    *,
    side: str,
    workload: Workload,
    stopwatch: Stopwatch,
    prompt_ids: Sequence[Sequence[int]],
    prompt_tokens: int,
    completion_lengths: Sequence[int],
    threads: int,
    packages: Sequence[str],
) -> None:
    """Check that the step did the agreed work, then print its `StepReport` as the last line.

    Raises:
        ValueError: if the number or the length of prompts or completions is not the workload's.
    """
    expected = [workload.completion_tokens] * workload.num_completions
    if list(completion_lengths) != expected:
        raise ValueError(f"{side}: completion lengths are {list(completion_lengths)}, the workload asks for {expected}")
    expected_prompt_tokens = workload.num_completions * workload.prompt_tokens
    if prompt_tokens != expected_prompt_tokens:
        raise ValueError(f"{side}: trained on {prompt_tokens} prompt tokens, expected {expected_prompt_tokens}")
    report = StepReport(
        side=side,
        seconds=stopwatch.seconds,
        cpu_seconds=stopwatch.cpu_seconds,
        phases=stopwatch.phases,
        peak_rss_bytes=peak_rss_bytes(),
        prompt_tokens=prompt_tokens,
        completion_tokens=sum(completion_lengths),
        prompt_digest=digest(prompt_ids),
        threads=threads,
        versions={name: version(name) for name in packages},
    )
    print(json.dumps(asdict(report)))
