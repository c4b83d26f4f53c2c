from __future__ import annotations

import pytest
import torch
from torch import Tensor

from groupwise.models import TokenTree
from groupwise.rollout import decode
from groupwise.rollout.decode import DecodeCache, attention, join

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


PROMPTS = [(1, 2, 3, 4), (1, 2, 5), (1, 2, 3, 6, 7)]
LAYERS = 2


class Twin:
    """A DecodeCache beside the plain form: a growing list of all keys and values that each row may see."""

    def __init__(self, prompts: list[tuple[int, ...]], num_rows: int, num_trunk: int) -> None:
        self.generator = torch.Generator().manual_seed(0)
        tree = TokenTree.build(prompts)
        shape = (1, KEY_HEADS, tree.num_nodes, WIDTH)
        self.kept = {n: (self.random(*shape), self.random(*shape)) for n in range(LAYERS)}
        self.paths = tree.paths
        self.cache = DecodeCache(
            num_rows=num_rows,
            num_prompts=len(prompts),
            branch_tokens=max(len(p) for p in prompts) - num_trunk,
            own_tokens=NUM_NEW,
        )
        if num_trunk:
            self.cache.store_trunk(self.kept, tree.paths[0][:num_trunk])
        for slot, path in enumerate(tree.paths):
            self.cache.store(slot, self.kept, path[num_trunk:])
        self.seen: list[dict[tuple[int, int], Tensor]] = []
        self.prompt_of_row: list[int] = []

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def enter(self, prompt: int) -> None:
        self.prompt_of_row.append(prompt)
        nodes = self.paths[prompt]
        self.seen.append(
            {(layer, part): self.kept[layer][part][0][:, nodes] for layer in range(LAYERS) for part in (0, 1)}
        )

    def own_lengths(self) -> list[int]:
        return [
            seen[0, 0].shape[1] - len(self.paths[prompt])
            for seen, prompt in zip(self.seen, self.prompt_of_row, strict=True)
        ]

    def step(self) -> None:
        """One token a row in both forms, compared."""
        plan = self.cache.plan(self.prompt_of_row, self.own_lengths())
        num_rows = len(self.seen)
        for layer in range(LAYERS):
            query, key, value = (self.random(1, heads, num_rows, WIDTH) for heads in (HEADS, KEY_HEADS, KEY_HEADS))
            found = plan.attend(layer, query, key, value, SCALING)
            assert found.shape == (1, num_rows, HEADS, WIDTH)
            for row, seen in enumerate(self.seen):
                for part, new in enumerate((key, value)):
                    seen[layer, part] = torch.cat([seen[layer, part], new[0, :, row : row + 1]], dim=1)
                expected = naive_attention(query[0, :, row], seen[layer, 0], seen[layer, 1])
                torch.testing.assert_close(found[0, row], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("prompts", "prompt_of_row", "num_trunk"),
    [
        pytest.param([(1, 2, 3)], [0, 0, 0], 0, id="one prompt"),
        pytest.param(PROMPTS, [0, 0, 1, 1, 2, 2], 2, id="even groups behind a trunk"),
        pytest.param(PROMPTS, [0, 1, 2, 1, 0, 1], 2, id="uneven groups behind a trunk"),
        pytest.param(PROMPTS, [2, 0, 1], 0, id="rows not in the order of prompts"),
        pytest.param([(1, 2), (3,), (4, 5, 6)], [0, 0, 2], 0, id="nothing shared, one prompt without rows"),
        pytest.param([(1, 2), (1, 2)], [0, 1, 1], 1, id="equal prompts"),
    ],
)
def test_joined_parts_give_the_attention_over_all_keys(
    prompts: list[tuple[int, ...]], prompt_of_row: list[int], num_trunk: int
) -> None:
    twin = Twin(prompts, len(prompt_of_row), num_trunk)
    for prompt in prompt_of_row:
        twin.enter(prompt)
    for _ in range(NUM_NEW):
        twin.step()


@pytest.mark.parametrize("num_trunk", [0, 2])
def test_rows_come_late_leave_and_change_places(num_trunk: int) -> None:
    twin = Twin(PROMPTS, 4, num_trunk)
    for prompt in (0, 0, 1):
        twin.enter(prompt)
    twin.step()
    twin.enter(2)  # one token behind the others
    twin.step()
    twin.cache.move_rows([3], [1], length=NUM_NEW)  # row 1 leaves, the last row takes its place
    for rows in (twin.seen, twin.prompt_of_row):
        rows[1] = rows.pop()  # type: ignore[attr-defined, index]
    twin.step()
    twin.enter(0)
    twin.step()
    twin.cache.move_branch(2, 1)  # prompt 1 goes with its row 2; the row of prompt 2 finds it in slot 1
    twin.cache.move_rows([3], [2], length=NUM_NEW)
    for rows in (twin.seen, twin.prompt_of_row):
        rows[2] = rows.pop()  # type: ignore[attr-defined, index]
    twin.paths = (twin.paths[0], twin.paths[2])
    twin.prompt_of_row = [0, 1, 0]
    twin.step()


def test_steps_allocate_no_buffer() -> None:
    twin = Twin(PROMPTS, 3, 2)
    places = [buffer.data_ptr() for buffer in twin.cache.buffers]
    for prompt in (0, 1, 2):
        twin.enter(prompt)
        twin.step()
    assert [buffer.data_ptr() for buffer in twin.cache.buffers] == places


@pytest.mark.parametrize("masked", [True, False])
def test_the_kernel_and_the_plain_products_agree(monkeypatch: pytest.MonkeyPatch, masked: bool) -> None:
    """Values of another width than the keys take the plain products; a column of zeros makes them so."""
    torch.manual_seed(0)
    query, keys, values = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    mask = decode._mask([4, 7], 7, query.device, query.dtype) if masked else None
    found = attention(query, keys, values, mask, 0.3)
    wider = torch.nn.functional.pad(values, (0, 1))
    expected = attention(query, keys, wider, mask, 0.3)
    torch.testing.assert_close(found[0], expected[0][..., :-1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[1], expected[1], atol=1e-5, rtol=1e-5)


def test_joining_two_values_by_hand() -> None:
    # Scores log 1 and log 3 with values 0 and 4: weights 1/4 and 3/4 give 3, the scores' sum is 4.
    one = (torch.tensor([[0.0]]), torch.tensor([1.0]).log())
    other = (torch.tensor([[4.0]]), torch.tensor([3.0]).log())
    attended, total = join(one, other)
    assert attended.item() == pytest.approx(3.0)
    assert total.exp().item() == pytest.approx(4.0)
