"""A reward_model stage: measured on pairs it never saw, saved for [verifier], and no step for the policy."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from groupwise.cli.terminal import Terminal
from groupwise.config import load_recipe
from groupwise.errors import ConfigError, DataError
from groupwise.launch.assemble_dpo import build_pairs, render_pairs
from groupwise.launch.display import Quiet
from groupwise.launch.local import resume, train
from groupwise.launch.reward_model_stage import (
    heldout_facts,
    heldout_line,
    refuse_few_pairs,
    run_reward_model_stage,
    split_for_stage,
)
from groupwise.models import load_model
from groupwise.models.lora import add_lora
from groupwise.models.reward_files import load_reward_model, refuse_foreign_tokenizer
from groupwise.models.reward_verifier import RewardModelVerifier
from groupwise.runs import read_events, wilson
from groupwise.types import Task
from tiny_job import write_job

STAGE = """
[[stages]]
name = "judge"
steps = 30
checkpoint_every = 20
algorithm = { name = "reward_model", pairs_per_step = 4, heldout_frac = 0.25 }
optim = { lr = 3e-3 }
"""


def write_recipe(folder: Path, stage: str = STAGE, num_prompts: int = 16) -> Path:
    """The tiny job with one reward_model stage in place of its own; the better answer is the one with a in it."""
    rows = [{"prompt": f"What is {i}?", "chosen": f"{i} a {i}", "rejected": f"{i} z {i}"} for i in range(num_prompts)]
    path = write_job(folder, lambda text: text[: text.index("[[stages]]")] + stage)
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = path.read_text()
    path.write_text(text.replace("[data]\n", '[data]\npairs = "pairs.jsonl"\n'))
    return path


class Events(Quiet):
    """Keeps what it is told."""

    def __init__(self):
        self.rows, self.events, self.lines = [], [], []

    def metrics(self, stage, step, values):
        self.rows.append(values)

    def rollouts(self, stage, step, groups, advantages, *, left_out=None):
        raise AssertionError("nothing is sampled")

    def event(self, name, payload):
        json.dumps(payload)
        self.events.append((name, payload))

    def line(self, text):
        self.lines.append(text)


def run(recipe, loaded, checkpoints):
    pairs = build_pairs(recipe, ())
    scored, _ = render_pairs(recipe, pairs, loaded)
    events = Events()
    stage = run_reward_model_stage(
        recipe,
        recipe.stages[0],
        loaded,
        scored,
        checkpoints=checkpoints,
        recorder=events,
        display=events,
        should_stop=lambda: False,
    )
    return stage, events


@pytest.fixture(scope="module")
def finished(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    recipe = load_recipe(write_recipe(folder))
    loaded = tiny_model()
    before = copy.deepcopy(loaded.model.state_dict())
    stage, events = run(recipe, loaded, folder / "checkpoints")
    assert all(torch.equal(before[name], tensor) for name, tensor in loaded.model.state_dict().items())
    return folder, stage, events


def test_it_is_measured_on_pairs_that_it_never_saw(finished):
    _, stage, events = finished
    [(_, facts)] = [event for event in events.events if event[0] == "reward_model"]
    assert facts["num_heldout_pairs"] == 4  # a quarter of 16
    assert facts["accuracy"] == 1.0
    assert facts["accuracy_low"] == pytest.approx(wilson(4, 4).low)
    assert facts["chosen_score"] - facts["rejected_score"] == pytest.approx(facts["margin"], rel=1e-5)
    assert facts["folder"] == str(stage.outcome.checkpoint)
    assert stage.facts["accuracy"] == 1.0
    assert events.lines[0].startswith("judge: held-out accuracy 100.0% [51.0%, 100.0%] on 4 pairs, mean margin +")
    assert events.lines[1] == f"Reward model: {stage.outcome.checkpoint}"
    assert len(events.rows) == 30


def test_its_checkpoints_are_reward_models_for_a_verifier(finished, tiny_model):
    folder, stage, _ = finished
    assert stage.outcome.checkpoint == folder / "checkpoints" / "judge-30"
    assert (folder / "checkpoints" / "judge-20" / "reward_head.safetensors").is_file()
    loaded = load_reward_model(stage.outcome.checkpoint, device="cpu")
    refuse_foreign_tokenizer(tiny_model(), loaded)
    about = json.loads((stage.outcome.checkpoint / "reward_model.json").read_text())
    assert about["facts"]["accuracy"] == 1.0
    assert about["facts"]["num_train_pairs"] == 12
    judge = RewardModelVerifier(path="judge-30", base_folder=folder / "checkpoints", device="cpu")
    task = Task(id="new", prompt="What is 77?")
    good, bad = judge.judge_many([(task, "77 a 77"), (task, "77 z 77")])
    assert good.reward > 0.6 > 0.4 > bad.reward
    assert (good.outcome, bad.outcome) == (True, False)


def test_mean_and_std_are_those_of_the_held_out_scores(finished):
    _, stage, events = finished
    loaded = load_reward_model(stage.outcome.checkpoint, device="cpu")
    [(_, facts)] = [event for event in events.events if event[0] == "reward_model"]
    assert loaded.mean == pytest.approx((facts["chosen_score"] + facts["rejected_score"]) / 2, rel=1e-4)
    assert loaded.std >= abs(facts["margin"]) / 2


def test_with_adapters_the_base_is_shared_and_the_folder_is_whole(tiny_model, tmp_path):
    recipe = load_recipe(write_recipe(tmp_path, STAGE.replace("3e-3", "2e-2").replace("steps = 30", "steps = 24")))
    policy = copy.deepcopy(tiny_model().model)
    add_lora(policy, rank=4, alpha=8, seed=0, source="tiny")
    before = copy.deepcopy(policy.state_dict())
    stage, events = run(recipe, replace(tiny_model(), model=policy), tmp_path / "checkpoints")
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.state_dict().items())
    loaded = load_reward_model(stage.outcome.checkpoint, device="cpu")
    assert events.rows[-1]["accuracy"] == 1.0
    assert_close(loaded.model.body.embed_tokens.weight, policy.base_model.embed_tokens.weight)


def test_facts_by_hand():
    scores = torch.tensor([[2.0, 0.0], [1.0, 3.0], [0.5, 0.5], [3.0, 0.0]])
    facts = heldout_facts(scores)
    assert facts["accuracy"] == pytest.approx(2.5 / 4)
    assert facts["margin"] == pytest.approx((2 - 2 + 0 + 3) / 4)
    sure = [0.5, 1 / (1 + 2.718281828**-2), 1 / (1 + 2.718281828**-3)]
    assert facts["reliability"] == [
        [1, pytest.approx(0.5), 0.5],
        [2, pytest.approx(sure[1]), 0.5],
        [1, pytest.approx(sure[2]), 1.0],
    ]
    off = (0.0 + 2 * (sure[1] - 0.5) + (1 - sure[2])) / 4
    assert facts["calibration_error"] == pytest.approx(off)
    assert "62.5%" in heldout_line("judge", facts)
    assert f"calibration error {off:.3f}" in heldout_line("judge", facts)


def test_too_few_pairs_are_refused_with_the_setting_to_change(tiny_model, tmp_path):
    text = STAGE.replace("pairs_per_step = 4", "pairs_per_step = 5")
    recipe = load_recipe(write_recipe(tmp_path, text, num_prompts=5))
    scored, _ = render_pairs(recipe, build_pairs(recipe, ()), tiny_model())
    with pytest.raises(DataError, match=r"needs 5 pairs.*\n?.*4 are left after 1 are held out.*\n.*to at most 4"):
        refuse_few_pairs(recipe, scored)
    with pytest.raises(DataError, match="all pairs have one prompt"):
        split_for_stage(recipe, recipe.stages[0], scored[:1] * 8)


def test_a_stage_without_pairs_says_where_they_come_from(tmp_path):
    path = write_recipe(tmp_path)
    path.write_text(path.read_text().replace('pairs = "pairs.jsonl"\n', ""))
    with pytest.raises(ConfigError, match=r"data\.pairs"):
        load_recipe(path)


def test_in_a_run_and_its_restart_the_next_stage_goes_on_with_the_policy_as_it_was(tmp_path, capsys):
    after = """
