"""FunctionVerifier: TRL's way of calling, what a function may return, whose fault a failure is, both ways to run it."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.config.verifier_function import FunctionVerifierSection
from groupwise.errors import VerifierError
from groupwise.types import Status, Task
from groupwise.verifiers.function_verifier import FunctionVerifier

REWARDS = """
import asyncio, os, time
from neighbour import RIGHT

def exact(prompts, completions, answer, **kwargs):
    return [RIGHT if c.strip() == a else 0.0 for c, a in zip(completions, answer, strict=True)]

async def later(completions, answer):
    await asyncio.sleep(0)
    return exact(None, completions, answer)

class Scorer:
    def __call__(self, prompts, completions, answer):
        return exact(prompts, completions, answer)

scorer = Scorer()

def chat(prompts, completions, answer, **kwargs):
    assert prompts[0][-1]["role"] == "user" and completions[0][0]["role"] == "assistant"
    return [1.0 if c[0]["content"] == a else 0.0 for c, a in zip(completions, answer)]

def nothing(completions, **kwargs): return [None]
def nan(completions, **kwargs): return [float("nan")]
def two(completions, **kwargs): return [1.0, 1.0]
def bare(completions, **kwargs): return 1.0
def text(completions, **kwargs): return ["1.0"]
def broken(completions, **kwargs): raise KeyError("gone")
def leave(completions, **kwargs): raise SystemExit(3)
def die(completions, **kwargs): os._exit(1)
def spin(completions, **kwargs):
    while True: pass
def sleep(completions, **kwargs): time.sleep(60)
def greedy(completions, **kwargs): return [len(bytearray(10**12))]
def needs(completions, missing): return [1.0]
def kind(completions, when, **kwargs): return [1.0 if when[0].denominator == 3 else 0.0]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rewards")
    (folder / "my_rewards.py").write_text(REWARDS)
    (folder / "neighbour.py").write_text("RIGHT = 1.0\n")
    return folder


def task(prompt="2 + 2?", **columns):
    return Task(id="t", prompt=prompt, columns={"answer": "4", **columns})


def word(verdict):
    return verdict.reason.partition(":")[0]


def judged(folder, name, completion="4", isolate=True, given=None, **settings):
    verifier = FunctionVerifier(f"my_rewards.py:{name}", base_folder=folder, isolate=isolate, **settings)
    try:
        return verifier.judge(given or task(), completion)
    finally:
        verifier.close()


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize("name", ["exact", "later", "scorer"])
def test_a_trl_function_runs_as_it_is(folder, name, isolate):
    assert judged(folder, name, isolate=isolate).reward == 1.0
    wrong = judged(folder, name, "5", isolate=isolate)
    assert (wrong.status, wrong.reward, wrong.outcome, word(wrong)) == (Status.SCORED, 0.0, False, "not_solved")


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nothing", "no_reward"),
        ("nan", "not_finite"),
        ("two", "wrong_length"),
        ("bare", "wrong_type"),
        ("text", "not_a_number"),
        ("broken", "function_raised"),
        ("leave", "function_raised"),
        ("needs", "column_missing"),
        ("not_there", "load_failed"),
        ("greedy", "memory"),
    ],
)
def test_what_is_no_reward_is_unscored_and_named(folder, name, expected, isolate):
    verdict = judged(folder, name, isolate=isolate)
    assert (verdict.status, verdict.reward, verdict.outcome, word(verdict)) == (Status.UNSCORED, None, None, expected)


@pytest.mark.parametrize(("name", "expected"), [("spin", "timeout"), ("sleep", "timeout"), ("die", "crash")])
def test_a_worker_that_hangs_or_dies_is_replaced(folder, name, expected):
    verdict = judged(folder, name, time_limit_s=0.4)
    assert (verdict.status, word(verdict)) == (Status.UNSCORED, expected)


