"""What every side of a benchmark is given: prompts of exact lengths that share exactly what they should."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import generation
import pytest
import workload
from workload import Workload, build_prompts, common_prefix_length, render


class WordTokenizer:
    """One token a word; a turn is a role token, its words and an end token; the template opens with a system turn."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> list[int]:
        if messages[0]["role"] != "system":
            messages = [{"role": "system", "content": "You help."}, *messages]
        words = [w for m in messages for w in (f"<{m['role']}>", *m["content"].split(), "<end>")] + ["<assistant>"]
        return [self._ids.setdefault(word, len(self._ids)) for word in words]


def sizes(**changed: int) -> Workload:
    given = {"num_prompts": 8, "group_size": 2, "prompt_tokens": 66, "shared_tokens": 60, "completion_tokens": 4}
    return Workload(**{**given, "seed": 17, **changed})


def ids_of(wanted: Workload) -> list[list[int]]:
    tokenizer = WordTokenizer()
    return [render(tokenizer, messages) for messages in build_prompts(tokenizer, wanted)]


def test_prompts_share_a_start_of_the_agreed_length_and_no_more() -> None:
    prompts = ids_of(sizes())
    assert {len(ids) for ids in prompts} == {66}
    assert {common_prefix_length(a, b) for a, b in combinations(prompts, 2)} == {60}


def test_one_prompt_gets_the_shared_start_too() -> None:
    assert ids_of(sizes(num_prompts=1))[0][:60] == ids_of(sizes())[0][:60]


def test_without_a_shared_start_only_the_templates_own_turn_is_shared() -> None:
    prompts = ids_of(sizes(shared_tokens=0))
    assert {len(ids) for ids in prompts} == {66}
    assert {common_prefix_length(a, b) for a, b in combinations(prompts, 2)} == {5}  # <system> You help. <end> <user>


def test_the_same_seed_gives_the_same_prompts_and_another_seed_others() -> None:
    assert ids_of(sizes()) == ids_of(sizes())
    assert ids_of(sizes()) != ids_of(sizes(seed=18))


@pytest.mark.parametrize(
    ("changed", "option"), [({"prompt_tokens": 3}, "--prompt-tokens"), ({"shared_tokens": 2}, "--shared-tokens")]
)
def test_a_length_below_the_template_is_refused(changed: dict[str, int], option: str) -> None:
    with pytest.raises(ValueError, match=option):
        ids_of(sizes(**{"shared_tokens": 0, **changed}))


def run_calls(lengths: list[int], **options: Any) -> list[tuple[int, int, int]]:
    """(prompts, max_tokens, call) of each call that was made; completions have the given lengths."""
    seen = []

    def generate(prompts: list[list[int]], max_tokens: int, call: int) -> list[list[int]]:
        seen.append((len(prompts), max_tokens, call))
        return [[1] * length for length in lengths]

    generation.measure_calls(
        generate,
        side="us",
        workload=sizes(num_prompts=2, group_size=1),
        num_calls=3,
        prompt_ids=[[1, 2], [1, 3]],
        threads=1,
        packages=("pytest",),
        **options,
    )
    return seen


def test_a_generation_worker_warms_up_then_times_each_call_after_new_weights(
    capsys: pytest.CaptureFixture[str],
) -> None:
    announced: list[int] = []
    assert run_calls([4, 4], new_weights=announced.append) == [(1, 2, 0), (2, 4, 1), (2, 4, 2), (2, 4, 3)]
    assert announced == [1, 2, 3]
    report = json.loads(capsys.readouterr().out)
    assert len(report["call_seconds"]) == 3
    assert report["completion_tokens"] == 8
    assert report["prompt_tokens"] == 4
    assert report["tokens_per_second"] == pytest.approx(8 / report["seconds"])


def test_a_generation_worker_refuses_other_lengths() -> None:
    with pytest.raises(ValueError, match=r"completion lengths are \[4, 3\]"):
        run_calls([4, 3], new_weights=lambda call: None)


def test_a_step_of_other_lengths_is_refused() -> None:
    with pytest.raises(ValueError, match="completion lengths"):
        workload.print_report(
            side="us",
            workload=sizes(num_prompts=1),
            stopwatch=workload.Stopwatch(),
            prompt_ids=[[1]],
            prompt_tokens=132,
            completion_lengths=[4, 5],
            threads=1,
            packages=(),
        )
