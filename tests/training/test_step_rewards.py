"""Process supervision: where the steps of a completion end, and what its tokens earn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.training.grpo_batch import step_advantages
from groupwise.training.grpo_options import GrpoOptions
from groupwise.training.step_rewards import process_advantages_of, step_ends, step_rewards
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Task, Verdict


def decode(token_ids: Sequence[int]) -> str:
    return "".join(map(chr, token_ids))


def rollout(text: str, rewards: Sequence[float] | None) -> Rollout:
    parts = {} if rewards is None else {f"step_{n}": r for n, r in enumerate(rewards, start=1)}
    return Rollout(
        completion=Completion(text=text, token_ids=tuple(map(ord, text)), sampler_logprobs=(-1.0,) * len(text)),
        verdict=Verdict(status=Status.SCORED, reward=0.5, outcome=False, reason="parts", parts=parts),
    )


def group(*rollouts: Rollout) -> Group:
    return Group(task=Task(id="q", prompt="?"), prompt=Prompt(task_id="q", token_ids=(1,)), rollouts=rollouts)


@pytest.mark.parametrize(
    ("text", "ends"), [("ab;cd;e", (2, 5, 6)), ("ab;", (2,)), ("ab", (1,)), (";;", (0, 1)), ("", ()), ("a;\n", (1, 2))]
)
def test_steps_end_with_their_text_and_with_the_last_token(text: str, ends: tuple[int, ...]) -> None:
    assert step_ends(tuple(map(ord, text)), step_end=";", decode=decode) == ends


@given(st.text(alphabet="ab;", max_size=20))
def test_the_search_finds_what_a_scan_finds(text: str) -> None:
    ends = [i for i, letter in enumerate(text) if letter == ";"]
    if text and not text.endswith(";"):
        ends.append(len(text) - 1)
    assert step_ends(tuple(map(ord, text)), step_end=";", decode=decode) == tuple(ends)


def test_a_step_end_of_several_tokens_ends_with_its_last() -> None:
    assert step_ends(tuple(map(ord, "a--b")), step_end="--", decode=decode) == (2, 3)


def test_step_parts_are_read_in_order_up_to_the_first_gap() -> None:
    verdict = Verdict(
        status=Status.SCORED, reward=1.0, outcome=True, reason="r", parts={"step_2": 0.5, "step_1": 1.0, "step_4": 1.0}
    )
    assert step_rewards(verdict) == (1.0, 0.5)


def test_the_example_of_the_paper_by_hand() -> None:
    """Rewards [1, 0, 1] and [0, 0]: mean 0.4, std 0.489898; a token earns what the steps still to end earn."""
    groups = [group(rollout("a;b;c", [1, 0, 1]), rollout("dd;e", [0, 0]))]
    options = GrpoOptions(step_end=";", eps=0.0)
    (first, second) = step_advantages(groups, options, decode=decode)[0]
    assert first == pytest.approx([1.632993] * 2 + [0.408248] * 2 + [1.224745], abs=1e-5)
    assert second == pytest.approx([-1.632993] * 3 + [-0.816497], abs=1e-5)


def test_what_has_no_steps_moves_nothing_and_missing_steps_end_with_the_last_token() -> None:
    plain = [rollout("a;b", [1, 0]), rollout("cc", [0])]
    unscored = replace(plain[0], verdict=Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason="x"))
    rows = process_advantages_of([group(*plain, rollout("a;b", None), unscored)], step_end=";", decode=decode)[0]
    assert rows[:2] == process_advantages_of([group(*plain)], step_end=";", decode=decode)[0]
    assert rows[2] == rows[3] == (0.0, 0.0, 0.0)
    late = process_advantages_of([group(rollout("ab", [1, 0]), rollout("cd", [0, 0]))], step_end=";", decode=decode)[0]
    assert late[0][0] == late[0][1] == pytest.approx(-late[1][0])  # (1 + 0) / 2 against 0
