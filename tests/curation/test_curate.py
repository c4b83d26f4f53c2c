from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from groupwise.curation import (
    JEFFREYS,
    BetaPrior,
    CuratedRow,
    CurateOptions,
    Curation,
    Drawn,
    Exclusion,
    Reason,
    RetireRule,
    curate,
    decide,
    next_visit,
)
from groupwise.curation.decision import task_key
from groupwise.errors import DataError
from groupwise.types import Task

CAREFUL = RetireRule(confidence=0.97)
BAND = RetireRule(hopeless_below=0.2, solved_above=0.8, confidence=0.95)


def tasks(count: int) -> list[Task]:
    return [Task(id=f"q{i}", prompt=f"question {i}", columns={"gold": i}) for i in range(count)]


def row(solved: int, scored: int, **changes: object) -> CuratedRow:
    return CuratedRow(**{"id": "q", "key": "k", "solved": solved, "scored": scored, "num_samples": scored, **changes})


def coin(rates: Sequence[float], seed: int = 0) -> Callable[..., list[Drawn]]:
    """A model whose completions depend on the stream and on nothing else, as an engine's do."""

    def sample(places: Sequence[int], num_samples: int, stream: int) -> list[Drawn]:
        drawn = []
        for order, place in enumerate(places):
            rng = random.Random(f"{seed} {stream} {order}")
            solved = sum(rng.random() < rates[place] for _ in range(num_samples))
            drawn.append(Drawn(solved=solved, scored=num_samples, num_samples=num_samples, completion_tokens=place))
        return drawn

    return sample


def reasons(curation: Curation) -> list[str]:
    return [str(decision.reason) for decision in curation.decisions()]


def test_sixteen_samples_and_a_band_keep_the_third_and_say_who_is_not_sure():
    options = CurateOptions(samples_per_prompt=16, rule=BAND)
    decisions = [decide(row(solved, 16), JEFFREYS, options) for solved in (0, 1, 8, 15, 16)]
    assert [d.reason for d in decisions] == [
        Reason.NEVER_SOLVED,
        Reason.UNDECIDED,
        Reason.KEPT,
        Reason.UNDECIDED,
        Reason.ALWAYS_SOLVED,
    ]
    low, high = JEFFREYS.posterior(solved=1, scored=16).interval()
    assert (low, high) == pytest.approx((0.01, 0.26), abs=0.01)  # Wilson's interval is [0.01, 0.28]
    assert decisions[1].detail == (
        f"solved 1 of 16: not sure that it is too hard, the rate may lie anywhere in [{low:.2f}, {high:.2f}]"
    )
    assert "too easy" in decisions[3].detail


def test_a_rate_that_is_surely_outside_the_band_is_too_hard_or_too_easy():
    options = CurateOptions(rule=BAND)
    assert decide(row(2, 64), JEFFREYS, options).reason is Reason.TOO_HARD
    assert decide(row(62, 64), JEFFREYS, options).reason is Reason.TOO_EASY


def test_the_prior_decides_how_much_four_failures_say():
    options = CurateOptions()
    assert decide(row(0, 4), JEFFREYS, options).reason is Reason.UNDECIDED
    assert decide(row(0, 4), BetaPrior(alpha=0.05, beta=1.0), options).reason is Reason.NEVER_SOLVED


def test_what_was_not_judged_or_not_sampled_is_undecided():
    options = CurateOptions()
    assert decide(row(0, 0), JEFFREYS, options).detail.startswith("not sampled")
    assert decide(row(0, 0, num_samples=4), JEFFREYS, options).detail == "no completion could be judged"


def test_samples_grow_where_the_answer_is_open_and_nowhere_else():
    calls: list[tuple[tuple[int, ...], int]] = []
    shares = [0.5, 0.0, 1.0, 0.75]

    def sample(places, num_samples, stream):
        calls.append((tuple(places), num_samples))
        return [Drawn(solved=int(shares[p] * num_samples), scored=num_samples, num_samples=num_samples) for p in places]

    curation = curate(tasks(4), sample, options=CurateOptions(max_samples_per_prompt=32, rule=CAREFUL))
    assert calls[0] == ((0, 1, 2, 3), 4)
    assert all(set(places) <= {1, 2} for places, _ in calls[1:])
    assert [num for _, num in calls[1:]] == [4, 8, 16]  # as many as there are already
    assert [r.num_samples for r in curation.rows] == [4, 32, 32, 4]
    assert reasons(curation) == ["kept", "undecided", "undecided", "kept"]
    assert curation.kept() == (0, 3)


def test_the_budget_is_kept_and_goes_to_those_most_likely_to_be_kept():
    for budget in (3, 8, 50, 60):
        curation = curate(tasks(20), coin([0.0] * 20), options=CurateOptions(budget=budget))
        assert curation.num_samples <= budget
        assert curation.num_samples > budget - 4
    known = [
        CuratedRow(id=task.id, key=task_key(task), solved=solved, scored=4, num_samples=4)
        for task, solved in zip(tasks(8), [0, 4, 0, 1, 2, 1, 0, 0], strict=True)
    ]
    rows = curate(tasks(8), coin([0.0] * 8), options=CurateOptions(budget=32), known=known)
    visit = next_visit(Curation(rows=rows.rows, options=CurateOptions(budget=40)))
    assert visit is not None
    assert visit.num_left == 8
    assert visit.places[0] in (0, 2, 6, 7) or visit.places[0] == 1
    chances = [rows.prior.posterior(solved=s, scored=4) for s in (0, 4)]
    likely = [rate.probability_below(0.95) - rate.probability_below(0.05) for rate in chances]
    assert (visit.places[0] == 1) == (likely[1] > likely[0])


