"""What is said where nothing can be learned: the numbers, the reasons, and what to change."""

from __future__ import annotations

from dataclasses import replace

from training_cases import group

from groupwise.training.no_signal import EmptyCollections, diagnosis, nothing_left
from groupwise.types import Group, Rollout, Status, Stop, Verdict


def with_reasons(number: int, *reasons: str, status: Status = Status.SCORED, stop: Stop = Stop.END) -> Group:
    """A group of wrong answers with these reasons."""
    base = group(number, [0] * len(reasons), [2] * len(reasons))
    verdicts = [Verdict(status=status, reward=0.0, outcome=False, reason=reason) for reason in reasons]
    rollouts = (
        Rollout(completion=replace(r.completion, stop=stop), verdict=v)
        for r, v in zip(base.rollouts, verdicts, strict=True)
    )
    return replace(base, rollouts=tuple(rollouts))


def solved(number: int, size: int = 4) -> Group:
    return group(number, [1] * size, [2] * size)


def test_collections_are_counted_by_what_their_groups_collapsed_to() -> None:
    first = [group(0, [0, 0, None], [2, 2, 2]), solved(1, 3), group(2, [None, None, None], [2, 2, 2])]
    second = [with_reasons(3, "wrong_rows 2", "no_query: none", "wrong_rows 1", stop=Stop.LENGTH)]
    empty = EmptyCollections().plus(first).plus(second)
    assert (empty.num_collections, empty.num_groups) == (2, 4)
    assert (empty.num_none_solved, empty.num_all_solved, empty.num_unscored, empty.num_mixed) == (2, 1, 1, 0)
    assert (empty.num_rollouts, empty.num_solved, empty.num_cut, empty.num_invalid) == (12, 3, 3, 0)
    assert empty.group_size == 3
    assert empty.reasons == {"same_rows": 2, "snapshot_missing": 4, "wrong_rows": 2, "no_query": 1}
    assert EmptyCollections().plus([]).num_groups == 0


def test_a_task_that_is_too_hard_is_named_with_its_numbers() -> None:
    groups = [with_reasons(n, "wrong_rows a", "wrong_rows b", "wrong_rows c", "sql_error: x") for n in range(10)]
    text = diagnosis(EmptyCollections().plus(groups[:5]).plus([*groups[5:], solved(11)]))
    assert text.startswith(
        "2 collections in a row had no group with both right and wrong answers: of 11 groups, 10 had no right answer "
        "and 1 only right ones. The verifier's reasons: wrong_rows 75%, sql_error 25%.\n"
    )
    assert "too hard for this model: try easier ones, an sft stage first, or a larger rollout.group_size than 4" in text
    assert "too easy" not in text
    assert "none of 40 completions was right" in diagnosis(EmptyCollections().plus(groups))


def test_a_task_that_is_too_easy_points_at_the_verifier_too() -> None:
    text = diagnosis(EmptyCollections().plus([solved(n) for n in range(8)]))
    assert text.startswith("1 collection had no group")
    assert "of 8 groups, 0 had no right answer and 8 only right ones.\n" in text
    assert "too easy for this model, or the verifier pays anything: try `groupwise audit`" in text
    assert "The verifier's reasons" not in text


def test_both_at_once_and_the_other_causes_are_told_apart() -> None:
    half = EmptyCollections().plus([solved(0), with_reasons(1, "wrong", "wrong")])
    assert "hardly any lies between" in diagnosis(half)
    cut = EmptyCollections().plus([with_reasons(1, "wrong", "wrong", stop=Stop.LENGTH)])
    assert "100% of the completions were cut: raise rollout.max_completion_tokens" in diagnosis(cut)
    broken = EmptyCollections().plus([with_reasons(1, "no_json", "no_json", status=Status.INVALID)])
    assert "100% of the completions broke a rule" in diagnosis(broken)
    unscored = EmptyCollections().plus([group(0, [None, None], [2, 2])])
    assert "of 1 groups, 0 had no right answer and 0 only right ones, and 1 could not be judged" in diagnosis(unscored)
    assert "Mend the verifier" in diagnosis(unscored)
    mixed = diagnosis(EmptyCollections().plus([group(0, [1, 0], [2, 2])]))
    assert "1 had right and wrong answers of the same reward" in mixed
    assert "pay right answers more" in mixed


def test_a_stage_that_broke_the_model_is_not_said_to_have_tasks_that_are_too_hard() -> None:
    empty = EmptyCollections().plus([group(0, [0, 0], [2, 2]) for _ in range(8)])
    broke = diagnosis(empty, began_at=0.69)
    assert "began with a pass rate of 69%, and these collections have 0%" in broke
    assert "too hard" not in broke
    assert "too hard" in diagnosis(empty, began_at=0.05)
    assert "too hard" in diagnosis(empty)


def test_nothing_left_counts_who_was_set_aside() -> None:
    metrics = {"set_aside_always_solved": 3.0, "set_aside_never_solved": 12.0, "pass_rate": 0.2}
    text = nothing_left(metrics, EmptyCollections())
    expected = "No training prompt is left to sample: 3 as always solved and 12 as never solved were set aside."
    assert text == expected
    with_last = nothing_left(metrics, EmptyCollections().plus([solved(0)]))
    assert with_last.startswith(f"{expected}\n  1 collection had no group")
    assert nothing_left({"set_aside_always_solved": 0.0}, EmptyCollections()) == "No training prompt is left to sample."
