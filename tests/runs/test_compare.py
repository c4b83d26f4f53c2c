"""Comparisons: a value by hand, verdicts in words, what is left out or warned of, and several against one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import DataError
from groupwise.runs import Interval, paired_difference
from groupwise.runs.comparison.as_json import comparison_json
from groupwise.runs.comparison.compare import Comparison, compare_evaluations, compare_many, holm
from groupwise.runs.evaluation_record import Answer, Attempts, EvaluationRecord

Counts = dict[str, tuple[int, int]]


def evaluation(label: str, sampled: Counts, greedy: Counts | None = None, **settings: object) -> EvaluationRecord:
    return EvaluationRecord(
        label=label,
        sampled={task: Attempts(solved=c, scored=n) for task, (c, n) in sampled.items()},
        greedy={task: Attempts(solved=c, scored=n) for task, (c, n) in (greedy or {}).items()},
        settings=settings,
    )


def several(label: str, num_prompts: int, solved: int, scored: int = 4) -> EvaluationRecord:
    return evaluation(label, {f"q{i:03d}": (solved, scored) for i in range(num_prompts)})


def test_a_comparison_by_hand() -> None:
    # rates 1/2, 0, 1 against 1, 1/2, 1/2: differences +1/2, +1/2, -1/2, mean 1/6
    found = compare_evaluations(
        evaluation("A", {"a": (1, 2), "b": (0, 2), "c": (2, 2), "only A": (1, 2)}),
        evaluation("B", {"a": (2, 2), "b": (1, 2), "c": (1, 2), "only B": (1, 2), "also B": (0, 2)}),
    )
    main = found.main
    assert main.kind == "sampled"
    assert found.greedy is None
    assert (main.first_rate, main.second_rate) == (pytest.approx(1 / 2), pytest.approx(2 / 3))
    assert main.difference.difference == pytest.approx(1 / 6)
    assert main.p_value == 1.0  # 3 equal sizes, two up: |sum| = 1/2 is reached by every sign pattern
    assert main.mcnemar is None
    assert main.test == "sign-flip test"
    assert [p.task_id for p in main.regressions] == ["c"]
    assert [p.task_id for p in main.improvements] == ["a", "b"]
    assert (found.only_first, found.only_second) == (("only A",), ("also B", "only B"))
    # pass@2 with two samples: 1 where any is right: 1, 0, 1 against 1, 1, 1
    (at_two,) = found.pass_at
    assert (at_two.k, at_two.first, at_two.second) == (2, pytest.approx(2 / 3), pytest.approx(1.0))
    assert found.verdict.startswith("not distinguishable: the difference is +16.7 points [")
    assert found.verdict.endswith("] on 3 prompts")


def test_the_interval_that_decides_is_that_of_the_bake_off() -> None:
    first, second = several("A", 40, 1), several("B", 40, 2)
    main = compare_evaluations(first, second).main
    rates = [{task: a.rate for task, a in side.sampled.items()} for side in (first, second)]
    assert main.difference == paired_difference(*rates)
    assert main.bootstrap == main.difference.interval  # every prompt moved alike: a bootstrap has no width of its own


def test_the_verdict_names_the_better_one_whichever_side_it_is() -> None:
    # d = 1/4 on 200 prompts, and the two made up: center 50 / 202, s^2 = (14.5 - 202 * 0.2475^2) / 201 = 0.01057,
    # half width 1.96 * 0.1028 / sqrt(202) = 0.0142
    worse, better = several("old", 200, 1), several("new", 200, 2)
    assert compare_evaluations(worse, better).verdict == "new is better by 25.0 points [23.3, 26.2] on 200 prompts"
    assert compare_evaluations(better, worse).verdict == "new is better by 25.0 points [23.3, 26.2] on 200 prompts"
    same = compare_evaluations(worse, worse)
    assert same.verdict == "not distinguishable: the difference is +0.0 points [-1.4, 1.4] on 200 prompts"
    assert same.second == "old (second)"


def test_greedy_answers_are_compared_apart_with_mcnemar() -> None:
    tasks = [f"q{i}" for i in range(20)]
    first = evaluation("A", dict.fromkeys(tasks, (1, 2)), {t: (int(i < 8), 1) for i, t in enumerate(tasks)})
    second = evaluation("B", dict.fromkeys(tasks, (1, 2)), {t: (int(1 <= i < 14), 1) for i, t in enumerate(tasks)})
    found = compare_evaluations(first, second)
    assert found.greedy is not None
    assert found.greedy.mcnemar is not None
    assert (found.greedy.mcnemar.improved, found.greedy.mcnemar.regressed) == (6, 1)
    assert found.greedy.p_value == 0.125
    assert found.sampled is not None
    assert found.sampled.difference.difference == 0
    assert found.verdict.endswith("(sampled)")
    only_greedy = compare_evaluations(evaluation("A", {}, {"a": (1, 1)}), evaluation("B", {}, {"a": (0, 1)}))
    assert only_greedy.main.kind == "greedy"


def test_regressions_are_listed_worst_first() -> None:
    first = evaluation("A", {"a": (4, 4), "b": (4, 4), "c": (4, 4), "d": (0, 4), "e": (2, 4)})
    second = evaluation("B", {"a": (3, 4), "b": (0, 4), "c": (3, 4), "d": (4, 4), "e": (2, 4)})
    main = compare_evaluations(first, second).main
    assert [(p.task_id, p.change) for p in main.regressions] == [("b", -1.0), ("a", -0.25), ("c", -0.25)]
    assert [p.task_id for p in main.improvements] == ["d"]


def test_what_makes_two_evaluations_different_is_said() -> None:
    first = evaluation("A", {"a": (1, 4)}, temperature=1.0, success="outcome", verifier_version="v1")
    second = evaluation("B", {"a": (1, 8)}, temperature=0.7, success="reward >= 0.5", verifier_version="v2")
    warnings = " ".join(compare_evaluations(first, second).warnings)
    assert "Different temperatures: 1.0 for A, 0.7 for B." in warnings
    assert "Different rules of success" in warnings
    assert "Different versions of the verifier" in warnings
    assert compare_evaluations(first, first).warnings == ()


def test_other_texts_under_the_same_id_and_unjudged_answers_are_said() -> None:
    sampled = {"a": Attempts(solved=1, scored=1), "b": Attempts(solved=1, scored=1)}
    texts = {"a": "one", "b": "same"}
    first = EvaluationRecord(label="A", sampled=sampled, greedy={}, settings={}, prompts=texts, num_unscored=3)
    second = replace(first, label="B", prompts=texts | {"a": "two"}, num_unscored=0)
    with pytest.raises(DataError, match="share 2 ids, and every one of them is another prompt"):
        compare_evaluations(first, replace(second, prompts={"a": "two", "b": "three"}))
    warnings = compare_evaluations(first, second).warnings
    assert "same id and another text" in warnings[0]
    assert "3 answers could not be judged" in warnings[1]


def test_lengths_are_compared_on_the_same_prompts() -> None:
    def answers(*lengths: tuple[int, bool]) -> Attempts:
        kept = tuple(Answer(text="x", outcome=right, num_tokens=n) for n, right in lengths)
        return Attempts(solved=sum(right for _, right in lengths), scored=len(lengths), answers=kept)

    first = EvaluationRecord(
        label="A", sampled={"a": answers((10, True), (20, False)), "b": answers((40, False))}, greedy={}, settings={}
    )
    second = EvaluationRecord(
        label="B", sampled={"a": answers((30, True), (40, True)), "b": answers((50, True))}, greedy={}, settings={}
    )
    everything, right = compare_evaluations(first, second).lengths
    # prompt means 15 and 40 against 35 and 50: 27.5 and 42.5
    assert (everything.first, everything.second, everything.num_prompts) == (27.5, 42.5, 2)
    # b has no right answer in A, so that only a counts: 10 against 35; one prompt says nothing: the longest answer
    assert (right.first, right.second, right.difference, right.num_prompts) == (10, 35, 25, 1)
    assert right.interval == Interval(-40.0, 40.0)


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(DataError, match=r"share no prompt.*2 and 1 prompts"):
        compare_evaluations(evaluation("A", {"a": (1, 2), "c": (1, 2)}), evaluation("B", {"b": (1, 2)}))
    with pytest.raises(DataError, match="share no prompt"):
        compare_evaluations(evaluation("A", {"a": (0, 0)}), evaluation("B", {"a": (1, 2)}))
    with pytest.raises(DataError, match="two or more"):
        compare_many([several("A", 3, 1)])


def test_holm_by_hand() -> None:
    # sorted 0.01, 0.03, 0.04: 3 * 0.01, then max(0.03, 2 * 0.03), then max(0.06, 0.04)
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_only_raises(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(1 >= c >= p for c, p in zip(corrected, p_values, strict=True))
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert [corrected[i] for i in order] == sorted(corrected)


def with_gains(label: str, gains: int, losses: int, num_prompts: int = 60) -> EvaluationRecord:
    """Beside the first, which solves every other prompt: so many more, and so many fewer."""
    solved = [i % 2 for i in range(num_prompts)]
    for i in range(gains):
        solved[2 * i] = 1
    for i in range(losses):
        solved[2 * i + 1] = 0
    return evaluation(label, {f"q{i}": (s, 1) for i, s in enumerate(solved)})


def test_several_comparisons_need_a_smaller_p_value() -> None:
    # 8 gains, 1 loss: p = 2 * (1 + 9) / 512 = 0.039, twice that is 0.078
    start, better, same = with_gains("A", 0, 0), with_gains("B", 8, 1), with_gains("C", 1, 1)
    alone = compare_many([start, better])[0]
    assert alone.main.is_distinguishable
    assert alone.main.p_adjusted is None
    with_another = compare_many([start, better, same])[0]
    assert with_another.main.p_value == pytest.approx(20 / 512)
    assert with_another.main.p_adjusted == pytest.approx(40 / 512)
    assert not with_another.main.is_distinguishable
    assert with_another.verdict.startswith("not distinguishable, corrected for several comparisons: ")


def test_equal_weights_are_called_equal_nearly_always() -> None:
    draw, wrong = random.Random(7), 0
    for _ in range(200):
        rates = {f"q{i}": draw.betavariate(0.6, 0.6) for i in range(25)}
        sides = [
            evaluation(name, {t: (sum(draw.random() < p for _ in range(4)), 4) for t, p in rates.items()})
            for name in "AB"
        ]
        wrong += _is_different(compare_evaluations(sides[0], sides[1]))
    assert wrong / 200 <= 0.05


def _is_different(found: Comparison) -> bool:
    assert ("not distinguishable" in found.verdict) == (not found.main.is_distinguishable)
    return found.main.is_distinguishable


def test_the_json_has_every_number() -> None:
    first = evaluation("A", {"a": (1, 2), "b": (2, 2)}, {"a": (0, 1)})
    second = evaluation("B", {"a": (2, 2), "b": (1, 2)}, {"a": (1, 1)})
    found = comparison_json(compare_evaluations(first, second))
    assert found["sampled"]["num_prompts"] == 2
    assert found["sampled"]["regressions"] == [{"task_id": "b", "first": [2, 2], "second": [1, 2], "change": -0.5}]
    assert found["greedy"]["mid_p"] == 0.5
    assert found["pass_at"][0]["k"] == 2
    assert found["verdict"] == compare_evaluations(first, second).verdict
