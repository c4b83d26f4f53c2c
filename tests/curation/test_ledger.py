from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.curation import BetaPrior, PromptLedger, PromptRow, PromptState, RetireRule
from groupwise.errors import DataError

IDS = [f"q{i}" for i in range(7)]
RULE = RetireRule()
"""0.95, 0.05, confidence 0.8: 16 attempts, so that the ledger's window is 64."""
HASTY = RetireRule(solved_above=0.6, hopeless_below=0.4, confidence=0.5)
"""One dead group of two is enough."""


def visit(ledger: PromptLedger, step: int, num_prompts: int = 3) -> list[str]:
    """One step: odd tasks are never solved, q0 always, the others half of the time."""
    batch = ledger.next_batch(num_prompts, step=step)
    for task_id in batch:
        number = int(task_id[1:])
        ledger.record(task_id, solved=0 if number % 2 else 4 if number == 0 else 2, scored=4, step=step)
    return batch


def set_aside(num_aside: int, *, num_active: int = 0, probe_every: int = 10, step: int = 0) -> PromptLedger:
    """a0, a1, ... set aside at `step` or before the run, and active prompts q0, q1, ..."""
    ids = [f"a{i}" for i in range(num_aside)] + [f"q{i}" for i in range(num_active)]
    ledger = PromptLedger(ids, seed=0, rule=RULE, probe_every=probe_every, counts={f"a{i}": (0, 32) for i in range(9)})
    for i in range(num_aside if step else 0):
        ledger.record(f"a{i}", solved=0, scored=2, step=step)
    return ledger


def test_a_row_by_hand() -> None:
    ledger = PromptLedger(["a"], seed=0)
    ledger.record("a", solved=1, scored=8, step=1)
    ledger.record("a", solved=8, scored=8, step=2)  # a group of 8 keeps 1 - 8 / 64 = 0.875 of what was before
    assert ledger.rows["a"] == PromptRow(
        solved=9, scored=16, visits=2, recent_solved=8.875, recent_scored=15.0, last_step=2
    )
    ledger.record("a", solved=0, scored=16, step=3)  # keeps 0.75
    assert ledger.rows["a"] == PromptRow(
        solved=9, scored=32, visits=3, recent_solved=6.65625, recent_scored=27.25, last_step=3
    )


def test_a_group_as_large_as_the_memory_leaves_nothing_of_what_was_before() -> None:
    ledger = PromptLedger(["a"], seed=0)
    ledger.record("a", solved=3, scored=8, step=1)
    ledger.record("a", solved=70, scored=80, step=2)
    assert (ledger.rows["a"].recent_solved, ledger.rows["a"].recent_scored) == (70, 80)


def test_a_rule_that_needs_more_attempts_remembers_more() -> None:
    rule = RetireRule(hopeless_below=0.01)
    needed = rule.attempts_needed()
    ledger = PromptLedger(["a"], seed=0, rule=rule)
    for step in range(1, needed):
        ledger.record("a", solved=0, scored=2, step=step)
    assert needed > 64
    assert ledger.set_aside()["never_solved"] == 1


def test_the_posterior_starts_with_what_was_measured_before() -> None:
    prior = BetaPrior(alpha=0.3, beta=0.9)
    ledger = PromptLedger(["a", "b"], seed=0, prior=prior, counts={"a": (1, 4), "elsewhere": (2, 4)})
    assert ledger.posterior("a") == prior.posterior(solved=1, scored=4)
    assert ledger.posterior("b") == prior.posterior(solved=0, scored=0)
    assert ledger.rows["a"].scored == 0  # of this run
    ledger.record("a", solved=2, scored=8, step=1)
    assert ledger.posterior("a") == prior.posterior(solved=0.875 + 2, scored=3.5 + 8)


def test_fewer_than_two_scored_rollouts_are_no_visit() -> None:
    ledger = PromptLedger(["a"], seed=0, rule=RetireRule(hopeless_below=0.5, confidence=0.5))
    ledger.record("a", solved=0, scored=0, step=1)
    ledger.record("a", solved=0, scored=1, step=2)
    assert ledger.rows["a"] == PromptRow(scored=1, recent_scored=1.0, last_step=2)
    assert ledger.rows["a"].state is PromptState.ACTIVE
    assert PromptLedger(["a"], seed=0, rule=HASTY, counts={"a": (0, 1)}).set_aside()["never_solved"] == 0


