"""The count of useful operations, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import flops
import pytest

if TYPE_CHECKING:
    from groupwise.models import LoadedModel


def test_a_tree_is_counted_on_its_distinct_prefixes_without_last_tokens() -> None:
    # Prompt 5 6, completions 7 8 9 and 7 4: without last tokens 5 6 7 8 and 5 6 7, four distinct prefixes of depths
    # 1 2 3 4 (10 pairs). Trained are 7 8 9 4; their parents are "5 6", "5 6 7" and "5 6 7 8", three rows of the head.
    counts = flops.count_tree([((5, 6, 7, 8, 9), 2), ((5, 6, 7, 4), 2)])
    assert counts == flops.TreeCounts(nodes=4, pairs=10, heads=3)


def test_prompts_that_share_nothing_add_up() -> None:
    one = flops.count_tree([((1, 2, 3), 1)])
    assert one == flops.TreeCounts(nodes=2, pairs=3, heads=2)
    both = flops.count_tree([((1, 2, 3), 1), ((4, 2, 3), 1)])
    assert both == flops.TreeCounts(nodes=4, pairs=6, heads=4)


def test_a_repeated_sequence_costs_nothing() -> None:
    assert flops.count_tree([((1, 2, 3, 4), 2)] * 5) == flops.count_tree([((1, 2, 3, 4), 2)])


def test_the_prompt_of_job_a_is_counted_once_for_its_group() -> None:
    # Without the last tokens: 343 + 8 x 31 nodes. The row of the last prompt token is shared: 1 + 8 x 31 rows.
    prompt = tuple(range(1000, 1343))
    counts = flops.count_tree([(prompt + (g,) * 32, 343) for g in range(8)])
    assert counts == flops.TreeCounts(nodes=591, pairs=343 * 344 // 2 + 8 * sum(range(344, 375)), heads=1 + 8 * 31)


def test_the_operations_of_a_tiny_model_by_hand() -> None:
    sizes = flops.ModelSizes(
        hidden=4, vocabulary=10, num_layers=2, attention_heads=2, head_width=2, layer_linears={(4, 4): 2, (4, 8): 1}
    )
    counts = flops.TreeCounts(nodes=3, pairs=6, heads=2)
    # linears 2 x 3 nodes x (2 x 16 + 32) x 2 layers = 768; attention 4 x 6 pairs x 2 layers x 2 heads x 2 = 192;
    # head 2 x 2 rows x 4 x 10 = 160; forward 1120, training three times that
    assert flops.training_flops(sizes, counts) == 3 * 1120


def test_the_sizes_of_a_model_are_those_of_its_linears(tiny_model: Callable[..., LoadedModel]) -> None:
    model = tiny_model("llama").model
    sizes = flops.sizes_of(model)
    per_layer = sum(inner * outer * number for (inner, outer), number in sizes.layer_linears.items())
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and ".layers." in name)
    assert per_layer * sizes.num_layers == matrices
    assert sizes.vocabulary * sizes.hidden == model.get_output_embeddings().weight.numel()


def test_the_peak_is_the_rate_of_all_products_together() -> None:
    sizes = flops.ModelSizes(
        hidden=8, vocabulary=16, num_layers=2, attention_heads=2, head_width=4, layer_linears={(8, 8): 2}
    )
    rates = flops.gemm_peak(sizes, flops.TreeCounts(nodes=5, pairs=15, heads=4), rounds=2)
    each = [rate for name, rate in rates.items() if name != "flops_per_second"]
    assert len(each) == 6  # three products of one linear and of the head
    assert min(each) <= rates["flops_per_second"] <= max(each)


@pytest.mark.parametrize("product", ["forward", "input gradient", "weight gradient"])
def test_every_way_of_a_product_has_the_same_shape(product: str) -> None:
    ways = flops._candidates(rows=5, inner=6, outer=7)[product]
    shapes = {tuple(way().shape) for way in ways}
    assert shapes == {{"forward": (5, 7), "input gradient": (5, 6), "weight gradient": (7, 6)}[product]}
