"""Attention of one new token a row against stored keys: shared parts once, each row's own part beside them.

The keys of a decode batch lie in three parts:

    trunk    [K, T0, d]        what all prompts begin with (a system turn, a schema): stored once
    branch   [P, K, T1, d]     the rest of each prompt: stored once a prompt, padded on the right
    own      [R, K, T2, d]     what each row has produced so far, in a buffer of full length

A query scores all three, one softmax runs over the scores side by side, and the values are summed part by part. The
trunk is one matrix product for all rows, the branch one a prompt. K are the key heads, H the query heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from groupwise.models.token_tree import TokenTree, shared_prefix_length


class DecodePlan:
    """The stored keys and values of one decode batch; an AttentionPlan for one new token a row.

    Rows belong to prompts by `prompt_of_row`; finished rows leave through `keep_rows`.
    """

    def __init__(
        self,
        kept: dict[int, tuple[Tensor, Tensor]],
        tree: TokenTree,
        prompts: Sequence[Sequence[int]],
        prompt_of_row: Sequence[int],
        max_new_tokens: int,
    ) -> None:
        """kept[layer] = keys and values [1, K, T, d] of the tree over the prompts (TreePlan with keep_keys)."""
        device = kept[0][0].device
        trunk_length = _common_prefix_length(prompts)
        trunk = tree.paths[0][:trunk_length].to(device)
        lengths = torch.tensor([len(p) - trunk_length for p in prompts], device=device)
        padded = torch.zeros((len(prompts), int(lengths.max())), dtype=torch.long, device=device)
        for row, path in enumerate(tree.paths):
            padded[row, : lengths[row]] = path[trunk_length:].to(device)
        self._trunk = {layer: (k[0, :, trunk], v[0, :, trunk]) for layer, (k, v) in kept.items()}
        self._branch = {
            layer: (k[0][:, padded].transpose(0, 1).contiguous(), v[0][:, padded].transpose(0, 1).contiguous())
            for layer, (k, v) in kept.items()
        }
        self._branch_absent = torch.arange(padded.shape[1], device=device)[None, :] >= lengths[:, None]
        num_rows = len(prompt_of_row)
        self._own = {
            layer: tuple(x.new_zeros((num_rows, x.shape[1], max_new_tokens, x.shape[3])) for x in pair)
            for layer, pair in kept.items()
        }
        self.num_new = 0
        self._place_rows(torch.tensor(prompt_of_row, device=device))

    def _place_rows(self, prompt_of_row: Tensor) -> None:
        """Lays the rows out as a [prompts, most rows of one prompt] grid, so that a branch is one product a prompt."""
        self.prompt_of_row = prompt_of_row
        counts = torch.bincount(prompt_of_row, minlength=self._branch_absent.shape[0])
        order = prompt_of_row.argsort(stable=True)
        starts = counts.cumsum(0) - counts
        column = torch.empty_like(prompt_of_row)
        column[order] = torch.arange(len(order), device=order.device) - starts[prompt_of_row[order]]
        self._grid_cell = prompt_of_row * int(counts.max()) + column
        self._grid_columns = int(counts.max())

    def keep_rows(self, rows: Tensor) -> None:
        """Only these rows go on, in this order."""
        for layer, (keys, values) in self._own.items():
            self._own[layer] = (keys[rows], values[rows])
        self._place_rows(self.prompt_of_row[rows])

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See AttentionPlan: the N tokens are the R rows' newest tokens, at own position `num_new`."""
        num_heads, num_rows, width = query.shape[1:]
        num_key_heads = key.shape[1]
        repeats = num_heads // num_key_heads
        own_keys, own_values = self._own[layer]
        own_keys[:, :, self.num_new] = key[0].transpose(0, 1)
        own_values[:, :, self.num_new] = value[0].transpose(0, 1)
        seen = slice(0, self.num_new + 1)
        # [R, K, repeats, d]
        q = (query[0] * scaling).view(num_key_heads, repeats, num_rows, width).permute(2, 0, 1, 3)

        trunk_keys, trunk_values = self._trunk[layer]
        q_trunk = q.transpose(0, 1).reshape(num_key_heads, num_rows * repeats, width)
        trunk = (q_trunk @ trunk_keys.transpose(1, 2)).view(num_key_heads, num_rows, repeats, -1).transpose(0, 1)
        branch_keys, branch_values = self._branch[layer]
        branch = self._from_grid(self._branch_product(self._to_grid(q), branch_keys.transpose(2, 3)))
        branch = branch.masked_fill(self._branch_absent[self.prompt_of_row][:, None, None, :], float("-inf"))
        own = q @ own_keys[:, :, seen].transpose(2, 3)

        sizes = [trunk.shape[-1], branch.shape[-1], own.shape[-1]]
        weights = torch.softmax(torch.cat([trunk, branch, own], dim=-1), dim=-1)
        trunk, branch, own = weights.split(sizes, dim=-1)
        attended = own @ own_values[:, :, seen]
        attended += self._from_grid(self._branch_product(self._to_grid(branch), branch_values))
        from_trunk = trunk.transpose(0, 1).reshape(num_key_heads, num_rows * repeats, -1) @ trunk_values
        attended += from_trunk.view(num_key_heads, num_rows, repeats, width).transpose(0, 1)
        return attended.reshape(1, num_rows, num_heads, width)

    def _to_grid(self, rows: Tensor) -> Tensor:
        """[R, K, repeats, n] -> [P, columns, K, repeats, n]; cells without a row hold zeros."""
        num_prompts = self._branch_absent.shape[0]
        grid = rows.new_zeros((num_prompts * self._grid_columns, *rows.shape[1:]))
        grid[self._grid_cell] = rows
        return grid.view(num_prompts, self._grid_columns, *rows.shape[1:])

    def _branch_product(self, grid: Tensor, right: Tensor) -> Tensor:
        """[P, columns, K, repeats, n] x [P, K, n, m] -> [P, columns, K, repeats, m]."""
        prompts, columns, key_heads, repeats, n = grid.shape
        left = grid.transpose(1, 2).reshape(prompts, key_heads, columns * repeats, n)
        return (left @ right).view(prompts, key_heads, columns, repeats, -1).transpose(1, 2)

    def _from_grid(self, grid: Tensor) -> Tensor:
        return grid.flatten(0, 1)[self._grid_cell]


def _common_prefix_length(prompts: Sequence[Sequence[int]]) -> int:
    """Leading tokens that all prompts share. The last token of a prompt always stays in its branch."""
    first = prompts[0]
    return min(len(first) - 1, *(min(len(p) - 1, shared_prefix_length(first, p)) for p in prompts))
