"""Two findings about hard tasks: the form of an answer that is wrong, and groups too small to have a right one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from scipy.stats import beta as beta_distribution

from groupwise.runs import FileRecorder, RunDirectory, RunRecord, read_run
from groupwise.runs.diagnosis.diagnose import diagnose, diagnose_early
from groupwise.runs.diagnosis.finding import Finding
from groupwise.runs.diagnosis.rules_form import holds
from groupwise.runs.diagnosis.rules_group_size import group_too_small, live_share, spread_of
from groupwise.runs.diagnosis.rules_spread import ran_out_of_prompts
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict

RECIPE = """[verifier]
kind = "function"
path = "r.py:exact"

[rollout]
group_size = {size}

[[stages]]
name = "grpo"
steps = 8

[stages.algorithm]
name = "grpo"
"""


def wrong_answer(text: str, stop: Stop = Stop.END) -> Rollout:
    completion = Completion(text=text, token_ids=(1,) * 4, sampler_logprobs=(-0.5,) * 4, stop=stop)
    verdict = Verdict(status=Status.SCORED, reward=0.0, outcome=False, reason="exact: 0")
    return Rollout(completion=completion, verdict=verdict)


def run_of(
    folder: Path, golds: Sequence[str], answer: Callable[[str], str], stop: Stop = Stop.END, pass_rate: float = 0.0
) -> RunRecord:
    """Four steps of one group of 4 a task, none of which is paid; `answer` makes what was written from the gold."""
    run = RunDirectory.create(folder, "job")
    run.recipe.write_text(RECIPE.format(size=4))
    by_task = {f"t{i}": gold for i, gold in enumerate(golds)}
    recorder = FileRecorder(run, lambda task: by_task[task.id])
    groups = [
        Group(
            task=Task(id=task, prompt="?"),
            prompt=Prompt(task_id=task, token_ids=(1,)),
            rollouts=tuple(wrong_answer(answer(gold), stop) for _ in range(4)),
        )
        for task, gold in by_task.items()
    ]
    for step in (1, 2, 3, 4):
        row = {"num_groups": len(groups), "num_rollouts": 4 * len(groups), "pass_rate": pass_rate, "live_groups": 0}
        row |= {"dead_groups_none_solved": len(groups), "dead_groups_all_solved": 0, "truncated_frac": 0.0}
        recorder.metrics("grpo", step, row)
        recorder.rollouts("grpo", step, groups, [[0.0] * 4] * len(groups))
    return read_run(run.path)


OBJECTS = [
    f'{{"city": "{name}", "days": {i}}}' for i, name in enumerate(("Bonn", "Kiel", "Ulm", "Trier", "Jena", "Hof"))
]
NUMBERS = [str(number) for number in (17, 23, 38, 41, 56, 62)]


@pytest.mark.parametrize(
    ("golds", "answer"),
    [
        (OBJECTS, lambda gold: gold.strip("{}").replace('"', "'")),
        (OBJECTS, lambda gold: f"Here it is: {gold.upper()}."),
        (NUMBERS, lambda gold: f"The answer is {gold}."),
        ([f'{{"answer": "{number}"}}' for number in NUMBERS], lambda gold: gold[12:-2]),
        (["yes"] * 6, lambda gold: "YES!"),
    ],
)
def test_an_answer_in_another_form_is_named_and_shown_beside_the_gold(
    tmp_path: Path, golds: list[str], answer: Callable[[str], str]
) -> None:
    record = run_of(tmp_path, golds, answer)
    for found in (diagnose(record), diagnose_early(record)):
        assert [finding.name for finding in found] == ["form_not_right"]
    finding = diagnose(record)[0]
    assert repr(answer(golds[0])) in finding.evidence
    assert "exact: 0" in finding.evidence
    assert f"a right answer: {golds[0]!r}" in finding.evidence
    assert "72 of 72 wrong answers" in finding.evidence
    assert finding.change.startswith("verifier.path: now r.py:exact")
    assert "data.system_prompt" in finding.change


@pytest.mark.parametrize(
    ("golds", "answer"),
    [
        (NUMBERS, lambda gold: str(int(gold) + 1)),
        (NUMBERS, lambda gold: gold + "0"),  # another number that begins alike
        (OBJECTS, lambda gold: " ".join(OBJECTS)),  # every option at once
        (OBJECTS, lambda gold: "no idea"),
        (OBJECTS, lambda gold: "city"),  # a word of every gold
        (["yes"] * 6, lambda gold: "it may be yes or no"),  # nothing to compare with
        ([""] * 6, lambda gold: "x"),
    ],
)
def test_answers_that_are_wrong_are_no_matter_of_form(
    tmp_path: Path, golds: list[str], answer: Callable[[str], str]
) -> None:
    found = diagnose(run_of(tmp_path, golds, answer))
    assert [finding.name for finding in found] == ["no_spread_never_solved"]
    assert "A wrong answer: " in found[0].evidence
    assert ("a right answer: " in found[0].evidence) == bool(golds[0])


def test_a_stage_without_signal_shows_an_answer_beside_the_gold(tmp_path: Path) -> None:
    record = run_of(tmp_path, NUMBERS, lambda gold: str(int(gold) + 1))
    FileRecorder(record.directory).event("no_signal", {"stage": "grpo", "step": 5, "diagnosis": "10 empty steps."})
    found = ran_out_of_prompts(read_run(record.directory.path))
    assert found is not None
    assert found.evidence.endswith("10 empty steps. A wrong answer: '18' (task t0: exact: 0; a right answer: '17').")


def test_a_form_that_is_sometimes_paid_and_answers_that_were_cut_are_left_in_peace(tmp_path: Path) -> None:
    def named(record: RunRecord) -> bool:
        return "form_not_right" in [finding.name for finding in diagnose(record)]

    assert named(run_of(tmp_path, NUMBERS, lambda gold: f"is {gold}", pass_rate=0.04))
    assert not named(run_of(tmp_path, NUMBERS, lambda gold: f"is {gold}", pass_rate=0.06))
    assert not named(run_of(tmp_path, NUMBERS, lambda gold: f"is {gold}", Stop.LENGTH))
    assert not named(run_of(tmp_path, NUMBERS[:2], lambda gold: f"is {gold}"))


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("SELECT  a", "select a;", True),
        ("x=42", "42", True),
        ("x=142", "42", False),
        ("142", "4142", False),
        ("a", "a long sentence with an a", True),
        ("s", "sentence", False),
        ("foo_bar", "foo bar", True),
        ("", "x", False),
        ("...", "...", False),
    ],
)
def test_what_holds_what(text: str, gold: str, expected: bool) -> None:
    assert holds(text, gold) is expected


def small_groups(folder: Path, *, size: int, chances: Sequence[float], seed: int = 0, prompts: int = 16) -> RunRecord:
    """Ten steps whose groups are drawn: each prompt is solved with one of the chances."""
    rng = random.Random(seed)
    run = RunDirectory.create(folder, "job")
    run.recipe.write_text(RECIPE.format(size=size))
    for step in range(1, 11):
        solved = [sum(rng.random() < p for _ in range(size)) for p in rng.choices(chances, k=prompts)]
        row = {
            "num_groups": prompts,
            "num_rollouts": prompts * size,
            "pass_rate": sum(solved) / (prompts * size),
            "live_groups": sum(0 < n < size for n in solved),
            "dead_groups_none_solved": solved.count(0),
            "dead_groups_all_solved": solved.count(size),
        }
        FileRecorder(run).metrics("grpo", step, row)
    return read_run(run.path)


def test_small_groups_on_hard_prompts(tmp_path: Path) -> None:
    found: Finding | None = None
    for seed in range(5):
        record = small_groups(tmp_path, size=2, chances=(0.05, 0.15, 0.3), seed=seed)
        (found,) = diagnose(record)
        assert (found.name, found.severity) == ("group_too_small", "warning")
    assert found is not None
    assert "rollout.group_size: now 2, try " in found.change
    assert found.change.endswith(
        (
            "8 (with rollout.prompts_per_step = 4 a step has as many rollouts)",
            "4 (with rollout.prompts_per_step = 8 a step has as many rollouts)",
        )
    )


@pytest.mark.parametrize(
    ("size", "chances", "prompts"),
    [
        (2, (0.4, 0.5, 0.6), 16),  # half of the groups are live
        (2, (0.85, 0.9), 16),  # too easy: a larger group is not what is missing
        (2, (0.0, 0.0, 1.0), 16),  # some never, some always: no size helps
        (2, (0.05, 0.15, 0.3), 3),  # too few rollouts for larger groups and several prompts
    ],
)
def test_groups_that_are_not_too_small(tmp_path: Path, size: int, chances: Sequence[float], prompts: int) -> None:
    for seed in range(5):
        assert group_too_small(small_groups(tmp_path, size=size, chances=chances, seed=seed, prompts=prompts)) is None


def test_the_share_of_live_groups_is_the_expectation_over_the_beta_distribution() -> None:
    rate, spread = 0.2, 3.0
    p = beta_distribution(rate * spread, (1 - rate) * spread)
    for size in (2, 4, 8):
        expected = p.expect(lambda x, n=size: 1 - (1 - x) ** n - x**n)
        assert live_share(rate, spread, size) == pytest.approx(expected, abs=1e-6)
        assert spread_of(rate, size, expected) == pytest.approx(spread, rel=1e-3)
    assert live_share(0.2, 1e9, 4) == pytest.approx(1 - 0.8**4 - 0.2**4)
