from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.curation import PromptLedger, PromptRow, PromptState
from groupwise.errors import DataError

IDS = [f"q{i}" for i in range(7)]


def visit(ledger: PromptLedger, step: int, num_prompts: int = 3) -> list[str]:
    """One step: odd tasks are never solved, q0 always, the others half of the time."""
    batch = ledger.next_batch(num_prompts)
    for task_id in batch:
        number = int(task_id[1:])
        ledger.record(task_id, solved=0 if number % 2 else 4 if number == 0 else 2, scored=4, step=step)
    return batch


def test_a_row_by_hand() -> None:
    ledger = PromptLedger(["a"], seed=0)
    ledger.record("a", solved=1, scored=8, step=1)
    ledger.record("a", solved=8, scored=8, step=2)
    assert ledger.rows["a"] == PromptRow(solved=9, scored=16, visits=2, visits_at_one=1)
    ledger.record("a", solved=0, scored=4, step=3)
    assert ledger.rows["a"] == PromptRow(solved=9, scored=20, visits=3, visits_at_zero=1)


def test_fewer_than_two_scored_rollouts_are_no_visit() -> None:
    ledger = PromptLedger(["a"], seed=0, retire_after_visits=1)
    ledger.record("a", solved=0, scored=0, step=1)
    ledger.record("a", solved=1, scored=1, step=2)
    assert ledger.rows["a"] == PromptRow(solved=1, scored=1)


def test_dead_visits_in_a_row_set_a_prompt_aside_and_say_why() -> None:
    ledger = PromptLedger(["easy", "hard", "mixed"], seed=0, retire_after_visits=2)
    for step in (1, 2):
        ledger.record("easy", solved=4, scored=4, step=step)
        ledger.record("hard", solved=0, scored=4, step=step)
        ledger.record("mixed", solved=4 * (step % 2), scored=4, step=step)  # dead twice, but not in a row of one kind
    assert (ledger.rows["easy"].state, ledger.rows["easy"].since_step) == (PromptState.ALWAYS_SOLVED, 2)
    assert (ledger.rows["hard"].state, ledger.rows["hard"].since_step) == (PromptState.NEVER_SOLVED, 2)
    assert ledger.active(["mixed", "hard", "easy"]) == ["mixed"]
    assert ledger.set_aside() == {"always_solved": 1, "never_solved": 1}
    assert ledger.next_batch(3) == ["mixed"]


def test_a_probe_that_is_mixed_makes_a_prompt_active_again() -> None:
    ledger = PromptLedger(["a"], seed=0, retire_after_visits=1)
    ledger.record("a", solved=0, scored=4, step=1)
    ledger.record("a", solved=0, scored=4, step=2)
    assert ledger.rows["a"].since_step == 1
    assert ledger.next_batch(1) == []
    ledger.record("a", solved=1, scored=4, step=9)
    assert ledger.rows["a"].state is PromptState.ACTIVE
    assert ledger.rows["a"].since_step is None
    assert ledger.next_batch(1) == ["a"]


def test_zero_never_sets_aside() -> None:
    ledger = PromptLedger(["a"], seed=0)
    for step in range(50):
        ledger.record("a", solved=0, scored=4, step=step)
    assert ledger.set_aside() == {"always_solved": 0, "never_solved": 0}


@given(
    num_prompts=st.integers(1, 12),
    batch_sizes=st.lists(st.integers(1, 15), min_size=1, max_size=30),
    seed=st.integers(0, 99),
)
def test_batches_are_full_distinct_and_fair(num_prompts: int, batch_sizes: list[int], seed: int) -> None:
    ids = [f"q{i}" for i in range(num_prompts)]
    ledger = PromptLedger(ids, seed=seed)
    visits: Counter[str] = Counter()
    for size in batch_sizes:
        batch = ledger.next_batch(size)
        assert len(batch) == len(set(batch)) == min(size, num_prompts)
        visits.update(batch)
        counts = [visits[task_id] for task_id in ids]
        assert max(counts) - min(counts) <= 1  # each once an epoch, also where a batch crosses epochs


def test_the_order_follows_the_seed_and_changes_with_the_epoch() -> None:
    def epochs(seed: int) -> list[list[str]]:
        ledger = PromptLedger(IDS, seed=seed)
        return [ledger.next_batch(len(IDS)) for _ in range(3)]

    assert epochs(1) == epochs(1)
    assert epochs(1) != epochs(2)
    first, second, third = epochs(1)
    assert first != second != third
    assert sorted(first) == sorted(second) == IDS


@pytest.mark.parametrize("num_before", [0, 1, 4, 9])
def test_a_resumed_ledger_goes_on_as_if_never_interrupted(num_before: int) -> None:
    whole = PromptLedger(IDS, seed=3, retire_after_visits=2)
    for step in range(num_before):
        visit(whole, step)
    resumed = PromptLedger.from_state(json.loads(json.dumps(whole.state())))
    for step in range(num_before, num_before + 10):
        assert visit(resumed, step) == visit(whole, step)
    assert resumed.state() == whole.state()
    assert resumed.set_aside() == {"always_solved": 1, "never_solved": 3}


def test_a_state_is_a_copy() -> None:
    ledger = PromptLedger(IDS, seed=3)
    ledger.next_batch(2)
    state = ledger.state()
    before = json.dumps(state)
    visit(ledger, 1)
    assert json.dumps(state) == before


@pytest.mark.parametrize(
    "state", [{}, {"rows": {"a": {"state": "lost"}}}, {"rows": {"a": {"state": "active", "x": 1}}}]
)
def test_a_state_that_is_none_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(DataError, match="resume from another checkpoint"):
        PromptLedger.from_state(state)


def test_impossible_values_are_refused() -> None:
    with pytest.raises(DataError, match="no tasks"):
        PromptLedger([], seed=0)
    with pytest.raises(DataError, match="'a' occurs more than once"):
        PromptLedger(["a", "b", "a"], seed=0)
    with pytest.raises(ValueError, match="retire_after_visits"):
        PromptLedger(["a"], seed=0, retire_after_visits=-1)
    ledger = PromptLedger(["a"], seed=0)
    with pytest.raises(ValueError, match="got 5 of 4"):
        ledger.record("a", solved=5, scored=4, step=1)
    with pytest.raises(KeyError):
        ledger.record("b", solved=0, scored=4, step=1)
    with pytest.raises(ValueError, match="num_prompts"):
        ledger.next_batch(0)
