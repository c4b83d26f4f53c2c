"""The GPU's attention plan on a CPU: its mask, its forward and (uncompiled) its backward against dense attention."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask

from groupwise.models import LoadedModel, ScoredSequence, TokenTree, padded_logprobs
from groupwise.models import flex_attention as flex_module
from groupwise.models.flex_attention import BLOCK, FlexPlan, compiled_flex_attention, padded_size, tree_block_mask
from groupwise.models.tree_attention import planned_forward

TinyModel = Callable[..., LoadedModel]
CPU = torch.device("cpu")

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def long_tree() -> TokenTree:
    """Three blocks of nodes: a shared first part of 140, then branches of 200 (past two borders), 3 and 1; and a root
    of its own. The first block is fully visible from the third one."""
    shared = tuple(range(140))
    return TokenTree.build([(*shared, *range(200)), (*shared, 300, 301, 302), (*shared, 303), (500,)])


def padded_ends(tree: TokenTree) -> Tensor:
    ends = torch.arange(1, padded_size(tree.num_nodes) + 1)
    ends[: tree.num_nodes] = tree.subtree_end
    return ends


def blocks_of(numbers: Tensor, counts: Tensor) -> list[set[int]]:
    """The key blocks that each query block lists."""
    return [set(row[:count].tolist()) for row, count in zip(numbers[0, 0], counts[0, 0], strict=True)]


def all_lists(mask: BlockMask) -> list[list[set[int]]]:
    pairs = (
        (mask.kv_indices, mask.kv_num_blocks),
        (mask.full_kv_indices, mask.full_kv_num_blocks),
        (mask.q_indices, mask.q_num_blocks),
        (mask.full_q_indices, mask.full_q_num_blocks),
    )
    return [blocks_of(numbers, counts) for numbers, counts in pairs]  # type: ignore[arg-type]


def inputs(num_nodes: int, *, width: int = 8, requires_grad: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of 4 heads, keys and values of 2."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, heads, num_nodes, width, generator=generator) for heads in (4, 2, 2))
    return tuple(x.requires_grad_(requires_grad) for x in (query, key, value))  # type: ignore[return-value]


def dense_attention(tree: TokenTree, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The rule as a matrix of all pairs; scale 0.3."""
    mask = tree.visible()
    attended = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.3, enable_gqa=True)
    return attended.transpose(1, 2)


def test_padded_sizes_by_hand() -> None:
    numbers = (1, 128, 129, 256, 257, 512, 513, 1024, 1025, 1280, 1281, 2048, 2049, 8193)
    sizes = (128, 128, 256, 256, 384, 512, 640, 1024, 1280, 1280, 1536, 2048, 2560, 10240)
    assert tuple(padded_size(n) for n in numbers) == sizes


@given(st.integers(1, 1 << 20))
def test_padding_adds_little_and_keeps_the_sizes_few(num_nodes: int) -> None:
    size = padded_size(num_nodes)
    assert num_nodes <= size
    assert size % BLOCK == 0
    assert size - num_nodes < max(BLOCK, num_nodes / 4)
    assert size == padded_size(size)


def test_few_sizes_exist() -> None:
    """128, 256, 384, 512, then 4 an octave up to 16,384 nodes. Times 3, for forwards with gradient, without it and in
    inference mode, they are within the compilations that are allowed."""
    sizes = {padded_size(n) for n in range(1, 1 << 14)}
    assert len(sizes) == 4 + 4 * 5
    assert 3 * len(sizes) <= flex_module.MOST_COMPILATIONS


def test_the_mask_function_is_the_rule_of_the_tree() -> None:
    tree = long_tree()
    ends = padded_ends(tree)
    pairs = create_mask(tree_block_mask(ends).mask_mod, 1, 1, len(ends), len(ends), device="cpu")[0, 0]
    expected = torch.eye(len(ends), dtype=torch.bool)
    expected[: tree.num_nodes, : tree.num_nodes] = tree.visible()
    assert torch.equal(pairs, expected)


def test_the_lists_of_blocks_by_hand() -> None:
    """Nodes 0..139 are shared, 140..339 the long branch, 340..342 and 343 the others, 344 a root; 345..383 padding.

    Block 0 is shared, so block 1 sees all of it, and block 2 too but for node 344 and the padding. Block 1 ends inside
    the long branch, which not all of block 2 belongs to.
    """
    tree = long_tree()
    assert tree.num_nodes == 345
    partial, full, *_ = all_lists(tree_block_mask(padded_ends(tree)))
    assert partial == [{0}, {1}, {0, 1, 2}]
    assert full == [set(), {0}, set()]


sequences = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300)), min_size=1, max_size=8).map(
    lambda drawn: [(*range(50 * start), *range(900, 900 + length), length) for start, length in drawn]
)


