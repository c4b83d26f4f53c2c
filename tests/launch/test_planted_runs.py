"""Real runs with one planted fault each are diagnosed by its name; runs that learn are left in peace."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted_runs import checkpoint_of, grpo_stage, run_job, save_small_model, sft_stage

from groupwise.launch import assemble, environment
from groupwise.launch.display import Quiet
from groupwise.models import LoadedModel
from groupwise.rollout import TorchEngine
from groupwise.runs import RunRecord
from groupwise.runs.diagnosis.diagnose import diagnose
from groupwise.training.process_memory import peak_bytes

FUNCTION = 'kind = "function"\npath = "rewards.py:{name}"\nisolate = false'


class Lines(Quiet):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


class StaleEngine(TorchEngine):
    """Samples from the weights that the run began with, whatever is learned."""

    def __init__(self, loaded: LoadedModel, **settings: Any) -> None:
        super().__init__(replace(loaded, model=copy.deepcopy(loaded.model)), **settings)


class LateEngine(TorchEngine):
    """Is never told of new weights."""

    def set_policy_version(self, version: int) -> None:
        pass


class FailingEngine(TorchEngine):
    """Breaks at the third step."""

    def set_policy_version(self, version: int) -> None:
        super().set_policy_version(version)
        if version == 2:
            raise RuntimeError("the engine lost its connection")


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_model(tmp_path_factory.mktemp("planted-model"), seed=0)


@pytest.fixture(scope="session")
def start(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that solves six prompts of ten."""
    return checkpoint_of(run_job(tmp_path_factory.mktemp("planted-start"), model=untrained, stages=sft_stage()))


Train = Callable[..., RunRecord]


@pytest.fixture
def train(start: Path, tmp_path: Path) -> Train:
    """run_job from the start checkpoint, unless another model is given."""
    return lambda **settings: run_job(tmp_path / "job", **({"model": start} | settings))


def first(record: RunRecord) -> str:
    """The name of the first finding; all of them where the assertion fails."""
    found = diagnose(record)
    assert found, "nothing was found"
    assert len(found) <= 2, found
    return found[0].name


def test_a_cap_that_cuts_every_answer(train: Train) -> None:
    display = Lines()
    record = train(stages=grpo_stage(4), rollout={"max_completion_tokens": 1}, display=display)
    found = diagnose(record)
    assert [f.name for f in found] == ["outputs_cut"]
    assert "answers are cut" in found[0].title
    assert "limit of 1 tokens" in found[0].evidence
    assert found[0].change == "rollout.max_completion_tokens: now 1, try 2"
    # told after the first collection, once, and again at the end
    assert sum(line.startswith("grpo, step") and "[outputs_cut, problem]" in line for line in display.lines) == 1
    assert display.lines[-2] == f"   Change:   {found[0].change}"
    again = f"groupwise train --resume {record.directory.path} RECIPE"  # the same settings would cut again
    assert (
        display.lines[-1]
        == f"Left: grpo. To go on with other [[stages]] settings; all else needs a new run:\n  {again}"
    )
    assert json.loads(record.directory.diagnosis.read_text())["findings"][0]["name"] == "outputs_cut"


def test_a_task_that_is_never_solved(train: Train) -> None:
    record = train(stages=grpo_stage(4), verifier=FUNCTION.format(name="never"))
    assert first(record) == "no_spread_never_solved"
    assert "at most" in diagnose(record)[0].evidence


def test_a_task_that_is_always_solved(train: Train) -> None:
    record = train(stages=grpo_stage(4), verifier=FUNCTION.format(name="always"))
    assert first(record) == "no_spread_always_solved"
    assert diagnose(record)[0].change == "curation.enabled: now false, try true"


def test_an_answer_in_a_form_that_the_verifier_does_not_read(train: Train) -> None:
    record = train(stages=grpo_stage(4), verifier='kind = "math"\nanswer_in = "boxed"')
    assert first(record) == "parser_never_matched"
    assert "One of them: '" in diagnose(record)[0].evidence


