"""Useful floating-point operations of one training phase, and the fastest float32 products of this machine.

The useful work of a batch of sequences is counted on its distinct prefixes, 2 operations a multiply-accumulate:

    nodes    distinct prefixes of the sequences without their last tokens, whose hidden states nothing needs
    pairs    (query, key) pairs that attention must look at: sum of the depths of the nodes, counted from 1
    heads    distinct prefixes whose next token is trained: rows of the LM head

    forward  = 2 nodes sum(in x out of the layers' linears)            projections
             + 4 pairs layers attention_heads head_width               query x key, and weights x value
             + 2 heads hidden vocabulary                               LM head
    training = 3 forward                                               the backward pass needs two products for each one

Not counted, because they are no products or a choice of the implementation: norms, activations, softmax, rotation, the
optimizer; recomputation, masked pairs, padding, repeated prefixes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

HEAD_ROWS = 1024
"""Rows of the LM head's products when the peak is measured; more rows are not faster and need gigabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizes:
    """What the count needs of a model.

    Example:
        ModelSizes(hidden=576, vocabulary=49152, num_layers=30, attention_heads=9, head_width=64,
                   layer_linears={(576, 576): 2, (576, 192): 2, (576, 1536): 2, (1536, 576): 1})
    """

    hidden: int
    vocabulary: int
    num_layers: int
    attention_heads: int
    head_width: int
    layer_linears: Mapping[tuple[int, int], int]
    """(in, out) -> how many such linears one layer has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeCounts:
    """TreeCounts(nodes=3, pairs=6, heads=2): see the module."""

    nodes: int
    pairs: int
    heads: int


def sizes_of(model: torch.nn.Module) -> ModelSizes:
    """Read the sizes from a transformers model: the linears of its first layer, and its config."""
    config = model.config.get_text_config()
    layer_linears: dict[tuple[int, int], int] = {}
    for module in model.base_model.layers[0].modules():
        if isinstance(module, torch.nn.Linear):
            shape = (module.in_features, module.out_features)
            layer_linears[shape] = layer_linears.get(shape, 0) + 1
    heads = config.num_attention_heads
    return ModelSizes(
        hidden=config.hidden_size,
        vocabulary=config.vocab_size,
        num_layers=config.num_hidden_layers,
        attention_heads=heads,
        head_width=getattr(config, "head_dim", None) or config.hidden_size // heads,
        layer_linears=layer_linears,
    )


def count_tree(sequences: Sequence[tuple[Sequence[int], int]]) -> TreeCounts:
    """Counts over (token ids, prompt length) pairs. Sorted sequences share a prefix with their predecessor only."""
    nodes = pairs = 0
    heads: set[int] = set()
    path: list[int] = []  # the nodes of the previous sequence
    previous: tuple[int, ...] = ()
    for ids, prompt_length in sorted((tuple(ids[:-1]), prompt_length) for ids, prompt_length in sequences):
        shared = 0
        while shared < min(len(previous), len(ids)) and previous[shared] == ids[shared]:
            shared += 1
        new = len(ids) - shared
        path[shared:] = range(nodes, nodes + new)
        nodes += new
        pairs += sum(range(shared + 1, len(ids) + 1))
        heads.update(path[max(prompt_length, 1) - 1 :])
        previous = ids
    return TreeCounts(nodes=nodes, pairs=pairs, heads=len(heads))


def training_flops(sizes: ModelSizes, counts: TreeCounts) -> int:
    """The useful operations of forward and backward, by the formula of the module."""
    per_node = sum(inner * outer * number for (inner, outer), number in sizes.layer_linears.items())
    linears = 2 * counts.nodes * per_node * sizes.num_layers
    attention = 4 * counts.pairs * sizes.num_layers * sizes.attention_heads * sizes.head_width
    head = 2 * counts.heads * sizes.hidden * sizes.vocabulary
    return 3 * (linears + attention + head)


def gemm_peak(sizes: ModelSizes, counts: TreeCounts, *, rounds: int = 5) -> dict[str, float]:
    """Float32 operations a second of the products that a training phase of these sizes consists of.

    Each product (forward, gradient of the input, gradient of the weight; of every linear and of the LM head) is timed
    in each way of `_candidates`, and its best time of `rounds` counts. Laying out a weight beforehand is not timed,
    because a weight serves many products.

    Returns:
        "flops_per_second", the operations of all products over the sum of their best times, and the best rate of each.
    """
    rows_and_linears = [
        (counts.nodes, shape, number * sizes.num_layers) for shape, number in sizes.layer_linears.items()
    ]
    head_rows = min(counts.heads, HEAD_ROWS)
    rows_and_linears.append((head_rows, (sizes.hidden, sizes.vocabulary), 1))
    rates: dict[str, float] = {}
    operations = seconds = 0.0
    for rows, (inner, outer), number in rows_and_linears:
        scale = counts.heads / head_rows if outer == sizes.vocabulary else 1.0
        one = 2 * rows * inner * outer
        for name, ways in _candidates(rows, inner, outer).items():
            best = min(_best_seconds(way, rounds) for way in ways)
            rates[f"{name} {rows} x {inner} x {outer}"] = one / best
            operations += one * number * scale
            seconds += best * number * scale
    return {"flops_per_second": operations / seconds, **rates}


def _candidates(rows: int, inner: int, outer: int) -> dict[str, list[Callable[[], Tensor]]]:
    """The three products of a linear, each as torch.mm and, where oneDNN is there, with operands that it laid out."""
    inputs, weight, gradient = torch.randn(rows, inner), torch.randn(outer, inner), torch.randn(rows, outer)
    ways: dict[str, list[Callable[[], Tensor]]] = {
        "forward": [lambda: inputs @ weight.t()],
        "input gradient": [lambda: gradient @ weight],
        "weight gradient": [lambda: gradient.t() @ inputs],
    }
    if torch.backends.mkldnn.is_available():
        reorder, product = torch.ops.mkldnn._reorder_linear_weight, torch.ops.mkldnn._linear_pointwise
        forward, backward = reorder(weight, rows), reorder(weight.t().contiguous(), rows)
        ways["forward"].append(lambda: product(inputs, forward, None, "none", [], ""))
        ways["input gradient"].append(lambda: product(gradient, backward, None, "none", [], ""))
        ways["weight gradient"].append(
            lambda: product(gradient.t().contiguous(), inputs.t().contiguous(), None, "none", [], "")
        )
    return ways


@torch.inference_mode()
def _best_seconds(way: Callable[[], Tensor], rounds: int) -> float:
    way()
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        way()
        best = min(best, time.perf_counter() - started)
    return best