[[stages]]
name = "sft"
steps = 2
algorithm = { name = "sft", tasks_per_step = 3 }
optim = { lr = 1e-3 }
"""
    recipe = load_recipe(write_recipe(tmp_path, STAGE.replace("steps = 30", "steps = 21") + after))
    directory, summary = train(recipe, accept_audit=True)
    base, judge, sft = summary.stages
    assert [row.name for row in summary.stages] == ["base", "judge", "sft"]
    assert judge.is_policy_unchanged
    assert replace(judge, name="base", seconds=base.seconds, is_policy_unchanged=False) == base
    assert not sft.is_policy_unchanged
    Terminal().outcome(directory, summary)
    shown = " ".join(capsys.readouterr().out.split())
    assert "judge policy unchanged" in shown
    [event] = [e for e in read_events(directory.events) if e["event"] == "reward_model"]
    low, high, num = event["accuracy_low"], event["accuracy_high"], event["num_heldout_pairs"]
    assert f"judge: held-out accuracy {event['accuracy']:.1%} [{low:.1%}, {high:.1%}] on {num} pairs" in shown
    assert sft.name == "sft"
    names = sorted(path.name for path in directory.checkpoints.iterdir())
    assert names == ["judge-20", "judge-21", "sft-2"]
    assert json.loads((directory.checkpoints / "sft-2" / "groupwise.json").read_text())["policy_version"] == 2
    events = [json.loads(line) for line in directory.events.read_text().splitlines()]
    assert any(event.get("event", event.get("name")) == "reward_model" for event in events)
    assert [stage["name"] for stage in json.loads((directory.path / "stages.json").read_text())["finished"]] == [
        "base",
        "judge",
        "sft",
    ]
    _, again = resume(directory.path, from_stage="sft")  # behind the reward model, from the untrained policy
    assert [row.name for row in again.stages] == ["base", "judge", "sft"]
    assert again.stages[2].pass_rate == sft.pass_rate


def test_what_it_wrote_judges_the_rollouts_of_grpo(tmp_path):
    recipe = load_recipe(write_recipe(tmp_path))
    loaded = load_model(str(tmp_path / "model"), device="cpu")
    stage, _ = run(recipe, loaded, tmp_path / "checkpoints")
    grpo = """
[[stages]]
steps = 2
algorithm = { name = "grpo", advantage = { skip_dead_groups = false } }
optim = { lr = 1e-3 }
"""
    path = tmp_path / "recipe.toml"
    text = path.read_text()
    text = text[: text.index("[[stages]]")] + grpo
    judge = f'[verifier]\nkind = "reward_model"\npath = "checkpoints/{stage.outcome.checkpoint.name}"\n\n[rollout]'
    text = text[: text.index("[verifier]")] + judge + text[text.index("[rollout]") + len("[rollout]") :]
    path.write_text(text)
    directory, _ = train(load_recipe(path), accept_audit=True)
    rows = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    assert len(rows) == 2
    assert all(0 < row["reward_mean"] < 1 for row in rows)
    assert all(row["grad_norm"] > 0 for row in rows)
