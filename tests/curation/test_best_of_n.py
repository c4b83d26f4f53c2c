"""Which right completions become demonstrations."""

from __future__ import annotations

from collections import Counter

from groupwise.curation.best_of_n import NoDemonstration, choose_solved
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict

Row = tuple[str, bool | None, int, Stop]
"""Text, solved or not or unscored, tokens, how it ended."""


def group(name: str, *rows: Row) -> Group:
    rollouts = []
    for text, solved, num_tokens, stop in rows:
        completion = Completion(
            text=text, token_ids=(1,) * num_tokens, sampler_logprobs=(-0.1,) * num_tokens, stop=stop
        )
        reward = None if solved is None else float(solved)
        status = Status.UNSCORED if solved is None else Status.SCORED
        verdict = Verdict(status=status, reward=reward, outcome=solved, reason="")
        rollouts.append(Rollout(completion=completion, verdict=verdict))
    return Group(task=Task(id=name, prompt="p"), prompt=Prompt(task_id=name, token_ids=(5,)), rollouts=tuple(rollouts))


def texts(found: tuple[Rollout, ...]) -> list[str]:
    return [rollout.completion.text for rollout in found]


def test_only_right_completions_that_ended_are_taken_and_each_text_once() -> None:
    one = group(
        "a",
        ("right", True, 3, Stop.END),
        ("wrong", False, 3, Stop.END),
        ("unscored", None, 3, Stop.END),
        ("cut", True, 3, Stop.LENGTH),
        ("aborted", True, 3, Stop.ABORTED),
        (" right\n", True, 4, Stop.END),
        ("  ", True, 1, Stop.END),
        ("also", True, 2, Stop.END),
    )
    for seed in range(5):
        choice = choose_solved([one], max_per_prompt=8, prefer="random", seed=seed)
        assert texts(choice.rollouts[0]) == ["right", "also"]
        assert (choice.num_chosen, choice.counts(), choice.reasons) == (2, {}, (None,))


def test_prompts_that_give_none_are_counted_by_their_reason() -> None:
    groups = [
        group("a", ("x", False, 1, Stop.END), ("y", None, 1, Stop.END)),
        group("b", ("x", None, 1, Stop.END)),
        group("c", ("x", True, 1, Stop.LENGTH), ("y", False, 1, Stop.END)),
        group("d", ("x", False, 1, Stop.END)),
        group("e", ("x", True, 1, Stop.END)),
    ]
    choice = choose_solved(groups, max_per_prompt=1, prefer="random", seed=0)
    assert choice.reasons == (
        NoDemonstration.NEVER_SOLVED,
        NoDemonstration.UNSCORED,
        NoDemonstration.CUT,
        NoDemonstration.NEVER_SOLVED,
        None,
    )
    assert choice.counts() == {"never solved": 2, "no verdict": 1, "right ones all cut or empty": 1}
    assert choice.num_chosen == 1


def test_random_takes_each_text_as_often_whatever_its_share_of_the_samples() -> None:
    """9 of 10 samples are the text "often"; of 400 seeds it is taken in 200 +- 10 (1 sd): 5 sd is allowed."""
    one = group("a", *[("often", True, 3, Stop.END)] * 9, ("seldom", True, 3, Stop.END))
    taken = Counter(
        texts(choose_solved([one], max_per_prompt=1, prefer="random", seed=seed).rollouts[0])[0] for seed in range(400)
    )
    assert 150 <= taken["seldom"] <= 250
    again = [choose_solved([one], max_per_prompt=1, prefer="random", seed=3) for _ in range(2)]
    assert again[0] == again[1]


def test_shortest_takes_the_fewest_tokens() -> None:
    one = group("a", ("longest", True, 9, Stop.END), ("short", True, 2, Stop.END), ("long", True, 5, Stop.END))
    for seed in range(5):
        choice = choose_solved([one], max_per_prompt=2, prefer="shortest", seed=seed)
        assert texts(choice.rollouts[0]) == ["short", "long"]


def test_other_prompts_do_not_change_the_choice_of_one() -> None:
    rows = [(name, True, 2, Stop.END) for name in "abcdef"]
    alone = choose_solved([group("t", *rows)], max_per_prompt=2, prefer="random", seed=4)
    beside = choose_solved([group("s", *rows), group("t", *rows)], max_per_prompt=2, prefer="random", seed=4)
    assert alone.rollouts[0] == beside.rollouts[1]
    assert beside.rollouts[0] != beside.rollouts[1]  # and two prompts do not draw alike
