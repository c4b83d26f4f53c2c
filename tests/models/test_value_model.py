"""A value network: both ways of forwarding it, its start, what it shares, and what is written of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import AutoModel

from groupwise.errors import EngineError
from groupwise.models import (
    LoadedModel,
    ScoredSequence,
    load_model,
    loss_mask,
    padded_scores,
    reward_model,
    tree_scores,
)
from groupwise.models.gradient_checkpointing import with_gradient_checkpointing
from groupwise.models.lora import add_lora
from groupwise.models.tiny import save_tiny_model
from groupwise.models.value_model import (
    HEAD_FILE,
    ValueHead,
    ValueModel,
    load_value_head,
    load_value_model,
    padded_values,
    save_value_model,
    score_function,
    tree_values,
    value_head_for,
    value_model_from,
    values_of,
    with_value_head,
)

TinyModel = Callable[..., LoadedModel]

SEQUENCES = [
    ScoredSequence(token_ids=(5, 6, 7, 8, 9, 10), prompt_length=3),
    ScoredSequence(token_ids=(5, 6, 7, 8, 11), prompt_length=3),
    ScoredSequence(token_ids=(5, 6, 7), prompt_length=2),
    ScoredSequence(token_ids=(4, 9, 9, 9), prompt_length=1),
]


def opinionated(head: ValueHead, seed: int = 0) -> ValueHead:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return head


def critic_of(loaded: LoadedModel) -> ValueModel:
    critic = value_model_from(loaded.model)
    opinionated(critic.head)
    return critic


def gradients(critic: ValueModel, values: Tensor) -> dict[str, Tensor]:
    critic.zero_grad()
    (values * torch.arange(1, values.numel() + 1).reshape(values.shape)).sum().backward()
    return {name: p.grad.clone() for name, p in critic.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gpt2"])
def test_the_tree_gives_the_values_and_gradients_of_a_padded_batch(tiny_model: TinyModel, family: str) -> None:
    critic = critic_of(tiny_model(family))
    tree, padded = tree_values(critic, SEQUENCES), padded_values(critic, SEQUENCES)
    mask = loss_mask(SEQUENCES)
    assert tree.shape == mask.shape
    assert not tree[~mask].any()
    assert_close(tree, padded, atol=1e-4, rtol=1e-4)
    expected = gradients(critic, padded)
    found = gradients(critic, tree)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert_close(gradient, expected[name], atol=1e-3, rtol=1e-3, msg=name)


def test_a_value_is_that_of_the_state_before_its_token(tiny_model: TinyModel) -> None:
    """It may not change with the token that it stands before, nor with a later one."""
    critic = critic_of(tiny_model())
    one, other = (
        tree_values(critic, [ScoredSequence(token_ids=(5, 6, 7, token, 9), prompt_length=2)])[0] for token in (8, 12)
    )
    assert_close(one[:2], other[:2])
    assert (one[2] - other[2]).abs() > 1e-3


def test_completions_of_one_prompt_begin_with_one_value(tiny_model: TinyModel) -> None:
    values = tree_values(critic_of(tiny_model()), SEQUENCES)
    assert values[0, 0] == values[1, 0]
    assert values[0, 1] == values[1, 1]  # both went on with 8


def test_a_new_critic_says_zero_and_is_a_copy(tiny_model: TinyModel) -> None:
    loaded = tiny_model()
    critic = value_model_from(loaded.model)
    assert not tree_values(critic, SEQUENCES).any()
    own = {p.data_ptr() for p in loaded.model.parameters()}
    assert not any(p.data_ptr() in own for p in critic.parameters())
    assert all(p.requires_grad for p in critic.parameters())


def test_below_adapters_the_weights_are_shared_and_only_adapters_and_head_are_trained(tmp_path: Path) -> None:
    loaded = load_model(str(save_tiny_model(tmp_path / "m")), device="cpu")
    add_lora(loaded.model, rank=2, alpha=4.0, seed=0, source="m")
    critic = value_model_from(loaded.model)
    theirs = {p.data_ptr() for p in loaded.model.parameters()}
    for name, parameter in critic.named_parameters():
        trained = ".lora_" in name or name.startswith("head.")
        assert parameter.requires_grad is trained, name
        assert (parameter.data_ptr() in theirs) is not trained, name


def test_a_model_that_no_tree_serves_is_padded(tiny_model: TinyModel) -> None:
    assert values_of(value_model_from(tiny_model("llama").model)) is tree_values
    assert values_of(value_model_from(tiny_model("mistral_window").model)) is padded_values


def test_a_tree_that_gives_other_values_is_found_although_a_new_head_is_zero(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reward_model, "tree_rewards", lambda model, ids: 2 * reward_model.padded_rewards(model, ids))
    assert values_of(value_model_from(tiny_model("llama").model)) is padded_values


@pytest.mark.parametrize("way", [tree_scores, padded_scores])
def test_a_head_on_the_policy_gives_what_a_critic_with_the_same_body_gives(tiny_model: TinyModel, way: object) -> None:
    loaded = tiny_model()
    critic = critic_of(loaded)
    scores = with_value_head(way, critic.head)  # type: ignore[arg-type]
    found = scores(loaded.model, SEQUENCES, temperature=0.7)
    assert_close(found.values, tree_values(critic, SEQUENCES), atol=1e-5, rtol=1e-5)
    assert_close(found.logprobs, way(loaded.model, SEQUENCES, temperature=0.7).logprobs)  # type: ignore[operator]


def test_gradient_checkpointing_changes_no_gradient(tiny_model: TinyModel) -> None:
    critic = critic_of(tiny_model())
    expected = gradients(critic, tree_values(critic, SEQUENCES))
    scores = with_gradient_checkpointing(score_function(tree_values))
    found = gradients(critic, scores(critic, SEQUENCES, temperature=1.0).values)
    for name, gradient in found.items():
        assert_close(gradient, expected[name], msg=name)


def test_half_precision_gives_float32_values(tmp_path: Path) -> None:
    loaded = load_model(str(save_tiny_model(tmp_path / "m")), device="cpu", dtype="bfloat16")
    critic = critic_of(loaded)
    assert critic.head.linear.weight.dtype == torch.float32
    assert tree_values(critic, SEQUENCES).dtype == torch.float32


def test_an_empty_prompt_has_no_state_before_the_completion(tiny_model: TinyModel) -> None:
    critic = value_model_from(tiny_model().model)
    for way in (tree_values, padded_values):
        with pytest.raises(ValueError, match="prompt of at least 1 token"):
            way(critic, [ScoredSequence(token_ids=(5, 6), prompt_length=0)])


def test_a_folder_holds_the_same_critic(tiny_model: TinyModel, tmp_path: Path) -> None:
    critic = critic_of(tiny_model())
    save_value_model(tmp_path / "critic", critic)
    _, report = AutoModel.from_pretrained(tmp_path / "critic", output_loading_info=True)
    assert not report["missing_keys"]
    again = load_value_model(tmp_path / "critic", device=torch.device("cpu"), dtype=torch.float32)
    assert_close(tree_values(again, SEQUENCES), tree_values(critic, SEQUENCES), atol=0, rtol=0)


def test_adapters_are_in_the_weights_of_the_folder(tmp_path: Path) -> None:
    loaded = load_model(str(save_tiny_model(tmp_path / "m")), device="cpu")
    add_lora(loaded.model, rank=2, alpha=4.0, seed=0, source="m")
    critic = critic_of(loaded)
    for name, parameter in critic.named_parameters():
        if ".lora_B." in name:
            nn.init.normal_(parameter, std=0.1)
    save_value_model(tmp_path / "critic", critic)
    again = load_value_model(tmp_path / "critic", device=torch.device("cpu"), dtype=torch.float32)
    assert_close(tree_values(again, SEQUENCES), tree_values(critic, SEQUENCES), atol=1e-4, rtol=1e-4)


def test_folders_that_hold_no_critic_are_refused(tiny_model: TinyModel, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot be read"):
        load_value_model(tmp_path / "nothing", device=torch.device("cpu"), dtype=torch.float32)
    critic = value_model_from(tiny_model().model)
    save_value_model(tmp_path / "critic", critic)
    with pytest.raises(EngineError, match="weight"):
        load_value_head(tmp_path / "critic", ValueHead(7))
    (tmp_path / "critic" / HEAD_FILE).unlink()
    with pytest.raises(EngineError, match=HEAD_FILE):
        load_value_head(tmp_path / "critic", value_head_for(tiny_model().model))