def test_a_budget_that_is_too_small_for_all_takes_no_run_of_the_file():
    curation = curate(tasks(40), coin([0.5] * 40), options=CurateOptions(budget=40))
    sampled = [place for place, row in enumerate(curation.rows) if row.num_samples]
    assert len(sampled) == 10
    assert max(sampled) > 20 > min(sampled)
    assert sampled != list(range(sampled[0], sampled[0] + 10))


@pytest.mark.parametrize("stop_after", [1, 2, 5, 9])
def test_an_interrupted_measurement_goes_on_as_if_nothing_had_happened(stop_after):
    rates = [random.Random(i).choice([0.0, 0.02, 0.3, 0.97, 1.0]) for i in range(30)]
    options = CurateOptions(max_samples_per_prompt=32, budget=600, completions_at_once=24, rule=CAREFUL)
    whole = curate(tasks(30), coin(rates), options=options)
    saved: list[Curation] = []
    calls = 0

    def interrupted(*arguments):
        nonlocal calls
        calls += 1
        if calls > stop_after:
            raise KeyboardInterrupt
        return coin(rates)(*arguments)

    with pytest.raises(KeyboardInterrupt):
        curate(tasks(30), interrupted, options=options, save=saved.append)
    assert len(saved) == stop_after + 1
    resumed = curate(tasks(30), coin(rates), options=options, known=saved[-1].rows)
    assert resumed == whole
    assert whole.num_samples > 30 * 4


def test_more_samples_refine_the_same_counts():
    first = curate(tasks(6), coin([0.5] * 6), options=CurateOptions(samples_per_prompt=4))
    second = curate(tasks(6), coin([0.5] * 6), options=CurateOptions(samples_per_prompt=16), known=first.rows)
    assert all(r.num_samples >= 16 for r in second.rows)
    assert all(new.solved >= old.solved for new, old in zip(second.rows, first.rows, strict=True))
    again = curate(tasks(6), pytest.fail, options=CurateOptions(samples_per_prompt=16), known=second.rows)
    assert again == second


def test_no_prompt_gets_the_same_stream_twice():
    streams: list[tuple[int, int]] = []

    def sample(places, num_samples, stream):
        streams.extend((place, stream) for place in places)
        return coin([0.0] * 9)(places, num_samples, stream)

    curate(tasks(9), sample, options=CurateOptions(max_samples_per_prompt=64, completions_at_once=8, rule=CAREFUL))
    assert len(set(streams)) == len(streams) > 9


def test_counts_follow_the_content_of_a_task_and_not_its_id():
    first = curate(tasks(5), coin([0.5] * 5))
    moved = [Task(id=f"new-{i}", prompt=t.prompt, columns=t.columns) for i, t in enumerate(tasks(5)[2:])]
    changed = Task(id="q0", prompt="question 0", columns={"gold": "another"})
    second = curate([*moved, changed], coin([0.5] * 4), known=first.rows, options=CurateOptions(budget=12))
    assert [r.solved for r in second.rows] == [*(r.solved for r in first.rows[2:]), 0]
    assert second.rows[3].num_samples == 0


def test_equal_tasks_have_their_counts_once():
    twins = [*tasks(1), Task(id="twin", prompt="question 0", columns={"gold": 0})]
    out = {"q0": Exclusion(reason=Reason.DUPLICATE, detail="of twin")}
    first = curate(tasks(1), coin([0.5]))
    second = curate(twins, pytest.fail, known=first.rows, excluded=out)
    assert [r.num_samples for r in second.rows] == [0, 4]
    assert reasons(second) == ["duplicate", "kept"]


def test_excluded_prompts_are_never_sampled_and_keep_their_reason():
    out = {"q1": Exclusion(reason=Reason.BROKEN_GOLD, detail="gold_empty: no rows")}
    curation = curate(tasks(2), coin([0.5, 0.5]), excluded=out, notes={"q0": ["weak gold"]}, prompt_tokens=[7, 9])
    assert reasons(curation) == ["kept", "broken_gold"]
    assert curation.decisions()[1].detail == "gold_empty: no rows"
    assert curation.rows[1].num_samples == 0
    assert curation.rows[0].notes == ("weak gold",)
    assert [r.prompt_tokens for r in curation.rows] == [7, 9]


def test_lengths_are_summed_and_the_longest_is_that_of_the_first_visit():
    first = Drawn(
        solved=1, scored=3, num_samples=4, completion_tokens=40, scored_tokens=30, solved_tokens=5, longest_tokens=15
    )
    later = Drawn(
        solved=0, scored=8, num_samples=8, completion_tokens=90, scored_tokens=90, solved_tokens=0, longest_tokens=33
    )
    both = row(0, 0).with_drawn(first).with_drawn(later)
    assert (both.solved, both.scored, both.num_samples) == (1, 11, 12)
    assert (both.completion_tokens, both.scored_tokens, both.solved_tokens, both.longest_tokens) == (130, 120, 5, 15)


def test_two_tasks_with_one_id_are_refused():
    with pytest.raises(DataError, match="'q0' occurs more than once"):
        curate([*tasks(1), *tasks(1)], pytest.fail)


@pytest.mark.parametrize(
    "changes", [{"samples_per_prompt": 0}, {"samples_per_prompt": 17}, {"budget": 0}, {"max_samples_per_prompt": 3}]
)
def test_limits_that_contradict_each_other_are_refused(changes):
    with pytest.raises(ValueError, match="CurateOptions"):
        CurateOptions(**changes)