def test_prompts_are_set_aside_once_the_posterior_is_sure_and_say_why() -> None:
    ledger = PromptLedger(["easy", "hard", "mixed"], seed=0, rule=RULE)
    for step in (1, 2, 3):
        assert ledger.set_aside() == {"always_solved": 0, "never_solved": 0}
        ledger.record("easy", solved=8, scored=8, step=step)
        ledger.record("hard", solved=0, scored=8, step=step)  # 15 attempts are left after two groups, 21.1 after three
        ledger.record("mixed", solved=8 * (step % 2), scored=8, step=step)
    assert (ledger.rows["easy"].state, ledger.rows["easy"].since_step) == (PromptState.ALWAYS_SOLVED, 3)
    assert (ledger.rows["hard"].state, ledger.rows["hard"].since_step) == (PromptState.NEVER_SOLVED, 3)
    assert ledger.active(["mixed", "hard", "easy"]) == ["mixed"]
    assert ledger.set_aside() == {"always_solved": 1, "never_solved": 1}
    assert ledger.next_batch(3, step=4) == ["mixed"]


def test_what_was_measured_before_may_set_a_prompt_aside_from_the_start() -> None:
    counts = {"hard": (0, 16), "easy": (16, 16), "rare": (1, 60), "open": (0, 15)}
    ledger = PromptLedger([*counts], seed=0, rule=RULE, counts=counts)
    assert {t: r.since_step for t, r in ledger.rows.items()} == {"hard": 0, "easy": 0, "rare": None, "open": None}
    assert ledger.active(counts) == ["rare", "open"]  # rare had both outcomes: its groups may still teach something


def test_a_prior_alone_sets_nothing_aside() -> None:
    ledger = PromptLedger(IDS, seed=0, rule=RULE, prior=BetaPrior(alpha=0.005, beta=5.0))
    assert ledger.active(IDS) == IDS
    ledger.record("q0", solved=0, scored=2, step=1)
    assert ledger.active(IDS) == IDS[1:]


def test_a_mixed_group_always_keeps_a_prompt() -> None:
    ledger = PromptLedger(["a"], seed=0, rule=RULE, counts={"a": (60, 61)})
    ledger.record("a", solved=31, scored=32, step=1)
    assert RULE.state_of(ledger.posterior("a")) is PromptState.ALWAYS_SOLVED
    assert ledger.rows["a"].state is PromptState.ACTIVE


def test_an_all_solved_group_does_not_make_a_prompt_hopeless() -> None:
    rule = RetireRule(hopeless_below=0.4, confidence=0.5)
    ledger = PromptLedger(["a"], seed=0, rule=rule, counts={"a": (1, 60)})
    ledger.record("a", solved=2, scored=2, step=1)
    assert rule.state_of(ledger.posterior("a")) is PromptState.NEVER_SOLVED
    assert ledger.rows["a"].state is PromptState.ACTIVE


def test_a_probe_that_is_mixed_makes_a_prompt_active_and_forgets_what_was_before() -> None:
    ledger = set_aside(1, num_active=1, step=5)
    assert ledger.rows["a0"].state is PromptState.NEVER_SOLVED
    ledger.record("a0", solved=1, scored=8, step=15)
    row = ledger.rows["a0"]
    assert (row.state, row.since_step) == (PromptState.ACTIVE, None)
    assert (row.recent_solved, row.recent_scored) == (1.0, 8.0)
    assert "a0" in ledger.next_batch(2, step=16)


def test_a_probe_of_the_other_kind_is_judged_by_itself() -> None:
    ledger = set_aside(2)
    ledger.record("a0", solved=8, scored=8, step=10)
    ledger.record("a1", solved=32, scored=32, step=10)
    assert ledger.rows["a0"].state is PromptState.ACTIVE
    assert (ledger.rows["a1"].state, ledger.rows["a1"].since_step) == (PromptState.ALWAYS_SOLVED, 10)


def test_a_probe_that_is_dead_again_changes_nothing_but_the_time() -> None:
    ledger = PromptLedger(["a", "b"], seed=0, rule=RULE, probe_every=10, counts={"a": (0, 16)})
    ledger.record("a", solved=0, scored=2, step=10)  # 15.5 + 2 attempts
    ledger.record("a", solved=0, scored=2, step=20)
    ledger.record("a", solved=0, scored=0, step=30)  # nothing could be judged
    row = ledger.rows["a"]
    assert (row.state, row.since_step, row.last_step) == (PromptState.NEVER_SOLVED, 0, 30)
    assert "a" not in ledger.next_batch(8, step=39)
    assert "a" in ledger.next_batch(8, step=40)


