"""Dead groups are replaced up to a cap: how many are drawn, what stays in the step, what it does to a gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from training_cases import (
    FakeEngine,
    SaysYes,
    batch_of,
    group,
    said,
    small_llama,
    tasks_and_prompts,
    weights,
    weights_after_plain_descent,
)

from groupwise.curation import PromptLedger, RetireRule
from groupwise.errors import VerifierError
from groupwise.rollout import Sampling
from groupwise.rollout.collect import CollectedGroups
from groupwise.training.dynamic_sampling import SampledGroups, next_draw, sample_live
from groupwise.training.grpo import GrpoOptions, StepSampling, grpo
from groupwise.types import Completion, Group, Prompt, Status, Task, Verdict

LIVE, ALL, NONE = (1, 0), (1, 1), (0, 0)


def groups_of(*rewards: Sequence[float | None]) -> list[Group]:
    return [group(n, r, [3, 5]) for n, r in enumerate(rewards)]


def sampled(*rewards: Sequence[float | None], num_wanted: int) -> SampledGroups:
    return SampledGroups(
        groups=tuple(groups_of(*rewards)),
        num_rounds=1,
        num_wanted=num_wanted,
        cap_reached=False,
        generate_s=0,
        judge_s=0,
    )


def test_the_next_draw_is_what_is_missing_over_the_live_share_and_never_more_than_a_step() -> None:
    assert next_draw([], 8) == 8
    assert next_draw(groups_of(LIVE, NONE, ALL), 2) == 2  # 1 missing, 1 of 3 is live: 3, and at most 2
    assert next_draw(groups_of(LIVE, LIVE, NONE, LIVE), 4) == 2  # 1 missing / (3 of 4) = 1.33
    assert next_draw(groups_of(NONE, ALL, (None, None)), 3) == 3  # nothing is known of the share
    assert next_draw(groups_of(LIVE, NONE, LIVE), 2) == 0


def test_live_groups_all_stay_and_dead_ones_only_in_open_places() -> None:
    assert sampled(NONE, LIVE, ALL, LIVE, num_wanted=2).is_kept == (False, True, False, True)
    assert sampled(NONE, LIVE, ALL, NONE, num_wanted=3).is_kept == (True, True, True, False)
    assert sampled(LIVE, LIVE, LIVE, NONE, num_wanted=2).is_kept == (True, True, True, False)
    assert sampled(NONE, ALL, num_wanted=2).is_kept == (True, True)


@given(
    live=st.lists(st.booleans(), max_size=60),
    num_wanted=st.integers(1, 8),
    extra_rounds=st.integers(0, 4),
    short=st.integers(0, 3),
)
def test_it_ends_with_enough_live_groups_or_used_up_rounds_or_no_prompts(
    live: list[bool], num_wanted: int, extra_rounds: int, short: int
) -> None:
    """Prompts come from a list in order; a draw may get `short` fewer than it asks for."""
    left = groups_of(*[LIVE if one else NONE for one in live])
    draws: list[tuple[int, int, int]] = []

    def draw(number: int, size: int, before: Sequence[Group]) -> CollectedGroups:
        taken = left[: max(1, size - short)]
        del left[: len(taken)]
        draws.append((number, size, len(before)))
        return CollectedGroups(taken, 1.0, 0.5)

    found = sample_live(draw, num_wanted=num_wanted, extra_rounds=extra_rounds)
    num_live = sum(not g.is_dead for g in found.groups)
    assert found.num_rounds <= extra_rounds + 1
    assert [number for number, _, _ in draws] == list(range(len(draws)))
    assert draws[0] == (0, num_wanted, 0)
    assert all(1 <= size <= num_wanted for _, size, _ in draws)
    assert len(found.groups) == len(live) - len(left)
    assert num_live >= num_wanted or found.num_rounds == extra_rounds + 1 or not left
    assert found.cap_reached == (num_live < num_wanted and found.num_rounds == extra_rounds + 1)
    assert (found.generate_s, found.judge_s) == (found.num_rounds, found.num_rounds / 2)
    num_kept = sum(found.is_kept)
    assert num_kept == max(num_live, min(num_wanted, len(found.groups)))
    assert all(kept or g.is_dead for kept, g in zip(found.is_kept, found.groups, strict=True))


class SolvesSome:
    """The prompt that is judged as number n is live where live[n] is 1; else it is never solved."""

    def __init__(self, live: Sequence[int]) -> None:
        self.live = live
        self.number: dict[str, int] = {}

    def judge(self, task: Task, completion_text: str) -> Verdict:
        is_live = self.live[self.number.setdefault(task.id, len(self.number))]
        return SaysYes().judge(task, completion_text if is_live else "no")

    def gold(self, task: Task) -> str:
        return "yes"


class RemembersPrompts(FakeEngine):
    """One live group would be: the first completion says yes, the others no."""

    def __init__(self) -> None:
        super().__init__(lambda p, c: said("yes" if c == 0 else "no", 5 + c, 1))
        self.batches: list[list[str]] = []

    def generate(self, prompts: Sequence[Prompt], *arguments: Any, **named: Any) -> list[list[Completion]]:
        self.batches.append([p.task_id for p in prompts])
        return super().generate(prompts, *arguments, **named)


def algorithm(
    engine: FakeEngine,
    verifier: Any,
    *,
    num_tasks: int = 12,
    wanted: int = 3,
    extra_rounds: int = 2,
    options: GrpoOptions | None = None,
    rule: RetireRule | None = None,
) -> Any:
    tasks, prompts = tasks_and_prompts(num_tasks)
    return grpo(
        options or GrpoOptions(),
        engine=engine,
        verifier=verifier,
        tasks=tasks,
        prompts=prompts,
        ledger=PromptLedger([t.id for t in tasks], seed=3, rule=rule),
        step_sampling=StepSampling(prompts_per_step=wanted, group_size=4, extra_rounds=extra_rounds),
        sampling=Sampling(max_tokens=8),
        seed=5,
    )


def ordered(verifier: SolvesSome, monkeypatch: pytest.MonkeyPatch) -> SolvesSome:
    """One judge at a time, so that prompts are numbered in the order sampled."""
    monkeypatch.setattr("groupwise.rollout.collect.JUDGE_THREADS", 1)
    return verifier


def test_a_step_replaces_dead_groups_and_trains_on_live_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = RemembersPrompts()
    verifier = ordered(SolvesSome([1, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1]), monkeypatch)
    algo = algorithm(engine, verifier)
    collected = algo.collect(0)
    # 1 of 3 is live: 2 / (1/3) = 6, at most 3; then 2 of 6 are: 1 / (1/3) = 3, and all three of them
    assert [len(batch) for batch in engine.batches] == [3, 3, 3]
    names = [task_id for batch in engine.batches for task_id in batch]
    assert len(set(names)) == 9
    assert len({call[2] for call in engine.calls}) == 3  # each round has random numbers of its own
    assert [g.task.id for g in collected.groups] == names
    live = [not g.is_dead for g in collected.groups]
    assert live == [True, False, False, True, False, False, True, True, True]
    assert [any(row) for row in collected.advantages] == live
    assert len(collected.batch.sequences) == 5 * 4
    assert collected.batch.denominator == 5 * 4  # five live groups for three places: no dead one is counted
    metrics = collected.metrics
    assert (metrics["num_groups"], metrics["live_groups"], metrics["dead_groups_none_solved"]) == (9, 5, 4)
    assert (metrics["num_rounds"], metrics["num_kept_groups"], metrics["cap_reached"]) == (3, 5, 0)
    assert metrics["pass_rate"] == pytest.approx(5 / 9 / 4)  # over everything sampled
    rows = algo.state()["rows"]
    assert sum(row["visits"] for row in rows.values()) == 9


def test_at_the_cap_the_step_trains_on_what_it_has_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = ordered(SolvesSome([0, 0, 0, 1] + [0] * 8), monkeypatch)
    collected = algorithm(RemembersPrompts(), verifier, extra_rounds=1).collect(0)
    metrics = collected.metrics
    assert (metrics["num_rounds"], metrics["num_groups"], metrics["cap_reached"]) == (2, 6, 1)
    assert metrics["num_kept_groups"] == 3
    assert len(collected.batch.sequences) == 4
    assert collected.batch.denominator == 3 * 4  # the two places that stayed empty are counted
    without = algorithm(RemembersPrompts(), ordered(SolvesSome([1] + [0] * 11), monkeypatch), extra_rounds=0).collect(0)
    assert "num_rounds" not in without.metrics
    assert without.batch.denominator == 3 * 4


def test_no_prompt_comes_twice_where_few_are_left() -> None:
    """Four prompts, never solved, three wanted: two rounds hold all of them, and a third has nothing to draw."""
    engine = RemembersPrompts()
    algo = algorithm(engine, SolvesSome([0] * 4), num_tasks=4, extra_rounds=9)
    for number in range(6):
        collected = algo.collect(number)
        assert collected.batch is None
        assert Counter(g.task.id for g in collected.groups) == {f"q{n}": 1 for n in range(4)}
        assert (collected.metrics["num_rounds"], collected.metrics["cap_reached"]) == (2, 0)
    assert [len(batch) for batch in engine.batches] == [3, 1] * 6


def test_a_prompt_that_a_step_has_set_aside_is_not_drawn_again_in_it() -> None:
    hasty = RetireRule(hopeless_below=0.5, confidence=0.5)
    engine = RemembersPrompts()
    algo = algorithm(engine, SolvesSome([0] * 4), num_tasks=4, extra_rounds=9, rule=hasty)
    assert len(algo.collect(0).groups) == 4
    assert algo.collect(1) is None


def test_unscored_completions_are_counted_over_all_rounds() -> None:
    """In the second of two rounds of 12 completions 3 are broken: a quarter of that round, an eighth of the step."""
    engine = FakeEngine(lambda p, c: said("broken" if len(engine.calls) == 2 and c == 0 else "no"))
    step = algorithm(engine, SaysYes(), options=GrpoOptions(max_unscored_frac=0.2), extra_rounds=1)
    assert step.collect(0).metrics["unscored_frac"] == 3 / 24
    strict = FakeEngine(lambda p, c: said("broken" if len(strict.calls) == 2 and c == 0 else "no"))
    with pytest.raises(VerifierError, match="3 of 24"):
        algorithm(strict, SaysYes(), options=GrpoOptions(max_unscored_frac=0.1)).collect(0)
    assert len(strict.calls) == 2


def test_dead_by_outcome_is_replaced_whatever_the_shaped_reward_says() -> None:
    class Graded:
        def judge(self, task: Task, completion_text: str) -> Verdict:
            reward = 0.5 if completion_text == "yes" else 0.0
            return Verdict(status=Status.SCORED, reward=reward, outcome=False, reason="half_right")

        def gold(self, task: Task) -> str:
            return "yes"

    collected = algorithm(RemembersPrompts(), Graded(), extra_rounds=1).collect(0)
    assert collected.metrics["num_rounds"] == 2
    assert collected.metrics["live_groups"] == 0
    # three of the six stay, in places that nothing could fill; they differ in reward and so they train, as without
    assert len(collected.batch.sequences) == 3 * 4
    assert [any(row) for row in collected.advantages] == [True] * 3 + [False] * 3


@pytest.mark.parametrize("normalize", ["sequence", "token", "constant"])
def test_replacing_dead_groups_scales_the_gradient_and_turns_it_nowhere(normalize: Any) -> None:
    """Two live groups and two dead ones, all of the same lengths: without replacement the mean is over four groups;
    where two places are wanted and the dead ones are replaced, over two. The gradient is twice that."""
    options = GrpoOptions(normalize=normalize)
    everything = groups_of(LIVE, NONE, (0, 1), ALL)
    start = weights(small_llama())
    counted = weights_after_plain_descent(batch_of(everything, options), options) - start
    step = sampled(LIVE, NONE, (0, 1), ALL, num_wanted=2)
    kept = [g for g, is_kept in zip(step.groups, step.is_kept, strict=True) if is_kept]
    replaced = weights_after_plain_descent(batch_of(kept, options), options) - start
    assert counted.norm() > 1e-3
    assert_close(replaced, 2 * counted, atol=1e-6, rtol=1e-4)
