"""The count of nodes, pairs and micro-batches against the trees that training really builds."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from plan_sizes import workload

from groupwise.errors import ConfigError
from groupwise.models.logprobs import ScoredSequence
from groupwise.models.token_tree import TokenTree
from groupwise.planning.step_tokens import require_method, sampled, stored_trunk, trained_tokens
from groupwise.training.batch import microbatches


def _sequences(groups: int, rows: int, prompt: int, trunk: int, completion: int) -> list[ScoredSequence]:
    """Groups in order: token 0 is the trunk's; prompts differ behind it, completions from their first token."""
    sequences = []
    for group in range(groups):
        begin = (0,) * trunk + (10 + group,) * (prompt - trunk)
        sequences += [
            ScoredSequence(token_ids=(*begin, *(100 + row,) * completion), prompt_length=prompt) for row in range(rows)
        ]
    return sequences


@pytest.mark.parametrize(
    ("groups", "rows", "prompt", "trunk", "completion", "limit"),
    [
        (1, 2, 4, 0, 3, 100),
        (3, 4, 20, 12, 7, 1000),
        (3, 4, 20, 12, 7, 60),
        (5, 3, 9, 0, 11, 45),
        (2, 4, 30, 10, 5, 20),  # no sequence fits: each gets a forward of its own
        (4, 1, 12, 5, 6, 40),
    ],
)
def test_nodes_pairs_and_cuts_are_those_of_real_trees(
    groups: int, rows: int, prompt: int, trunk: int, completion: int, limit: int
) -> None:
    sequences = _sequences(groups, rows, prompt, trunk, completion)
    cuts = microbatches(sequences, limit)
    nodes = pairs = heads = largest = 0
    for cut in cuts:
        tree = TokenTree.build([sequences[i].token_ids for i in cut])
        nodes += tree.num_nodes
        largest = max(largest, tree.num_nodes)
        pairs += int((tree.depth + 1).sum())
        trained = torch.unique(torch.cat([tree.paths[i][prompt:] for i in range(len(cut))]))
        heads += len(torch.unique(tree.parent[trained]))
    planned = trained_tokens(
        "grpo", workload(groups, rows, prompt, trunk, completion, microbatch=limit), prefix_sharing=True
    )
    assert planned.nodes == nodes
    assert planned.pairs == pairs
    assert planned.microbatches == len(cuts)
    # a cut inside a group reads the first tokens behind its prompt once more: the plan leaves that out
    assert heads - len(cuts) <= planned.head_rows <= heads
    assert largest <= planned.largest <= max(limit, prompt + completion)


@pytest.mark.parametrize(("rows", "common", "limit"), [(3, 2, 1000), (4, 1, 30), (4, 0, 25)])
def test_what_siblings_share_is_forwarded_once(rows: int, common: int, limit: int) -> None:
    """Two groups whose completions of 5 begin with the same `common` tokens, against the trees that are built."""
    sequences = [
        ScoredSequence(token_ids=(*(10 + g,) * 6, *(50,) * common, *(100 + r,) * (5 - common)), prompt_length=6)
        for g in range(2)
        for r in range(rows)
    ]
    cuts = microbatches(sequences, limit)
    trees = [TokenTree.build([sequences[i].token_ids for i in cut]) for cut in cuts]
    work = dataclasses.replace(workload(2, rows, 6, 0, 5, microbatch=limit), sibling_prefix=float(common))
    planned = trained_tokens("grpo", work, prefix_sharing=True)
    assert planned.nodes == sum(tree.num_nodes for tree in trees)
    assert planned.pairs == sum(int((tree.depth + 1).sum()) for tree in trees)
    assert planned.microbatches == len(cuts)
    # by hand: a group reads its prompt's last node and every completion's tokens but the last, common ones once
    assert planned.head_rows == 2 * (1 + rows * 4 - (rows - 1) * common)


def test_siblings_share_nothing_without_prefix_sharing() -> None:
    work = workload(2, 4, 6, 0, 5)
    shared = dataclasses.replace(work, sibling_prefix=3.0)
    assert trained_tokens("grpo", shared, prefix_sharing=False) == trained_tokens("grpo", work, prefix_sharing=False)


def test_methods_differ_in_what_they_train_on() -> None:
    work = workload(prompts=4, group=8, prompt=100, trunk=0, completion=10, live=0.5, microbatch=10**6)
    nodes = {m: trained_tokens(m, work, prefix_sharing=True).nodes for m in ("sft", "dpo", "ppo", "grpo")}
    assert nodes == {
        "sft": 4 * 110,
        "dpo": 4 * (100 + 2 * 10),
        "ppo": 32 * 110,
        "grpo": 2 * (100 + 8 * 10),
    }


def test_a_reference_trains_dead_groups_too() -> None:
    dead = workload(live=0.0)
    assert trained_tokens("grpo", dead, prefix_sharing=True).nodes == 0
    assert trained_tokens("grpo", workload(live=0.0, reference=True), prefix_sharing=True).nodes == 2 * 343 + 16 * 32


def test_a_fraction_of_a_group_is_a_mean_over_steps() -> None:
    half = trained_tokens("grpo", workload(prompts=1, live=0.5), prefix_sharing=True)
    whole = trained_tokens("grpo", workload(prompts=1), prefix_sharing=True)
    assert (half.nodes, half.pairs, half.head_rows) == (whole.nodes / 2, whole.pairs / 2, whole.head_rows / 2)


def test_without_sharing_every_sequence_is_padded_to_the_longest() -> None:
    planned = trained_tokens("grpo", workload(1, 4, 10, 0, 5, longest=7), prefix_sharing=False)
    assert planned.nodes == planned.head_rows == planned.logit_tokens == 4 * 17
    assert planned.pairs == 4 * 17 * 18 / 2


def test_what_is_sampled() -> None:
    work = workload(prompts=2, group=8)
    assert sampled("sft", work) is None
    assert sampled("dpo", work) is None
    grpo, ppo = sampled("grpo", work), sampled("ppo", work)
    assert grpo is not None
    assert ppo is not None
    assert (grpo.num_prompts, grpo.num_rows, ppo.num_prompts, ppo.num_rows) == (2, 16, 16, 16)


def test_a_trunk_is_kept_apart_only_where_it_saves_512_tokens() -> None:
    assert stored_trunk(9, workload(trunk=64)) == 64
    assert stored_trunk(9, workload(trunk=63)) == 0


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'grop'.*sft, dpo, ppo, grpo"):
        require_method("grop")