def test_a_late_call_in_this_process_is_given_up_and_holds_its_place():
    go_on = threading.Event()

    def slow(completions, **kwargs):
        if completions[0] == "slow":
            go_on.wait(30)
        return [1.0]

    verifier = FunctionVerifier(slow, time_limit_s=0.1)
    assert word(verifier.judge(task(), "slow")) == "timeout"
    assert word(verifier.judge(task(), "quick")) == "timeout"  # refused at once: the only place is held
    go_on.set()
    for _ in range(1000):
        verdict = verifier.judge(task(), "quick")
        if verdict.reward == 1.0:
            break
        threading.Event().wait(0.01)
    assert verdict.reward == 1.0


@pytest.mark.parametrize(
    "returned",
    [
        [1],
        [True],
        (1.0,),
        [Fraction(1)],
        np.array([1.0]),
        [np.float32(1.0)],
        [np.array(1.0)],
        torch.tensor([1.0]),
        [torch.tensor(1.0)],
        [torch.tensor([1.0], requires_grad=True)],
    ],
)
def test_numbers_of_other_libraries_count(returned):
    assert FunctionVerifier(lambda completions: returned).judge(task(), "x").reward == 1.0


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ([float("inf")], "not_finite"),
        ([-float("inf")], "not_finite"),
        ([np.float64("nan")], "not_finite"),
        ([torch.tensor(float("nan"))], "not_finite"),
        ([10**400], "not_finite"),
        ([torch.tensor([1.0, 2.0])], "not_a_number"),
        ([1j], "not_a_number"),
        ([[1.0]], "not_a_number"),
        ([Decimal("NaN")], "not_a_number"),
        ([], "wrong_length"),
        (np.zeros(3), "wrong_length"),
        (torch.tensor(1.0), "wrong_type"),
        (None, "wrong_type"),
        ({"reward": 1.0}, "wrong_type"),
        ("1", "wrong_type"),
    ],
)
def test_what_is_not_one_finite_number_is_named(returned, expected):
    verdict = FunctionVerifier(lambda completions: returned).judge(task(), "x")
    assert (verdict.status, word(verdict)) == (Status.UNSCORED, expected)


def test_values_are_mapped_clamped_and_compared_with_the_threshold():
    verifier = FunctionVerifier(
        lambda completions: [float(completions[0])], reward_min=-1.0, reward_max=3.0, threshold=2.0
    )
    verdicts = {value: verifier.judge(task(), str(value)) for value in (-5, -1, 1, 2, 3, 9)}
    # (value + 1) / 4 after clamping to [-1, 3]
    assert [v.reward for v in verdicts.values()] == [0.0, 0.0, 0.5, 0.75, 1.0, 1.0]
    assert [v.outcome for v in verdicts.values()] == [False, False, False, True, True, True]
    assert [v.checks[1].passed for v in verdicts.values()] == [False, True, True, True, True, False]


def test_forms_of_prompt_and_completion(folder):
    talk = task(prompt=({"role": "system", "content": "Be short."}, {"role": "user", "content": "2 + 2?"}))
    assert judged(folder, "chat", given=talk, isolate=False).reward == 1.0
    assert judged(folder, "chat", isolate=False, text_form="messages").reward == 1.0
    assert word(judged(folder, "chat", isolate=False)) == "function_raised"
    seen = []
    FunctionVerifier(lambda prompts, completions: seen.append((prompts, completions)) or [0], text_form="text").judge(
        talk, "4"
    )
    assert seen == [(["Be short.\n\n2 + 2?"], ["4"])]


def test_columns_keep_their_types_and_cannot_be_edited(folder):
    assert judged(folder, "kind", given=task(when=Fraction(1, 3))).reward == 1.0
    given = task(tags=["a"])

    def edits(completions, tags, log_metric, **kwargs):
        log_metric("n", 1)
        tags[0].append("b")
        return [float(len(tags[0]) == 2)]

    verifier = FunctionVerifier(edits)
    assert [verifier.judge(given, "x").reward for _ in range(2)] == [1.0, 1.0]
    assert given.columns["tags"] == ["a"]


def test_a_function_without_kwargs_gets_only_what_it_names():
    assert FunctionVerifier(lambda completions: [1.0]).judge(task(other=1), "x").reward == 1.0


def test_async_functions_in_many_threads():
    async def reward(completions, **kwargs):
        await asyncio.sleep(0.001)
        return [float(completions[0])]

    verifier = FunctionVerifier(reward, num_workers=4)
    with ThreadPoolExecutor(8) as threads:
        rewards = list(threads.map(lambda n: verifier.judge(task(), str(n % 2)).reward, range(40)))
    assert rewards == [0.0, 1.0] * 20


