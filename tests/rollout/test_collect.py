from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from fakes import FakeVerifier, fake_completion, fake_prompts, fake_task
from groupwise.rollout import Sampling, collect_groups
from groupwise.rollout import collect as collect_module
from groupwise.rollout.collect import judge_all
from groupwise.rollout.engine import Progress
from groupwise.types import Completion, Prompt, Status

SAMPLING = Sampling(max_tokens=4)


class FakeEngine:
    """Returns the given texts, one list for each prompt, and remembers how it was called."""

    def __init__(self, *texts: Sequence[str]) -> None:
        self._texts = texts

    def generate(
        self,
        prompts: Sequence[Prompt],
        group_size: int | Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        progress: Progress | None = None,
    ) -> list[list[Completion]]:
        self.called_with = (tuple(prompts), group_size, sampling, seed, progress)
        return [[fake_completion(text) for text in group] for group in self._texts]

    def set_policy_version(self, version: int) -> None:
        raise NotImplementedError


def test_every_completion_is_judged_and_stays_in_its_place() -> None:
    tasks, prompts = [fake_task(0), fake_task(1)], fake_prompts((1, 2), (3,))
    engine, verifier = FakeEngine(["right", "wrong"], ["wrong", "right"]), FakeVerifier()
    groups, generate_s, judge_s = collect_groups(
        engine, verifier, tasks, prompts, group_size=2, sampling=SAMPLING, seed=5, progress=print
    )
    assert engine.called_with == (tuple(prompts), 2, SAMPLING, 5, print)
    assert [g.task for g in groups] == tasks
    assert [g.prompt for g in groups] == prompts
    assert [[r.completion.text for r in g.rollouts] for g in groups] == [["right", "wrong"], ["wrong", "right"]]
    assert [[r.verdict.reward for r in g.rollouts] for g in groups] == [[1.0, 0.0], [0.0, 1.0]]
    assert sorted(verifier.judged) == [("q0", "right"), ("q0", "wrong"), ("q1", "right"), ("q1", "wrong")]
    assert generate_s >= 0
    assert judge_s >= 0


def test_a_size_for_each_prompt_reaches_the_engine() -> None:
    engine = FakeEngine(["right"], ["wrong", "right", "right"])
    groups, *_ = collect_groups(
        engine,
        FakeVerifier(),
        [fake_task(0), fake_task(1)],
        fake_prompts((1,), (2,)),
        group_size=(1, 3),
        sampling=SAMPLING,
        seed=0,
    )
    assert engine.called_with[1] == (1, 3)
    assert [[r.completion.text for r in g.rollouts] for g in groups] == [["right"], ["wrong", "right", "right"]]
    assert [[r.verdict.reward for r in g.rollouts] for g in groups] == [[1.0], [0.0, 1.0, 1.0]]


def test_the_two_times_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.5, 13.0])  # start, generated, judged
    monkeypatch.setattr(collect_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    found = collect_groups(
        FakeEngine(["right"]),
        FakeVerifier(),
        [fake_task()],
        fake_prompts((1,)),
        group_size=1,
        sampling=SAMPLING,
        seed=0,
    )
    assert (found.generate_s, found.judge_s) == (2.5, 0.5)


def test_a_verifier_that_breaks_leaves_an_unscored_verdict_with_its_name() -> None:
    verifier = FakeVerifier(raises={"odd": KeyError("gold"), "slow": TimeoutError("5 s")})
    pairs = [(fake_task(), fake_completion(text)) for text in ("right", "odd", "slow", "wrong")]
    verdicts = judge_all(verifier, pairs)
    assert [v.status for v in verdicts] == [Status.SCORED, Status.UNSCORED, Status.UNSCORED, Status.SCORED]
    assert [v.reward for v in verdicts] == [1.0, None, None, 0.0]
    assert verdicts[1].outcome is None
    assert verdicts[1].reason == "verifier_raised KeyError: 'gold'"
    assert verdicts[2].reason == "verifier_raised TimeoutError: 5 s"


def test_an_interrupt_is_no_verdict() -> None:
    verifier = FakeVerifier(raises={"x": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        judge_all(verifier, [(fake_task(), fake_completion("x"))])


def test_verdicts_keep_the_order_of_many_completions() -> None:
    texts = [str(n) for n in range(100)]
    verifier = FakeVerifier(solves=lambda task, text: int(text) % 3 == 0)
    verdicts = judge_all(verifier, [(fake_task(), fake_completion(text)) for text in texts])
    assert [v.outcome for v in verdicts] == [n % 3 == 0 for n in range(100)]


def test_nothing_to_judge() -> None:
    assert judge_all(FakeVerifier(), []) == []


def test_an_engine_that_loses_a_group_is_a_bug() -> None:
    with pytest.raises(ValueError, match="shorter"):
        collect_groups(
            FakeEngine(["right"]),
            FakeVerifier(),
            [fake_task(0), fake_task(1)],
            fake_prompts((1,), (2,)),
            group_size=1,
            sampling=SAMPLING,
            seed=0,
        )