def test_a_prompt_stays_set_aside_though_the_old_counts_that_proved_it_have_faded() -> None:
    prior = BetaPrior(alpha=5.0, beta=0.5)
    ledger = PromptLedger(["a"], seed=0, rule=RULE, probe_every=10, prior=prior, counts={"a": (0, 5000)})
    ledger.record("a", solved=0, scored=64, step=10)
    assert RULE.state_of(ledger.posterior("a")) is PromptState.ACTIVE
    assert ledger.rows["a"].state is PromptState.NEVER_SOLVED


def test_probes_come_when_they_are_due_the_longest_waiting_first() -> None:
    ledger = set_aside(3, num_active=20)
    ledger.record("a0", solved=0, scored=8, step=4)
    assert not {"a0", "a1", "a2"} & set(ledger.next_batch(16, step=9))
    assert ledger.next_batch(16, step=10)[:2] == ["a1", "a2"]
    for task_id in ("a1", "a2"):
        ledger.record(task_id, solved=0, scored=8, step=10)
    assert not {"a0", "a1", "a2"} & set(ledger.next_batch(16, step=13))
    assert ledger.next_batch(16, step=14)[0] == "a0"


@pytest.mark.parametrize(("num_prompts", "expected"), [(1, 5), (3, 15), (8, 40), (12, 60), (16, 80)])
def test_one_seat_in_eight_goes_to_probes(num_prompts: int, expected: int) -> None:
    ledger = set_aside(9, num_active=40, probe_every=1)
    found = [sum(task_id[0] == "a" for task_id in ledger.next_batch(num_prompts, step=step)) for step in range(1, 41)]
    assert sum(found) == expected
    assert max(found) == -(-num_prompts // 8)


def test_seats_that_nobody_probed_with_are_not_saved_up() -> None:
    ledger = set_aside(9, num_active=40, probe_every=50)
    for step in range(50):
        ledger.next_batch(8, step=step)
    assert sum(task_id[0] == "a" for task_id in ledger.next_batch(8, step=50)) == 1


def test_where_nothing_is_active_all_seats_are_for_probes_due_or_not() -> None:
    ledger = set_aside(5)
    ledger.record("a0", solved=0, scored=8, step=1)
    assert ledger.next_batch(3, step=2) == ["a1", "a2", "a3"]
    assert ledger.next_batch(9, step=2) == ["a1", "a2", "a3", "a4", "a0"]
    assert set_aside(5, probe_every=0).next_batch(3, step=99) == []


def test_without_a_rule_nothing_is_set_aside() -> None:
    ledger = PromptLedger(["a"], seed=0, probe_every=10, counts={"a": (0, 99)})
    for step in range(50):
        ledger.record("a", solved=0, scored=8, step=step)
    assert ledger.set_aside() == {"always_solved": 0, "never_solved": 0}
    assert ledger.next_batch(4, step=50) == ["a"]


@given(
    num_prompts=st.integers(1, 12),
    batch_sizes=st.lists(st.integers(1, 15), min_size=1, max_size=30),
    seed=st.integers(0, 99),
)
def test_batches_are_full_distinct_and_fair(num_prompts: int, batch_sizes: list[int], seed: int) -> None:
    ids = [f"q{i}" for i in range(num_prompts)]
    ledger = PromptLedger(ids, seed=seed, rule=RULE, probe_every=5)
    visits: Counter[str] = Counter()
    for step, size in enumerate(batch_sizes):
        batch = ledger.next_batch(size, step=step)
        assert len(batch) == len(set(batch)) == min(size, num_prompts)
        visits.update(batch)
        counts = [visits[task_id] for task_id in ids]
        assert max(counts) - min(counts) <= 1  # each once an epoch, also where a batch crosses epochs


@given(seed=st.integers(0, 99), rounds=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), max_size=12))
def test_prompts_of_an_earlier_round_of_the_step_keep_their_turn(seed: int, rounds: list[list[int]]) -> None:
    ledger = PromptLedger(IDS, seed=seed)
    visits: Counter[str] = Counter()
    for step, sizes in enumerate(rounds):
        taken: list[str] = []
        for size in sizes:
            batch = ledger.next_batch(size, step=step, without=taken)
            assert len(batch) == min(size, len(IDS) - len(taken))
            taken += batch
        assert len(set(taken)) == len(taken)
        visits.update(taken)
    counts = [visits[task_id] for task_id in IDS]
    assert max(counts) - min(counts) <= 2  # a step that takes nearly all of them leaves some a turn behind


