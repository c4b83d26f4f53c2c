"""A whole run with PPO: SFT, then PPO with a critic of its own, or with a head on the policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForCausalLM

from groupwise.config import load_recipe
from groupwise.errors import EngineError
from groupwise.launch import local
from groupwise.launch.assemble import build_policy
from groupwise.launch.assemble_ppo import build_critic
from groupwise.models import load_model
from groupwise.models.reward_files import save_reward_model
from groupwise.models.reward_model import reward_model_from
from groupwise.models.value_model import HEAD_FILE, load_value_model
from groupwise.runs import RunDirectory, RunSummary, read_metrics
from groupwise.training.optim import OptimOptions
from groupwise.training.ppo_networks import OwnCritic
from tiny_job import write_job

Job = tuple[Path, RunDirectory, RunSummary]


def with_ppo(settings: str, model: str = "", sft_steps: int = 30) -> Callable[[str], str]:
    def change(text: str) -> str:
        for old, new in (
            ('name = "grpo"\nsteps = 2', 'name = "ppo"\nsteps = 3'),
            ('{ name = "grpo" }', f'{{ name = "ppo", completions_per_prompt = 4, {settings} }}'),
            ("steps = 10", f"steps = {sft_steps}"),
            ("lr = 1e-2", "lr = 3e-2"),
            ('[model]\nname = "model"', f'[model]\nname = "model"\n{model}'),
        ):
            assert old in text, old
            text = text.replace(old, new)
        return text

    return change


def run(folder: Path, settings: str, model: str = "", sft_steps: int = 30) -> Job:
    return folder, *local.train(load_recipe(write_job(folder, with_ppo(settings, model, sft_steps))))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return run(tmp_path_factory.mktemp("own"), "epochs = 2, minibatches = 2, critic = { lr = 5e-3 }")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return run(tmp_path_factory.mktemp("shared"), "epochs = 2, critic = { shared = true }, truncation.penalty = 0.5")


def ppo_rows(job: Job) -> list[dict[str, float]]:
    return [row for row in read_metrics(job[1].metrics) if row["stage"] == "ppo"]


def test_every_number_of_a_step_is_reported(own: Job) -> None:
    rows = ppo_rows(own)
    assert len(rows) == 3
    names = (
        "critic_value_loss critic_grad_norm explained_variance kl_to_ref kl_to_ref_sum kl_coef return_mean value_mean"
    )
    names += " clipped_low clipped_high kl_to_old entropy reward_mean reward_with_kl_mean logprob_gap_mean lr"
    for row in rows:
        assert row.keys() >= set(names.split())
        assert row["logprob_gap_max"] < 1e-3
        assert row["entropy"] > 0
    assert rows[0]["kl_to_ref"] == pytest.approx(0, abs=1e-6)  # the reference is what SFT made
    assert rows[0]["value_mean"] == 0  # the head begins at zero
    assert rows[-1]["value_mean"] != 0
    assert [row["policy_version"] for row in rows] == [34, 38, 42]  # 30 of SFT, then 2 epochs x 2 parts a step


def test_an_own_critic_lies_beside_a_policy_that_opens_as_ever(own: Job) -> None:
    _, directory, _ = own
    checkpoint = directory.checkpoints / "ppo-3"
    AutoModelForCausalLM.from_pretrained(checkpoint)
    AutoModel.from_pretrained(checkpoint / "critic")
    assert "kl_coef" in (checkpoint / "groupwise.json").read_text()
    critic = load_value_model(checkpoint / "critic", device=torch.device("cpu"), dtype=torch.float32)
    assert critic.head.linear.weight.any()
    policy = load_file(checkpoint / "model.safetensors")
    assert not any("head.linear" in name for name in policy)
    sft = load_file(directory.checkpoints / "sft-30" / "model.safetensors")
    assert policy.keys() == sft.keys()
    assert any(not torch.equal(policy[name], sft[name]) for name in sft)


def test_a_shared_head_is_one_file_and_no_part_of_the_model(shared: Job) -> None:
    _, directory, _ = shared
    checkpoint = directory.checkpoints / "ppo-3"
    _, report = AutoModelForCausalLM.from_pretrained(checkpoint, output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["missing_keys"]
    head = load_file(checkpoint / HEAD_FILE)
    assert head["weight"].any()
    assert not (checkpoint / "critic").exists()
    assert all(row["critic_value_loss"] >= 0 for row in ppo_rows(shared))


def test_adapters_serve_policy_critic_and_reference(tmp_path: Path) -> None:
    job = run(
        tmp_path,
        "epochs = 2, critic = { lr = 5e-3 }, truncation.penalty = 1.0",
        "gradient_checkpointing = true\n[model.lora]\nrank = 8\nalpha = 16.0",
        sft_steps=2,
    )
    rows = ppo_rows(job)
    assert rows[0]["reward_with_kl_mean"] != 0  # there is something to learn
    assert rows[0]["kl_to_ref"] == pytest.approx(0, abs=1e-6)
    checkpoint = job[1].checkpoints / "ppo-3"
    merged = load_file(checkpoint / "critic" / "model.safetensors")
    assert not any("lora" in name or "base_layer" in name for name in merged)
    policy = load_file(checkpoint / "model.safetensors")
    assert any(not torch.equal(merged[name], policy[f"model.{name}"]) for name in merged)


def test_a_critic_starts_from_a_reward_model_or_from_a_critic(own: Job) -> None:
    folder, directory, _ = own
    recipe = load_recipe(folder / "recipe.toml")
    policy = build_policy(recipe)
    reward = reward_model_from(policy.loaded.model, seed=1)
    with torch.no_grad():
        reward.body.get_input_embeddings().weight.mul_(2)
    save_reward_model(folder / "reward", reward, policy.loaded.tokenizer, end_token_id=2)
    section = recipe.stages[1].algorithm.critic

    def started(start: str) -> OwnCritic:
        critic = build_critic(
            section.model_copy(update={"start": start}),
            recipe=recipe,
            optim=OptimOptions(lr=1e-3),
            loaded=policy.loaded,
        )
        assert isinstance(critic, OwnCritic)
        return critic

    critic = started("reward")
    assert torch.equal(critic.model.body.get_input_embeddings().weight, reward.body.get_input_embeddings().weight)
    assert not critic.model.head.linear.weight.any()
    assert critic.optim.lr == 5e-3
    assert all(p.requires_grad for p in critic.model.parameters())
    again = started(str(directory.checkpoints / "ppo-3" / "critic"))
    assert again.model.head.linear.weight.any()


def test_a_reward_model_can_be_the_judge(tmp_path: Path) -> None:
    """The scores are the reward: numbers between 0 and 1, none of them an outcome that a program proved."""

    def judged(text: str) -> str:
        before, _, rest = with_ppo("epochs = 2", sft_steps=2)(text).partition("[verifier]")
        _, _, after = rest.partition("[rollout]")
        return f'{before}[verifier]\nkind = "reward_model"\npath = "reward"\n[audit]\nfast_tasks = 0\n[rollout]{after}'

    path = write_job(tmp_path, judged)
    tiny = load_model(str(tmp_path / "model"), device="cpu")
    reward = reward_model_from(tiny.model, seed=1)
    save_reward_model(tmp_path / "reward", reward, tiny.tokenizer, end_token_id=tiny.end_token_ids[0])
    directory, _ = local.train(load_recipe(path))
    rows = [row for row in read_metrics(directory.metrics) if row["stage"] == "ppo"]
    assert all(0 < row["reward_mean"] < 1 and row["unscored_frac"] == 0 for row in rows)


def test_a_start_that_is_not_there_is_refused_before_anything_is_sampled(tmp_path: Path) -> None:
    recipe = load_recipe(write_job(tmp_path, with_ppo('critic = { start = "nowhere" }')))
    with pytest.raises(EngineError, match=r"algorithm\.critic\.start = 'nowhere'"):
        local.train(recipe)
    assert not (tmp_path / "runs").exists()


def test_a_start_that_gives_no_score_is_refused_before_anything_is_sampled(tmp_path: Path) -> None:
    recipe = load_recipe(write_job(tmp_path, with_ppo('critic = { start = "model" }')))
    with pytest.raises(EngineError, match=r"critic\.start = 'model' holds no critic.*(?s:.*)gives no score"):
        local.train(recipe)
    assert not (tmp_path / "runs").exists()


def test_the_path_of_a_start_is_absolute_in_the_recipe_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "reward").mkdir()
    recipe = load_recipe(write_job(tmp_path, with_ppo('critic = { start = "reward" }')))
    assert recipe.with_absolute_paths().stages[1].algorithm.critic.start == str(tmp_path / "reward")
