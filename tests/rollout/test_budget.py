from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import EngineError
from groupwise.rollout.budget import bytes_per_token, fit_cache


def test_a_large_budget_holds_everything() -> None:
    shape = fit_cache([50, 40, 60], [4] * 3, 11, trunk_tokens=30, max_rows=100, token_budget=10_000)
    assert (shape.num_rows, shape.num_prompts, shape.branch_tokens, shape.own_tokens) == (12, 3, 30, 10)
    assert shape.num_tokens == 30 + 3 * 30 + 12 * 10


def test_a_small_budget_holds_the_most_rows_that_fit() -> None:
    # 8 rows are 2 groups and 1 spare prompt: 3 x 60 + 8 x 10 = 260. 9 rows are 3 groups and 2 spare: all 4, 330.
    sizes = {"trunk_tokens": 0, "max_rows": 100}
    assert fit_cache([60] * 4, [4] * 4, 11, token_budget=260, **sizes).num_rows == 8
    assert fit_cache([60] * 4, [4] * 4, 11, token_budget=329, **sizes).num_rows == 8
    assert fit_cache([60] * 4, [4] * 4, 11, token_budget=330, **sizes).num_rows == 9
    assert fit_cache([60] * 4, [4] * 4, 11, token_budget=70, **sizes).num_prompts == 1


@given(
    groups=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5)), min_size=1, max_size=6),
    max_tokens=st.integers(1, 20),
    max_rows=st.integers(1, 40),
    budget=st.integers(0, 500),
)
def test_the_bounds_hold(groups: list[tuple[int, int]], max_tokens: int, max_rows: int, budget: int) -> None:
    lengths, sizes = [length for length, _ in groups], [size for _, size in groups]
    try:
        shape = fit_cache(lengths, sizes, max_tokens, trunk_tokens=0, max_rows=max_rows, token_budget=budget)
    except EngineError:
        assert budget < max(lengths) + max(1, max_tokens - 1)
        return
    assert shape.num_tokens <= budget
    assert 1 <= shape.num_rows <= min(max_rows, sum(sizes))
    assert 1 <= shape.num_prompts <= len(lengths)


def test_prompt_slots_follow_the_mean_group_size() -> None:
    """12 rows of 4 prompts: 3 a prompt. 7 of them are 3 groups, and half of that is spare: all 4. 3 are 1 group: 2."""
    sizes = {"trunk_tokens": 0, "token_budget": 10_000}
    assert fit_cache([60] * 4, [1, 1, 2, 8], 11, max_rows=7, **sizes).num_prompts == 4
    assert fit_cache([60] * 4, [1, 1, 2, 8], 11, max_rows=3, **sizes).num_prompts == 2
    assert fit_cache([60] * 4, [1, 1, 2, 8], 11, max_rows=12, **sizes).num_rows == 12


def test_a_budget_for_less_than_one_row_names_the_setting() -> None:
    with pytest.raises(EngineError, match=r"(?s)69 tokens.*needs 71.*rollout\.cache_gb"):
        fit_cache([60], [4], 11, trunk_tokens=0, max_rows=100, token_budget=69)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_the_bytes_of_a_token_are_those_of_a_real_cache(tiny_model: Any, family: str) -> None:
    loaded = tiny_model(family)
    with torch.no_grad():
        cache = loaded.model(torch.tensor([[1, 2, 3]]), use_cache=True).past_key_values
    counted = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert counted == 3 * bytes_per_token(loaded.model)