def test_right_numbers_that_a_function_pays_in_another_form(train: Train, tmp_path: Path) -> None:
    """Answers say 20 where the function wants {20}, as its golds are written."""
    (tmp_path / "braces.py").write_text(
        "def braces(prompts, completions, **columns):\n"
        "    wanted = ['{%d}' % (10 + 'abcdefghijklmnop'.index(p[0])) for p in prompts]\n"
        "    return [float(text == right) for text, right in zip(completions, wanted)]\n"
    )
    verifier = f'kind = "function"\npath = "{tmp_path}/braces.py:braces"\nisolate = false\ngold_column = "paid"'
    display = Lines()
    record = train(stages=grpo_stage(4), verifier=verifier, display=display)
    assert first(record) == "form_not_right"
    assert re.search(r"One of them: '\d\d' .*; a right answer: '\{\d\d\}'", diagnose(record)[0].evidence)
    assert sum(line.startswith("grpo, step") and "[form_not_right, problem]" in line for line in display.lines) == 1


def test_groups_of_two_on_prompts_that_are_rarely_solved(train: Train) -> None:
    rewards = FUNCTION.format(name="rarely")
    record = train(stages=grpo_stage(8, lr=1e-7), verifier=rewards, rollout={"group_size": 2, "prompts_per_step": 32})
    assert first(record) == "group_too_small"
    assert re.search(r"rollout.group_size: now 2, try (4|8) ", diagnose(record)[0].change)


def test_a_temperature_near_zero(train: Train) -> None:
    record = train(stages=grpo_stage(6), rollout={"temperature": 0.1})
    assert first(record) == "sampler_nearly_greedy"
    assert diagnose(record)[0].change == "rollout.temperature: now 0.1, try 1"


def test_a_sampler_that_keeps_the_old_weights(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "TorchEngine", StaleEngine)
    record = train(stages=grpo_stage(10, lr=3e-3), model_settings="attention_check = false")
    assert first(record) == "weights_not_synced"
    assert "log-probabilities" in diagnose(record)[0].evidence


def test_a_sampler_that_keeps_the_old_weights_is_stopped(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "TorchEngine", StaleEngine)
    record = train(stages=grpo_stage(4))
    assert [f.name for f in diagnose(record)] == ["weights_not_synced"]
    assert record.directory.diagnosis.exists()
    assert record.events_named("failed")


def test_a_sampler_that_is_not_told_of_new_weights(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "TorchEngine", LateEngine)
    record = train(stages=grpo_stage(4))
    assert first(record) == "weights_not_synced"
    assert "3 updates old" in diagnose(record)[0].evidence


def test_a_learning_rate_below_the_precision_of_the_weights(train: Train) -> None:
    record = train(stages=grpo_stage(4, lr=1e-7), model_settings='dtype = "bfloat16"')
    assert first(record) == "lr_below_precision"
    assert diagnose(record)[0].change == "model.dtype: now bfloat16, try float32"


def test_a_learning_rate_far_too_high(train: Train) -> None:
    record = train(stages=grpo_stage(6, lr=0.3))
    assert first(record) == "lr_too_high"
    assert diagnose(record)[0].change == "optim.lr of stage grpo: now 0.3, try 0.03"


def test_a_learning_rate_far_too_high_for_demonstrations(train: Train, untrained: Path) -> None:
    record = train(model=untrained, stages=sft_stage(30, lr=3.0))
    assert first(record) == "lr_too_high"
    assert "the loss rose" in diagnose(record)[0].evidence


def test_a_policy_that_runs_away_from_its_reference(train: Train) -> None:
    stage = grpo_stage(24, settings=", beta = 1e-4")
    record = train(stages=stage, verifier=FUNCTION.format(name="ten"), rollout={"group_size": 8, "prompts_per_step": 8})
    assert first(record) == "kl_runaway"
    assert "algorithm.beta: now 0.0001, try 0.0005" in diagnose(record)[0].change