def test_check_lists_what_cannot_be_proved(folder):
    def listed(name, **settings):
        verifier = FunctionVerifier(f"my_rewards.py:{name}", base_folder=folder, isolate=False, **settings)
        return [(p.reason.partition(":")[0], p.blocking) for p in verifier.check([task(best="4", worst="5")])]

    assert listed("exact") == [("gold_unknown", False)]
    assert listed("exact", gold_column="best") == []
    assert listed("exact", gold_column="worst") == [("gold_failed", True)]
    assert listed("exact", gold_column="none") == [("gold_missing", True)]
    assert listed("needs") == [("column_missing", True)]
    assert listed("absent") == [("load_failed", True)]
    always = FunctionVerifier(lambda completions: [1.0], gold_column="best")
    assert [p.reason.partition(":")[0] for p in always.check([task(best="4")])] == ["empty_solves"]


def test_too_long_a_text_is_the_policys_fault():
    verdict = FunctionVerifier(lambda completions: [1.0]).judge(task(), "x" * 4_000_001)
    assert (verdict.status, verdict.reward, word(verdict)) == (Status.INVALID, 0.0, "too_large")


def test_version_follows_the_function_and_the_settings(folder, tmp_path):
    def version(text="def f(completions): return [1.0]\n", **settings):
        (tmp_path / "r.py").write_text(text)
        return FunctionVerifier("r.py:f", base_folder=tmp_path, **settings).version

    assert version() == version()
    assert version() == version(num_workers=3)
    assert version() != version(reward_max=2.0)
    assert version() == FunctionVerifier(f"{tmp_path}/r.py:f", base_folder=folder).version  # named by its place
    assert version() != version("def f(completions): return [0.0]\n")


@pytest.mark.parametrize(
    ("path", "settings"),
    [
        ("no_colon", {}),
        ("absent.py:f", {}),
        ("os:", {}),
        ("os:getcwd()", {}),
        ("os:getcwd", {"reward_min": 1.0}),
        ("os:getcwd", {"threshold": 0.0}),
        ("os:getcwd", {"time_limit_s": 0}),
        ("os:getcwd", {"text_form": "chat"}),
    ],
)
def test_settings_that_cannot_be_used_are_refused(path, settings):
    with pytest.raises(VerifierError, match="FunctionVerifier: "):
        FunctionVerifier(path, **settings)


def test_the_section_fits_the_verifier(folder):
    section = FunctionVerifierSection(kind="function", path="my_rewards.py:exact")
    verifier = FunctionVerifier(**section.model_dump(exclude={"kind", "unusable_gold"}), base_folder=folder)
    assert verifier.judge(task(), "4").reward == 1.0
    verifier.close()
    with pytest.raises(ValueError, match="reward_min"):
        FunctionVerifierSection(kind="function", path="m:f", reward_min=2.0)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.one_of(st.none(), st.floats(), st.integers(-3, 3), st.booleans()), min_size=1, max_size=4))
def test_whatever_a_function_returns_the_contract_holds_and_more_never_earns_less(values):
    """Finite numbers are clamped to 0..1 and keep their order; all else is the verifier's fault, never a reward."""
    verdicts = []
    for value in values:
        verifier = FunctionVerifier(lambda completions, value=value, **kwargs: [value])
        verdicts.append(verifier.judge(Task(id="t", prompt="p", columns={}), "text"))
        verifier.close()
    for value, verdict in zip(values, verdicts, strict=True):
        usable = isinstance(value, (int, float)) and np.isfinite(value)
        if not usable:
            assert (verdict.status, verdict.reward) == (Status.UNSCORED, None)
        elif verdict.status is Status.SCORED:
            assert verdict.reward == min(max(float(value), 0.0), 1.0)
            assert verdict.outcome == (value >= 1.0)
    scored = sorted((float(v), d.reward) for v, d in zip(values, verdicts, strict=True) if d.status is Status.SCORED)
    assert [reward for _, reward in scored] == sorted(reward for _, reward in scored)
