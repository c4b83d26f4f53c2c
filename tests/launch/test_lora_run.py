"""A whole run with adapters and gradient checkpointing: SFT, then GRPO with a KL to what SFT made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from groupwise.config import load_recipe
from groupwise.launch import local
from groupwise.launch.evaluate import evaluate
from groupwise.runs import RunDirectory, RunSummary, read_metrics
from tiny_job import write_job

Job = tuple[Path, RunDirectory, RunSummary]


def settings(model: str, beta: float = 0.1) -> Callable[[str], str]:
    def change(text: str) -> str:
        for old, new in (
            ('[model]\nname = "model"', f'[model]\nname = "model"\n{model}'),
            ('{ name = "grpo" }', f'{{ name = "grpo", beta = {beta} }}'),
            ("lr = 1e-2", "lr = 3e-2"),
            ("steps = 10", "steps = 30"),
            ("steps = 2\n", "steps = 4\n"),
            ("group_size = 4", "group_size = 8"),
        ):
            assert old in text
            text = text.replace(old, new)
        return text

    return change


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("lora")
    recipe = load_recipe(
        write_job(folder, settings("gradient_checkpointing = true\n[model.lora]\nrank = 8\nalpha = 16.0"))
    )
    return folder, *local.train(recipe)


def test_it_learns_and_sampler_trainer_and_reference_agree(job: Job) -> None:
    _, directory, summary = job
    rows = read_metrics(directory.metrics)
    sft = [row for row in rows if row["stage"] == "sft"]
    grpo = [row for row in rows if row["stage"] == "grpo"]
    assert sft[-1]["nll"] < 0.2 * sft[0]["nll"]
    assert all(row["updated"] == 1 and row["logprob_gap_max"] < 1e-3 for row in grpo)
    # the stage's reference is the base with what SFT trained, not the base: no KL before the first gradient
    live = next(number for number, row in enumerate(grpo) if row["live_groups"] > 0)
    assert live < len(grpo) - 1  # the job is one in which GRPO has something to learn from
    assert [row["kl_to_ref"] for row in grpo[: live + 1]] == pytest.approx([0] * (live + 1), abs=1e-6)
    assert grpo[-1]["kl_to_ref"] > 1e-6
    assert [stage.name for stage in summary.stages] == ["base", "sft", "grpo"]


def test_the_checkpoint_is_the_trained_model_and_only_adapted_layers_changed(job: Job) -> None:
    folder, directory, summary = job
    checkpoint = directory.checkpoints / "grpo-4"
    AutoModelForCausalLM.from_pretrained(checkpoint)
    recipe = load_recipe(folder / "recipe.toml")
    model = recipe.model.model_copy(update={"name": str(checkpoint), "lora": None})
    again = evaluate(recipe.model_copy(update={"model": model}))
    assert (again.pass_rate, again.greedy_pass_rate) == (
        summary.stages[-1].pass_rate,
        summary.stages[-1].greedy_pass_rate,
    )
    before, after = (load_file(path / "model.safetensors") for path in (folder / "model", checkpoint))
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.endswith("_proj.weight")}
    assert (checkpoint / "adapter" / "adapter_config.json").is_file()


def test_the_recipe_in_the_run_names_the_adapters(job: Job) -> None:
    _, directory, _ = job
    lora = load_recipe(directory.recipe).model.lora
    assert lora is not None
    assert (lora.rank, lora.alpha, lora.targets) == (8, 16.0, ())


def test_two_runs_with_one_seed_are_equal(tmp_path: Path) -> None:
    def short(text: str) -> str:
        return settings("[model.lora]")(text).replace("steps = 30", "steps = 2").replace("steps = 4", "steps = 1")

    recipe = load_recipe(write_job(tmp_path, short))
    runs = [read_metrics(local.train(recipe)[0].metrics) for _ in range(2)]
    losses = [[row.get("loss") for row in rows] for rows in runs]
    assert losses[0] == losses[1]
