"""Attention of one new token a row against stored keys: shared parts once, each row's own part beside them.

The keys of a decode batch lie in three parts, in buffers that are allocated once a call:

    trunk    [1, K, T0, d]               what all prompts of the call begin with, where that is long enough
    branch   [prompt slots, K, T1, d]    the rest of each prompt
    own      [row slots, K, T2, d]       what each row has produced

A query attends to each part by itself, and the parts are joined by their log-sum-exp (`join`), which equals one softmax
over all scores. K are the key heads, H the query heads; the H / K query heads of one key head become queries of it, so
the rows of a prompt are one product with its branch, and all rows one with the trunk.

Rows stand at the places 0 .. R - 1 of the own buffer. Which prompt slot a row belongs to and how much it has produced
is said anew for every step (`DecodeCache.plan`): rows may come, leave and change places between two steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]
"""Keys and values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """Where rows stand in a [prompts, columns] grid when they do not fill it in order."""

    row_of_cell: Tensor
    """[prompts * columns] row numbers; an empty cell repeats row 0."""
    cell_of_row: Tensor
    """[R]."""


class DecodeCache:
    """The stored keys and values of one decode batch; `plan` gives the AttentionPlan of the next step."""

    def __init__(self, *, num_rows: int, num_prompts: int, branch_tokens: int, own_tokens: int) -> None:
        """Slots for so many rows and prompts, each slot of so many tokens. Memory is taken at the first `store`."""
        self._num_rows, self._num_prompts = num_rows, num_prompts
        self._branch_tokens, self._own_tokens = branch_tokens, own_tokens
        self._trunk: dict[int, Pair] = {}
        self._branch: dict[int, Pair] = {}
        self._own: dict[int, Pair] = {}
        self._branch_lengths = [0] * num_prompts

    @property
    def trunk(self) -> dict[int, Pair]:
        """Keys and values [1, K, T0, d] of each layer; empty before `store_trunk`."""
        return self._trunk

    @property
    def buffers(self) -> list[Tensor]:
        """Every tensor held, for counting bytes."""
        return [x for part in (self._trunk, self._branch, self._own) for pair in part.values() for x in pair]

    def store_trunk(self, kept: dict[int, Pair], nodes: Tensor) -> None:
        """Keeps the trunk: kept[layer] = keys and values [1, K, T, d] of a prefill, nodes [T0] the trunk's."""
        self._trunk = {layer: (k[:, :, nodes], v[:, :, nodes]) for layer, (k, v) in kept.items()}

    def store(self, slot: int, kept: dict[int, Pair], nodes: Tensor) -> None:
        """Puts a prompt's branch into a slot; nodes [at least 1] are its nodes behind the trunk, in order."""
        if not self._branch:
            self._branch = self._allocated(kept, self._num_prompts, self._branch_tokens)
            self._own = self._allocated(kept, self._num_rows, self._own_tokens)
        length = nodes.shape[0]
        for layer, pair in kept.items():
            for stored, new in zip(self._branch[layer], pair, strict=True):
                torch.index_select(new[0], 1, nodes, out=stored[slot, :, :length])
        self._branch_lengths[slot] = length

    def _allocated(self, kept: dict[int, Pair], slots: int, tokens: int) -> dict[int, Pair]:
        def zeros(like: Tensor) -> Tensor:
            return _zeros((slots, like.shape[1], tokens, like.shape[3]), like)

        return {layer: (zeros(k), zeros(v)) for layer, (k, v) in kept.items()}

    def move_rows(self, origins: Sequence[int], places: Sequence[int], length: int) -> None:
        """Copies the first `length` own tokens of the rows at `origins` to `places`; the two have no row in common."""
        for pair in self._own.values():
            for stored in pair:
                for origin, place in zip(origins, places, strict=True):
                    stored[place, :, :length] = stored[origin, :, :length]

    def move_branch(self, origin: int, place: int) -> None:
        """Copies a prompt to another slot."""
        length = self._branch_lengths[place] = self._branch_lengths[origin]
        for pair in self._branch.values():
            for stored in pair:
                stored[place, :, :length] = stored[origin, :, :length]

    def plan(self, prompt_of_row: Sequence[int], own_lengths: Sequence[int]) -> DecodePlan:
        """For a step of the rows 0 .. R - 1: their prompt slots, and how many own tokens of each are stored."""
        device = next(iter(self._branch.values()))[0].device
        dtype = next(iter(self._branch.values()))[0].dtype
        num_prompts = max(prompt_of_row) + 1
        columns, grid = _lay_out(prompt_of_row, num_prompts, device)
        # A slot without rows is computed and not read; counted as full, it does not widen or mask anything.
        used = set(prompt_of_row)
        width = max(self._branch_lengths[p] for p in used)
        branch_lengths = [self._branch_lengths[p] if p in used else width for p in range(num_prompts)]
        own_width = max(own_lengths) + 1
        own_mask = _mask([n + 1 for n in own_lengths], own_width, device, dtype)
        return DecodePlan(
            cache=self,
            num_prompts=num_prompts,
            columns=columns,
            grid=grid,
            branch_width=width,
            branch_mask=_mask(branch_lengths, width, device, dtype),
            own_width=own_width,
            own_mask=own_mask,
            own_places=None if own_mask is None else torch.tensor(own_lengths, device=device),
        )

    def parts(self, layer: int) -> tuple[Pair | None, Pair, Pair]:
        """The buffers of one layer: trunk or None, branch, own."""
        return self._trunk.get(layer), self._branch[layer], self._own[layer]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodePlan:
    """An AttentionPlan for one new token of each row. A mask is None where nothing has to be hidden."""

    cache: DecodeCache
    num_prompts: int
    columns: int
    """Most rows of one prompt."""
    grid: _Grid | None
    """None where row r stands in cell r."""
    branch_width: int
    branch_mask: Tensor | None
    """[prompts, 1, 1, branch_width], added to the scores."""
    own_width: int
    own_mask: Tensor | None
    """[R, 1, 1, own_width], added to the scores."""
    own_places: Tensor | None
    """[R] where the new keys go; None where all go to own_width - 1."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See AttentionPlan: the N tokens are the newest tokens of the R rows, in order."""
        heads, rows, width = query.shape[1:]
        key_heads = key.shape[1]
        repeats = heads // key_heads
        trunk, (branch_keys, branch_values), (own_keys, own_values) = self.cache.parts(layer)
        for stored, new in ((own_keys, key), (own_values, value)):
            if self.own_places is None:
                stored[:rows, :, self.own_width - 1] = new[0].transpose(0, 1)
            else:
                stored[torch.arange(rows, device=stored.device), :, self.own_places] = new[0].transpose(0, 1)
        q = query[0].transpose(0, 1).reshape(rows, key_heads, repeats, width)
        seen = (slice(None, rows), slice(None), slice(None, self.own_width))
        attended = attention(q, own_keys[seen], own_values[seen], self.own_mask, scaling)
        seen = (slice(None, self.num_prompts), slice(None), slice(None, self.branch_width))
        in_grid = attention(self._to_grid(q), branch_keys[seen], branch_values[seen], self.branch_mask, scaling)
        attended = join(attended, (self._from_grid(in_grid[0]), self._from_grid(in_grid[1])))
        if trunk is not None:
            together = q.transpose(0, 1).reshape(1, key_heads, rows * repeats, width)
            of_trunk = [
                x[0].unflatten(1, (rows, repeats)).transpose(0, 1) for x in attention(together, *trunk, None, scaling)
            ]
            attended = join(attended, (of_trunk[0], of_trunk[1]))
        return attended[0].reshape(1, rows, heads, width)

    def _to_grid(self, rows: Tensor) -> Tensor:
        """[R, K, repeats, d] -> [prompts, K, columns * repeats, d]."""
        cells = rows if self.grid is None else rows[self.grid.row_of_cell]
        by_prompt = cells.unflatten(0, (self.num_prompts, self.columns))
        return by_prompt.transpose(1, 2).flatten(2, 3)

    def _from_grid(self, grid: Tensor) -> Tensor:
        """[prompts, K, columns * repeats, ...] -> [R, K, repeats, ...]."""
        cells = grid.unflatten(2, (self.columns, -1)).transpose(1, 2).flatten(0, 1)
        return cells if self.grid is None else cells[self.grid.cell_of_row]


def attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scaling: float) -> Pair:
    """Attended values [B, K, n, d] and the log-sum-exp [B, K, n] of the scores, for queries [B, K, n, d].

    mask [B, 1, 1, T] is added to the scores. On a CPU, torch's own kernel gives both without storing the scores.
    """
    if query.device.type == "cpu" and query.shape[-1] == values.shape[-1]:
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        attended, total = kernel(query, keys, values, attn_mask=mask, scale=scaling)
        return attended, total
    scores = (query @ keys.transpose(-1, -2)).float() * scaling
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, dim=-1).to(values.dtype) @ values, scores.logsumexp(dim=-1)


def join(one: Pair, other: Pair) -> Pair:
    """Attention over two sets of keys from the attention over each, exactly.

        w = sigmoid(lse_other - lse_one)    attended = (1 - w) one + w other    lse = log(exp(lse_one) + exp(lse_other))

    Each is (attended [..., d], log-sum-exp of the scores [...]).
    """
    weight = torch.sigmoid(other[1] - one[1]).unsqueeze(-1)
    return torch.lerp(one[0], other[0], weight.to(one[0].dtype)), torch.logaddexp(one[1], other[1])


def _lay_out(prompt_of_row: Sequence[int], num_prompts: int, device: torch.device) -> tuple[int, _Grid | None]:
    """The number of columns, and the grid where rows do not fill it in order."""
    counts = Counter(prompt_of_row)
    columns = max(counts.values())
    if len(prompt_of_row) == num_prompts * columns and list(prompt_of_row) == sorted(prompt_of_row):
        return columns, None
    row_of_cell, cell_of_row = [0] * (num_prompts * columns), []
    taken = [0] * num_prompts
    for row, prompt in enumerate(prompt_of_row):
        cell = prompt * columns + taken[prompt]
        taken[prompt] += 1
        row_of_cell[cell] = row
        cell_of_row.append(cell)
    return columns, _Grid(
        row_of_cell=torch.tensor(row_of_cell, device=device), cell_of_row=torch.tensor(cell_of_row, device=device)
    )


def _mask(lengths: Sequence[int], width: int, device: torch.device, dtype: torch.dtype) -> Tensor | None:
    """[len(lengths), 1, 1, width]: 0 for the first lengths[i] places, -inf behind; None where nothing is."""
    if min(lengths) == width:
        return None
    hidden = torch.arange(width, device=device) >= torch.tensor(lengths, device=device)[:, None]
    mask = torch.zeros(hidden.shape, device=device, dtype=dtype).masked_fill_(hidden, float("-inf"))
    return mask[:, None, None, :]


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Zeros, because masked places are still multiplied by 0 and must not hold NaN.

    On a CPU numpy asks the system for zeroed pages, which cost nothing until they are written: most slots stay short.
    """
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    num_bytes = int(np.prod(shape)) * like.element_size()
    return torch.from_numpy(np.zeros(num_bytes, np.uint8)).view(like.dtype).view(shape)
