"""Reward models on disk: exact, readable by transformers, and refused with a reason where they cannot be used."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reward_folders import classifier, saved
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from transformers import AutoModel

from groupwise.errors import EngineError
from groupwise.models.lora import add_lora
from groupwise.models.reward_files import load_reward_model, refuse_foreign_tokenizer
from groupwise.models.reward_model import padded_rewards, reward_model_from, tree_rewards

SEQUENCES = [(5, 7, 8, 9), (5, 7, 10)]


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_what_is_loaded_scores_as_what_was_saved(tiny_model, tmp_path, family):
    loaded = tiny_model(family)
    model = reward_model_from(loaded.model, seed=0)
    folder = saved(tmp_path / "rm", loaded, model, mean=0.25, std=1.5, facts={"accuracy": 0.75})
    again = load_reward_model(folder, device="cpu")
    assert torch.equal(padded_rewards(again.model, SEQUENCES), padded_rewards(model, SEQUENCES))
    assert (again.mean, again.std, again.end_token_id) == (0.25, 1.5, loaded.end_token_ids[0])
    assert not again.reads_conversations
    assert (again.rewards is tree_rewards) == (family != "gemma2")
    assert again.tokenizer.encode("abc") == loaded.tokenizer.encode("abc")
    assert json.loads((folder / "reward_model.json").read_text())["facts"] == {"accuracy": 0.75}


def test_the_folder_is_an_ordinary_one(tiny_model, tmp_path):
    loaded = tiny_model()
    folder = saved(tmp_path / "rm", loaded)
    body = AutoModel.from_pretrained(folder)
    own = loaded.model.base_model.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in body.state_dict().items())


def test_adapters_are_added_into_the_weights(tiny_model, tmp_path):
    policy = copy.deepcopy(tiny_model().model)
    add_lora(policy, rank=2, alpha=4, seed=0, source="tiny")
    model = reward_model_from(policy, seed=0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.normal_(std=0.3)
    folder = saved(tmp_path / "rm", tiny_model(), model)
    assert not any(".lora_" in name for name in load_file(folder / "model.safetensors"))
    again = load_reward_model(folder, device="cpu")
    assert_close(tree_rewards(again.model, SEQUENCES), tree_rewards(model, SEQUENCES), rtol=1e-4, atol=1e-5)
    base = reward_model_from(tiny_model().model, seed=0)
    assert (tree_rewards(again.model, SEQUENCES) - tree_rewards(base, SEQUENCES)).abs().max() > 0.01


def test_a_sequence_classifier_gives_its_own_scores(tmp_path):
    theirs = classifier(tmp_path)
    loaded = load_reward_model(tmp_path, device="cpu")
    ids = torch.tensor([SEQUENCES[0]])
    assert_close(loaded.rewards(loaded.model, [SEQUENCES[0]]), theirs(ids).logits[0], rtol=1e-4, atol=1e-5)
    assert (loaded.mean, loaded.std, loaded.reads_conversations) == (0.0, 1.0, True)


def test_two_labels_are_no_reward_model(tmp_path):
    classifier(tmp_path, labels=2)
    with pytest.raises(EngineError, match=r"2 labels; a reward model has 1"):
        load_reward_model(tmp_path)


def test_a_language_model_is_no_reward_model(tiny_model):
    with pytest.raises(EngineError, match=r"LlamaForCausalLM, which gives no score"):
        load_reward_model(Path(tiny_model().source))


def test_a_missing_folder_says_what_to_give(tmp_path):
    with pytest.raises(EngineError, match=r"not a folder with a config\.json.*\n.*reward_model stage"):
        load_reward_model(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda f: (f / "reward_model.json").write_text("{"), "cannot be read"),
        (
            lambda f: (f / "reward_model.json").write_text('{"format": 9, "mean": 0, "std": 1, "end_token_id": 1}'),
            "format 9",
        ),
        (
            lambda f: (f / "reward_model.json").write_text('{"format": 1, "mean": 0, "std": 0, "end_token_id": 1}'),
            "std = 0",
        ),
        (lambda f: (f / "reward_head.safetensors").unlink(), "cannot be read"),
        (lambda f: (f / "reward_head.safetensors").write_bytes(b"12"), "cannot be read"),
        (lambda f: save_file({"weight": torch.zeros(1, 5)}, f / "reward_head.safetensors"), r"needs \(1, 32\)"),
        (lambda f: (f / "model.safetensors").write_bytes(b"12"), "cannot be read"),
        (lambda f: drop_one_weight(f / "model.safetensors"), "lacks 1 weights"),
    ],
)
def test_a_broken_folder_is_refused(tiny_model, tmp_path, break_it, says):
    folder = saved(tmp_path / "rm", tiny_model())
    break_it(folder)
    with pytest.raises(EngineError, match=says):
        load_reward_model(folder)


def drop_one_weight(path):
    weights = load_file(path)
    del weights["norm.weight"]
    save_file(weights, path, metadata={"format": "pt"})


def test_token_ids_of_another_tokenizer_are_refused_with_both_names(tiny_model, tmp_path):
    policy = tiny_model()
    reward = load_reward_model(saved(tmp_path / "rm", policy), device="cpu")
    refuse_foreign_tokenizer(policy, reward)
    more = copy.deepcopy(reward.tokenizer)
    more.add_tokens(["<more>"])
    refuse_foreign_tokenizer(policy, replace(reward, tokenizer=more))
    with pytest.raises(EngineError, match=r"1 of the policy's 260 tokens differ, such as '<more>'.*unknown") as refused:
        refuse_foreign_tokenizer(replace(policy, tokenizer=more), reward)
    assert policy.source in str(refused.value)
    assert reward.source in str(refused.value)


class Swapped:
    """A tokenizer of the same class and size in which two tokens have changed places."""

    def __init__(self, vocabulary):
        self.vocabulary = dict(vocabulary) | {"A": vocabulary["B"], "B": vocabulary["A"]}

    def get_vocab(self):
        return self.vocabulary


def test_equal_sizes_do_not_hide_other_ids(tiny_model, tmp_path):
    policy = tiny_model()
    reward = load_reward_model(saved(tmp_path / "rm", policy), device="cpu")
    swapped = replace(reward, tokenizer=Swapped(policy.tokenizer.get_vocab()))
    with pytest.raises(EngineError, match=r"2 of the policy's 259 tokens differ, such as 'A'"):
        refuse_foreign_tokenizer(policy, swapped)
