"""Linear layers on a CPU with weights laid out for the processor once, for as long as the weights stand still.

A decode step multiplies a few dozen rows by every weight of the model. The matrix product that torch uses by default
rearranges the weight at every call, which costs as much as the product itself when there are few rows: on one AVX2
core the 49,152-wide head ran at 15 to 31 GFLOP/s, and at 70 to 86 with a weight that oneDNN had rearranged before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def packed_linears(model: nn.Module, *, num_rows: int) -> Iterator[None]:
    """Inside, float32 nn.Linear layers on the CPU use rearranged copies of their weights; gradients are not available.

    num_rows is the usual number of rows, a hint for the layout. The weights must not change inside. Costs one copy of
    the weights in memory. Does nothing on a GPU, in other precisions, or where torch was built without oneDNN.
    """
    packed = list(_packable(model)) if torch.backends.mkldnn.is_available() else []
    for layer in packed:
        _pack(layer, num_rows)
    try:
        yield
    finally:
        for layer in packed:
            del layer.forward  # the class's own forward shows again


def _packable(model: nn.Module) -> Iterator[nn.Linear]:
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.device.type == "cpu" and module.weight.dtype == torch.float32:
            yield module


def _pack(layer: nn.Linear, num_rows: int) -> None:
    weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), num_rows)
    bias = None if layer.bias is None else layer.bias.detach()

    def forward(inputs: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")

    layer.forward = forward  # type: ignore[method-assign, assignment]