def test_probes_are_not_drawn_twice_in_a_step_either() -> None:
    ledger = set_aside(3)
    assert ledger.next_batch(2, step=1, without=["a0"]) == ["a1", "a2"]
    assert ledger.next_batch(2, step=1, without=["a0", "a1", "a2"]) == []
    active = PromptLedger(["a", "b"], seed=0, rule=RULE, probe_every=10, counts={"a": (0, 32)})
    assert active.next_batch(2, step=1, without=["b"]) == []  # b is active: nothing is tried before its time


def test_the_order_follows_the_seed_and_changes_with_the_epoch() -> None:
    def epochs(seed: int) -> list[list[str]]:
        ledger = PromptLedger(IDS, seed=seed)
        return [ledger.next_batch(len(IDS), step=step) for step in range(3)]

    assert epochs(1) == epochs(1)
    assert epochs(1) != epochs(2)
    first, second, third = epochs(1)
    assert first != second != third
    assert sorted(first) == sorted(second) == IDS


GROUPS = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(sorted)
STEPS = st.tuples(st.integers(1, 9), st.lists(GROUPS, min_size=9, max_size=9))


@given(
    before=st.lists(STEPS, max_size=15),
    after=st.lists(STEPS, max_size=15),
    rule=st.sampled_from([None, RULE, HASTY]),
    probe_every=st.integers(0, 4),
    counts=st.dictionaries(st.sampled_from(IDS), GROUPS.map(tuple)),
    prior=st.sampled_from([BetaPrior(alpha=0.5, beta=0.5), BetaPrior(alpha=0.31, beta=0.87)]),
)
def test_a_restored_ledger_goes_on_as_if_never_interrupted(
    before: list[tuple[int, list[list[int]]]],
    after: list[tuple[int, list[list[int]]]],
    rule: RetireRule | None,
    probe_every: int,
    counts: dict[str, tuple[int, int]],
    prior: BetaPrior,
) -> None:
    def go_on(ledger: PromptLedger, steps: list[tuple[int, list[list[int]]]], start: int) -> list[list[str]]:
        batches = []
        for step, (size, groups) in enumerate(steps, start):
            batches.append(ledger.next_batch(size, step=step))
            for task_id, (solved, scored) in zip(batches[-1], groups, strict=False):
                ledger.record(task_id, solved=solved, scored=scored, step=step)
        return batches

    whole = PromptLedger(IDS, seed=3, rule=rule, probe_every=probe_every, counts=counts, prior=prior)
    go_on(whole, before, 0)
    restored = PromptLedger.from_state(json.loads(json.dumps(whole.state())))
    assert restored.rows == whole.rows
    assert go_on(restored, after, len(before)) == go_on(whole, after, len(before))
    assert restored.state() == whole.state()
    assert [restored.posterior(i) for i in IDS] == [whole.posterior(i) for i in IDS]


def test_a_state_is_a_copy() -> None:
    ledger = PromptLedger(IDS, seed=3)
    ledger.next_batch(2, step=0)
    state = ledger.state()
    before = json.dumps(state)
    visit(ledger, 1)
    assert json.dumps(state) == before


def test_a_state_that_is_none_is_refused() -> None:
    state = PromptLedger(["a"], seed=3, rule=RULE).state()
    broken = [
        {},
        state | {"rows": {"a": {"state": "lost"}}},
        state | {"rows": {"a": {"state": "active", "x": 1}}},
        state | {"rule": {"confidence": 2.0}},
        state | {"pending": ["b"]},
        {name: value for name, value in state.items() if name != "seats"},
    ]
    for each in broken:
        with pytest.raises(DataError, match="resume from another checkpoint"):
            PromptLedger.from_state(each)


def test_impossible_values_are_refused() -> None:
    with pytest.raises(DataError, match="no tasks"):
        PromptLedger([], seed=0)
    with pytest.raises(DataError, match="'a' occurs more than once"):
        PromptLedger(["a", "b", "a"], seed=0)
    with pytest.raises(ValueError, match="probe_every"):
        PromptLedger(["a"], seed=0, probe_every=-1)
    with pytest.raises(ValueError, match="got 3 of 2 for 'a'"):
        PromptLedger(["a"], seed=0, counts={"a": (3, 2)})
    ledger = PromptLedger(["a"], seed=0)
    with pytest.raises(ValueError, match="got 5 of 4 for 'a'"):
        ledger.record("a", solved=5, scored=4, step=1)
    for ask in (lambda: ledger.record("b", solved=0, scored=4, step=1), lambda: ledger.posterior("b")):
        with pytest.raises(KeyError):
            ask()
    with pytest.raises(ValueError, match="num_prompts"):
        ledger.next_batch(0, step=1)
