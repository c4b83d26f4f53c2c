from __future__ import annotations

import pytest
import torch
from torch import Tensor

from groupwise.models import TokenTree
from groupwise.rollout.decode import DecodePlan

HEADS, KEY_HEADS, WIDTH, NUM_NEW = 4, 2, 3, 5
SCALING = 0.6


def naive_attention(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query [H, d] against keys and values [K, n, d]: each query head in turn."""
    heads = []
    for head in range(HEADS):
        of = head // (HEADS // KEY_HEADS)
        weights = torch.softmax(SCALING * keys[of] @ query[head], dim=-1)
        heads.append(weights @ values[of])
    return torch.stack(heads)


@pytest.mark.parametrize(
    ("prompts", "prompt_of_row"),
    [
        pytest.param([(1, 2, 3)], [0, 0, 0], id="one prompt"),
        pytest.param([(1, 2, 3, 4), (1, 2, 5), (1, 2, 3, 6, 7)], [0, 1, 2, 1, 0, 1], id="shared first part"),
        pytest.param([(1, 2, 3, 4), (1, 5, 6, 7), (1, 2, 3, 8)], [0, 1, 2], id="the middle one parts first"),
        pytest.param([(1, 2), (3,), (4, 5, 6)], [0, 0, 1, 2], id="nothing shared"),
        pytest.param([(1, 2), (1, 2)], [0, 1, 1], id="equal prompts"),
        pytest.param([(1, 2, 3), (1, 2)], [0, 1], id="one prompt begins another"),
    ],
)
def test_three_parts_give_the_attention_over_all_keys(prompts: list[tuple[int, ...]], prompt_of_row: list[int]) -> None:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    tree = TokenTree.build(prompts)
    layers = 2
    kept = {
        n: (random(1, KEY_HEADS, tree.num_nodes, WIDTH), random(1, KEY_HEADS, tree.num_nodes, WIDTH))
        for n in range(layers)
    }
    plan = DecodePlan(kept, tree, prompts, prompt_of_row, NUM_NEW)
    # What each row may see, in the plain form: its prompt's keys, then its own.
    seen = {
        (layer, row): [kept[layer][part][0][:, tree.paths[prompt]] for part in (0, 1)]
        for layer in range(layers)
        for row, prompt in enumerate(prompt_of_row)
    }
    rows = list(range(len(prompt_of_row)))
    for step in range(NUM_NEW):
        if step == 2:  # rows leave and the rest changes places
            chosen = list(range(len(rows)))[::-2]
            plan.keep_rows(torch.tensor(chosen))
            rows = [rows[i] for i in chosen]
        for layer in range(layers):
            query, key, value = (random(1, heads, len(rows), WIDTH) for heads in (HEADS, KEY_HEADS, KEY_HEADS))
            found = plan.attend(layer, query, key, value, SCALING)
            assert found.shape == (1, len(rows), HEADS, WIDTH)
            for place, row in enumerate(rows):
                for part, new in enumerate((key, value)):
                    seen[layer, row][part] = torch.cat([seen[layer, row][part], new[0, :, place : place + 1]], dim=1)
                expected = naive_attention(query[0, :, place], *seen[layer, row])
                torch.testing.assert_close(found[0, place], expected, atol=1e-5, rtol=1e-5)
        plan.num_new += 1
