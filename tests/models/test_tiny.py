from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.models import LoadedModel, load_model
from groupwise.models.tiny import byte_tokenizer, save_tiny_model

TinyModel = Callable[..., LoadedModel]
TOKENIZER = byte_tokenizer()


def weights(loaded: LoadedModel) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in loaded.model.parameters()])


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gpt2", "gemma2", "mistral_window"])
def test_every_family_is_small_and_runs(tiny_model: TinyModel, family: str) -> None:
    loaded = tiny_model(family)
    assert weights(loaded).numel() < 200_000
    assert loaded.end_token_ids == (256, 257)
    logits = loaded.model(torch.tensor([[1, 2, 3]])).logits.detach()
    assert logits.shape == (1, 3, 259)
    # Not flat: what a token attends to must show in a test. A flat distribution has probability 1/259 everywhere.
    assert float(torch.softmax(logits, dim=-1).max()) > 10 / 259


def test_a_seed_decides_the_weights_and_the_random_state_stays(tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, again, other = (
        load_model(str(save_tiny_model(tmp_path / str(n), seed=seed)), device="cpu") for n, seed in enumerate([0, 0, 1])
    )
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(weights(first), weights(again))
    assert not torch.equal(weights(first), weights(other))


def test_a_chat_is_rendered(tiny_model: TinyModel) -> None:
    tokenizer = tiny_model().tokenizer
    turns = [{"role": "user", "content": "Hi"}]
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert tokenizer.decode(ids) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert ids[0] == 258
    assert ids.count(256) == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == "user\nHi\nassistant\n"


@settings(deadline=None)
@given(st.text().filter(lambda text: "<|" not in text))
def test_every_text_comes_back_one_token_a_byte(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert len(ids) == len(text.encode())
    assert TOKENIZER.decode(ids) == text
