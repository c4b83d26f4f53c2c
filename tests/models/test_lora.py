"""Adapters: what is trained, what the sampler sees, and what is written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from adapted import FAMILIES, SEQUENCES, adapted, assert_close, logits, move_adapters, value_and_gradients
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from groupwise.errors import EngineError
from groupwise.models import LoadedModel, load_model, padded_logprobs, tree_logprobs, why_no_tree
from groupwise.models.fused_forward import FusedForward, ModuleForward, sampling_forward
from groupwise.models.lora import (
    adapted_layers,
    adapter_weights,
    adapters_as,
    adapters_off,
    add_lora,
    base_of_adapter,
    effective_weight,
    merged_state_dict,
    save_adapter,
)
from groupwise.models.token_tree import TokenTree
from groupwise.models.tree_attention import TreePlan
from groupwise.training.optim import OptimOptions, build_optimizer

TinyModel = Callable[..., LoadedModel]


@pytest.mark.parametrize("family", FAMILIES)
def test_new_adapters_change_nothing_and_are_all_that_is_trained(tiny_model: TinyModel, family: str) -> None:
    loaded = tiny_model(family)
    model = adapted(loaded, move=False)
    assert torch.equal(logits(model), logits(loaded.model))
    assert type(model) is type(loaded.model)
    assert not any(module.training for module in model.modules())
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {name for name, _ in model.named_parameters() if ".lora_" in name}
    assert len(trained) == 2 * len(adapted_layers(model)) == 2 * 2 * (4 if family == "gpt2" else 7)
    assert not any("lm_head" in name for name in trained)


def test_the_scale_is_alpha_over_rank(tiny_model: TinyModel) -> None:
    loaded = tiny_model()
    model = adapted(loaded, rank=3, alpha=12.0)
    for name, layer in adapted_layers(model).items():
        change = layer.lora_B["default"].weight @ layer.lora_A["default"].weight
        expected = loaded.model.get_submodule(name).weight + 4.0 * change
        torch.testing.assert_close(effective_weight(layer), expected.detach())


def test_adapters_are_drawn_from_their_seed_alone(tiny_model: TinyModel) -> None:
    before = torch.random.get_rng_state()
    first, second, other = (adapter_weights(adapted(tiny_model(), move=False, seed=s)) for s in (5, 5, 6))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_targets_choose_the_layers(tiny_model: TinyModel) -> None:
    layers = adapted_layers(adapted(tiny_model(), targets=("q_proj", "v_proj")))
    assert {name.rpartition(".")[2] for name in layers} == {"q_proj", "v_proj"}
    assert len(layers) == 4


@pytest.mark.parametrize("target", ["lm_head", "c_attn", "embed_tokens"])
def test_a_target_that_is_not_there_is_refused_with_those_that_are(tiny_model: TinyModel, target: str) -> None:
    with pytest.raises(EngineError, match=rf"model\.lora\.targets: .*{target}.*\n  It has down_proj, gate_proj"):
        adapted(tiny_model(), targets=("q_proj", target))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tree_equals_the_padded_batch(tiny_model: TinyModel, family: str) -> None:
    model = adapted(tiny_model(family))
    assert why_no_tree(model) is None
    tree, tree_gradients = value_and_gradients(tree_logprobs, model)
    padded, padded_gradients = value_and_gradients(padded_logprobs, model)
    torch.testing.assert_close(tree, padded, atol=1e-5, rtol=1e-5)
    assert_close(tree_gradients, padded_gradients, relative=1e-5)
    assert all(".lora_" in name and gradient.any() for name, gradient in tree_gradients.items())
    assert len(tree_gradients) == 2 * len(adapted_layers(model))


def sampler_logits(model: Any, forward: Any) -> torch.Tensor:
    tree = TokenTree.build([s.token_ids for s in SEQUENCES])
    with torch.inference_mode():
        return forward.head(forward(tree.token_ids, tree.depth, TreePlan(tree, device=model.device)))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_sampler_sees_the_adapters(tiny_model: TinyModel, family: str) -> None:
    loaded = tiny_model(family)
    model = adapted(loaded)
    forward = sampling_forward(model, 8)
    assert isinstance(forward, ModuleForward if family == "gpt2" else FusedForward)
    found, expected = sampler_logits(model, forward), sampler_logits(model, ModuleForward(model))
    torch.testing.assert_close(found.log_softmax(-1), expected.log_softmax(-1), atol=2e-5, rtol=1e-5)
    unchanged = sampler_logits(loaded.model, ModuleForward(loaded.model))
    assert (found - unchanged).abs().max() > 0.1


def test_the_sampler_sees_the_base_where_adapters_are_off(tiny_model: TinyModel) -> None:
    loaded = tiny_model()
    model = adapted(loaded)
    with adapters_off(model):
        found = sampler_logits(model, sampling_forward(model, 8))
    assert torch.equal(found, sampler_logits(loaded.model, sampling_forward(loaded.model, 8)))


def test_with_tied_embeddings_neither_end_is_touched(tmp_path: Path) -> None:
    model = tied_llama()
    before = logits(model)
    add_lora(model, rank=2, alpha=4.0, seed=0, source="tied")
    assert torch.equal(logits(model), before)
    move_adapters(model)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    fused = sampler_logits(model, sampling_forward(model, 8))
    torch.testing.assert_close(fused, sampler_logits(model, ModuleForward(model)), atol=1e-4, rtol=1e-5)
    model.save_pretrained(tmp_path, state_dict=merged_state_dict(model))
    opened: Any = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert opened.get_output_embeddings().weight is opened.get_input_embeddings().weight
    torch.testing.assert_close(logits(opened), logits(model), atol=1e-4, rtol=1e-5)
    assert (logits(opened) - before).abs().max() > 0.1


def tied_llama() -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=50, initializer_range=0.3, tie_word_embeddings=True, **sizes, **heads)
    ).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_off_is_the_original_model(tiny_model: TinyModel, family: str) -> None:
    loaded = tiny_model(family)
    model = adapted(loaded)
    on = logits(model)
    assert not torch.allclose(on, logits(loaded.model), atol=0.1)
    with adapters_off(model) as base:
        assert base is model
        assert torch.equal(logits(model), logits(loaded.model))
    assert torch.equal(logits(model), on)
    with pytest.raises(RuntimeError), adapters_off(model):
        raise RuntimeError
    assert torch.equal(logits(model), on)
    assert all(p.requires_grad for name, p in model.named_parameters() if ".lora_" in name)


def test_other_adapters_for_a_while(tiny_model: TinyModel) -> None:
    model = adapted(tiny_model())
    earlier, weights = logits(model), adapter_weights(model)
    move_adapters(model, seed=2)
    now = logits(model)
    assert not torch.allclose(now, earlier, atol=0.1)
    found = tree_logprobs(model, SEQUENCES, temperature=1.0)
    with adapters_as(model, weights):  # between a forward and its backward, as in a step
        assert torch.equal(logits(model), earlier)
    found.sum().backward()
    assert torch.equal(logits(model), now)
    again = adapted(tiny_model())
    move_adapters(again, seed=2)
    tree_logprobs(again, SEQUENCES, temperature=1.0).sum().backward()
    expected = dict(again.named_parameters())
    assert all(torch.equal(p.grad, expected[n].grad) for n, p in model.named_parameters() if p.grad is not None)


@pytest.mark.parametrize("family", FAMILIES)
def test_merged_weights_compute_the_same(tiny_model: TinyModel, family: str, tmp_path: Path) -> None:
    model = adapted(tiny_model(family), dtype=torch.float64)
    before = logits(model)
    merged = merged_state_dict(model)
    assert merged.keys() == tiny_model(family).model.state_dict().keys()
    model.save_pretrained(tmp_path, state_dict=merged)
    opened = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    torch.testing.assert_close(logits(opened), before, atol=1e-10, rtol=0)
    assert torch.equal(logits(model), before)


def test_a_merge_in_bfloat16_is_added_in_float32(tiny_model: TinyModel) -> None:
    model = adapted(tiny_model(), dtype=torch.bfloat16)
    layer = next(iter(adapted_layers(model).values()))
    assert layer.lora_A["default"].weight.dtype == torch.float32
    change = 2.0 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    assert logits(model).dtype == torch.bfloat16
    found = effective_weight(layer)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, (layer.base_layer.weight.float() + change).bfloat16())


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_folder_with_an_adapter_is_loaded_with_its_base(tiny_model: TinyModel, family: str, tmp_path: Path) -> None:
    model = adapted(tiny_model(family))
    save_adapter(tmp_path, model)
    assert base_of_adapter(tmp_path) == tiny_model(family).source
    opened = load_model(str(tmp_path), device="cpu")
    torch.testing.assert_close(logits(opened.model), logits(model), atol=1e-4, rtol=1e-5)
    assert opened.source == str(tmp_path)
    assert not adapted_layers(opened.model)
    assert not opened.model.training
    assert all(p.requires_grad for p in opened.model.parameters())


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft's own
def test_peft_opens_what_is_written(tiny_model: TinyModel, tmp_path: Path) -> None:
    from peft import PeftModel

    model = adapted(tiny_model())
    save_adapter(tmp_path, model)
    base = AutoModelForCausalLM.from_pretrained(tiny_model().source, dtype=torch.float32)
    assert torch.equal(logits(PeftModel.from_pretrained(base, str(tmp_path))), logits(model))
    assert json.loads((tmp_path / "adapter_config.json").read_text())["base_model_name_or_path"] == tiny_model().source


def test_an_adapter_without_the_name_of_its_base_is_refused(tiny_model: TinyModel, tmp_path: Path) -> None:
    save_adapter(tmp_path, adapted(tiny_model(), source=""))
    with pytest.raises(EngineError, match="does not name its base model"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("other", ["gpt2", "qwen2"])
def test_an_adapter_of_another_model_is_refused(tiny_model: TinyModel, other: str, tmp_path: Path) -> None:
    """gpt2 has no such layers; the file of the qwen2 lacks half of the layers that its config names."""
    save_adapter(tmp_path, adapted(tiny_model(), targets=("q_proj",)))
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    config |= {"base_model_name_or_path": tiny_model(other).source}
    if other == "qwen2":
        config |= {"target_modules": ["q_proj", "k_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(EngineError, match="does not fit its base model"):
        load_model(str(tmp_path), device="cpu")


def test_the_optimizer_moves_adapters_only(tiny_model: TinyModel) -> None:
    model = adapted(tiny_model())
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = build_optimizer(model, OptimOptions(lr=1e-2, weight_decay=0.1))
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for name, p in model.named_parameters() if ".lora_" in name}
    tree_logprobs(model, SEQUENCES, temperature=1.0).sum().backward()
    assert {name for name, p in model.named_parameters() if p.grad is not None} == {n for n in before if ".lora_" in n}
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) == (".lora_" not in name), name


def test_full_training_does_not_import_peft() -> None:
    code = "import sys, groupwise.launch.assemble; sys.exit('peft' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