def test_entropy_that_collapses_while_answers_are_wrong(train: Train) -> None:
    record = train(
        stages=grpo_stage(60, lr=3e-3),
        verifier=FUNCTION.format(name="ten_or_twenty"),
        rollout={"group_size": 8, "prompts_per_step": 8},
    )
    assert first(record) == "entropy_collapse"


def test_one_answer_for_every_prompt(train: Train) -> None:
    """Demonstrations of one label only, as after a skewed sample."""
    record = train(stages=sft_stage(40) + grpo_stage(4), taught=lambda prompt: "10")
    assert first(record) == "one_answer_for_all"
    assert "'10'" in diagnose(record)[0].evidence


def test_a_verifier_that_fails_now_and_then(train: Train) -> None:
    stage = grpo_stage(8, settings=", max_unscored_frac = 0.5")
    display = Lines()
    record = train(stages=stage, verifier=FUNCTION.format(name="fails"), display=display)
    assert first(record) == "unscored_flood"
    assert "lost its connection" in diagnose(record)[0].evidence
    place = next(i for i, line in enumerate(display.lines) if line.startswith("base: held-out pass rate"))
    assert re.match(r"base: \d+% of the completions .* First reason: .*connection", display.lines[place - 1])
    assert re.search(r"\] of \d\d% judged", display.lines[place])


def test_a_verifier_that_fails_so_often_that_the_run_stops(train: Train) -> None:
    record = train(stages=grpo_stage(12, settings=", max_unscored_frac = 0.0"), verifier=FUNCTION.format(name="fails"))
    assert [f.name for f in diagnose(record)] == ["unscored_flood"]


def test_memory_close_to_the_limit(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "memory_limit_bytes", lambda device: peak_bytes() / 0.93)
    assert "memory_near_limit" in [f.name for f in diagnose(train(stages=grpo_stage(3)))]


def test_an_exploit_that_the_held_back_grader_does_not_pay(train: Train) -> None:
    held_back = '[monitor]\nheld_back = { kind = "function", path = "rewards.py:exact", isolate = false }'
    record = train(stages=grpo_stage(30), verifier=FUNCTION.format(name="gamed"), sections=held_back)
    assert first(record) == "reward_hacking"


def test_a_model_that_has_not_learned_to_stop(train: Train, untrained: Path) -> None:
    stages = sft_stage(4) + grpo_stage(2)
    assert first(train(model=untrained, stages=stages, rollout={"max_completion_tokens": 20})) == "sft_no_end"


def test_many_updates_on_the_rollouts_of_one_step(train: Train) -> None:
    record = train(stages=grpo_stage(3, settings=", loss = { epochs = 32 }"))
    assert first(record) == "off_policy_clipping"


def test_an_error_in_the_middle(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "TorchEngine", FailingEngine)
    record = train(stages=grpo_stage(6))
    assert [f.name for f in diagnose(record)] == ["ended_by_error"]
    assert record.events_named("failed")[0]["stage"] == "grpo"


@pytest.mark.parametrize("seed", range(10))
def test_a_run_that_learns_is_left_in_peace(tmp_path: Path, seed: int) -> None:
    """All ten seeds: benchmarks/clean_runs.py."""
    display = Lines()
    record = run_job(
        tmp_path / "job",
        model=save_small_model(tmp_path / "model", seed),
        stages=sft_stage() + grpo_stage(30, lr=1e-3),
        seed=seed,
        display=display,
    )
    assert record.summary is not None
    assert record.summary.stages[-1].pass_rate > record.summary.stages[1].pass_rate
    assert diagnose(record) == ()
    assert json.loads(record.directory.diagnosis.read_text()) == {"findings": []}
    assert not any("[" in line and line.endswith("]") and "step" in line for line in display.lines)