@given(sequences)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_the_lists_of_blocks_equal_those_from_all_pairs(rows: list[tuple[int, ...]]) -> None:
    ends = padded_ends(TokenTree.build(rows))
    found = tree_block_mask(ends)
    expected = create_block_mask(found.mask_mod, 1, 1, len(ends), len(ends), device="cpu")
    assert all_lists(found) == all_lists(expected)
    assert found.shape == expected.shape == (1, 1, len(ends), len(ends))


@pytest.mark.parametrize("end", [127, 128, 129, 255, 256, 257])
def test_a_branch_that_ends_at_the_border_of_a_block(end: int) -> None:
    """A chain of `end` nodes, then roots of their own."""
    tree = TokenTree.build([tuple(range(end)), *((1000 + i,) for i in range(384 - end))])
    found = tree_block_mask(padded_ends(tree))
    assert all_lists(found) == all_lists(create_block_mask(found.mask_mod, 1, 1, 384, 384, device="cpu"))


@pytest.mark.parametrize("width", [8, 24])
def test_the_forward_equals_dense_attention(width: int) -> None:
    tree = long_tree()
    query, key, value = inputs(tree.num_nodes, width=width)
    dense = dense_attention(tree, query, key, value)
    found = FlexPlan(tree, device=CPU).attend(0, query, key, value, 0.3)
    assert found.shape == (1, tree.num_nodes, 4, width)
    torch.testing.assert_close(found, dense, atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo looks at every tensor's
def test_the_backward_equals_dense_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch refuses a backward pass of FlexAttention on a CPU; the uncompiled one works when it is not asked."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *tensors: None, raising=False)
    tree = long_tree()
    given_inputs = inputs(tree.num_nodes, requires_grad=True)
    weights = torch.randn(1, tree.num_nodes, 4, 8, generator=torch.Generator().manual_seed(1))
    outputs = FlexPlan(tree, device=CPU).attend(0, *given_inputs, 0.3), dense_attention(tree, *given_inputs)
    gradients = [torch.autograd.grad((output * weights).sum(), given_inputs) for output in outputs]
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        assert expected.abs().max() > 1e-2


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_a_model_under_the_plan_equals_the_padded_batch(tiny_model: TinyModel, family: str) -> None:
    model = tiny_model(family).model
    prompt = tuple(range(130))
    completions = [tuple(range(200, 240)), (200, 201, 7), (9,)]
    rows = [ScoredSequence(token_ids=prompt + c, prompt_length=len(prompt)) for c in completions]
    tree = TokenTree.build([s.token_ids for s in rows])
    with torch.no_grad():
        hidden = planned_forward(model, tree.token_ids, tree.depth, FlexPlan(tree, device=CPU))
        logprobs = torch.log_softmax(model.get_output_embeddings()(hidden), dim=-1)
        padded = padded_logprobs(model, rows, temperature=1.0)
    for row, (path, sequence) in enumerate(zip(tree.paths, rows, strict=True)):
        nodes = path[sequence.prompt_length :]
        found = logprobs[tree.parent[nodes], tree.token_ids[nodes]]
        torch.testing.assert_close(found, padded[row, : sequence.num_trained], atol=1e-5, rtol=0)


def test_keys_are_kept_for_a_prefill_when_asked() -> None:
    tree = long_tree()
    query, key, value = inputs(tree.num_nodes)
    plan = FlexPlan(tree, device=CPU, keep_keys=True)
    plan.attend(3, query, key, value, 1.0)
    assert plan.kept[3][0] is key
    assert plan.kept[3][1] is value
    plan = FlexPlan(tree, device=CPU)
    plan.attend(3, query, key, value, 1.0)
    assert plan.kept == {}


def test_trees_of_one_padded_size_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other trees, other layers and other memory layouts compile nothing; Dynamo's own limit of 8 does not end it."""
    compilations = []

    def backend(graph: torch.fx.GraphModule, example_inputs: list[Tensor]) -> Callable[..., object]:
        compilations.append(graph)
        return graph.forward

    compiled = compiled_flex_attention(backend)
    monkeypatch.setattr(flex_module, "flex_attention", compiled)

    def run(num_nodes: int) -> Tensor:
        tree = TokenTree.build([tuple(range(num_nodes - 1)), (5000,)])
        plan = FlexPlan(tree, device=CPU)
        query, key, value = inputs(num_nodes, width=16)  # not padded, so that 256 nodes are not copied either
        plan.attend(0, query, key, value, 0.3)
        across = query.transpose(1, 2).contiguous().transpose(1, 2)
        return plan.attend(1, across, key, value, 0.3)

    for num_nodes in (130, 131, 255, 256):
        run(num_nodes)
    assert len(compilations) == 1
    for size in (384, 512, 640, 768, 896, 1024, 1280, 1536):
        run(size)
    assert len(compilations) == 9
