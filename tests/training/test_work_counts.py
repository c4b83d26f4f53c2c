"""What one step computes, counted: nodes, forwards and LM head rows. Time depends on the machine, these do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from training_cases import (
    END,
    MAX_TOKENS,
    VOCABULARY,
    batch_of,
    mixed_groups,
    said,
    small_llama,
    small_policy,
    verdict,
)
from transformers import PreTrainedModel

from groupwise.models import ScoredSequence, TokenScores, TokenTree, padded_scores, tree_scores
from groupwise.models.logprobs import ScoreFunction
from groupwise.models.reference import Reference, frozen_reference
from groupwise.models.token_tree import count_nodes
from groupwise.models.tree_attention import TreePlan
from groupwise.rollout import Sampling, TorchEngine
from groupwise.training.batch import Batch, microbatches
from groupwise.training.grpo import GrpoOptions, loss_function
from groupwise.training.step import optimizer_step
from groupwise.types import Group, Prompt, Rollout, Task

NUM_LAYERS = 2
WHOLE_STEP = 1 << 20
"""tokens_per_microbatch that cuts nothing."""


class Counts:
    """What the forwards of one model did.

    Example, for a step of two micro-batches:
        Counts.embedded = [40, 31]   Counts.attended = [(0, 40), (1, 40), (0, 31), (1, 31)]   Counts.head_rows = 25
    """

    def __init__(self) -> None:
        self.embedded: list[int] = []
        """Nodes of each forward of the body."""
        self.attended: list[tuple[int, int]] = []
        """Layer and queries of each attention over a tree, of any model."""
        self.head_rows = 0
        """Rows that went through an LM head going forward, recomputation in the backward pass left out."""


class HeadRows(TorchDispatchMode):
    """Counts rows of matrix products with one column a token of the vocabulary."""

    def __init__(self, work: Counts) -> None:
        super().__init__()
        self.work = work

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = function(*args, **(kwargs or {}))
        is_product = function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm)
        if is_product and output.shape[-1] == VOCABULARY:
            self.work.head_rows += output.shape[0]
        return output


@contextmanager
def watched(model: PreTrainedModel) -> Iterator[Counts]:
    """Counts the nodes of every forward of the model's body, and of every attention over a tree."""
    work = Counts()
    attend = TreePlan.attend

    def recorded(plan: TreePlan, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        work.attended.append((layer, query.shape[2]))
        return attend(plan, layer, query, key, value, scaling)

    hook = model.get_input_embeddings().register_forward_hook(
        lambda _, ids, output: work.embedded.append(ids[0].numel())
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TreePlan, "attend", recorded)
        try:
            yield work
        finally:
            hook.remove()


def step(
    batch: Batch,
    options: GrpoOptions,
    *,
    tokens_per_microbatch: int = WHOLE_STEP,
    reference: Reference | None = None,
    scores: ScoreFunction = tree_scores,
) -> tuple[Counts, dict[str, float]]:
    """One optimizer step of a small model, and what it did."""
    model = small_llama()
    with watched(model) as work:

        def counted(
            of: PreTrainedModel, sequences: Sequence[ScoredSequence], *, temperature: float, entropy: bool = False
        ) -> TokenScores:
            with HeadRows(work):
                return scores(of, sequences, temperature=temperature, entropy=entropy)

        metrics = optimizer_step(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            batch,
            loss_function(options),
            scores=counted,
            temperature=1.0,
            tokens_per_microbatch=tokens_per_microbatch,
            max_grad_norm=1.0,
            reference=reference,
        )
    return work, metrics


def groups_of(prompts: Sequence[tuple[int, ...]], *, group_size: int, length: int) -> list[Group]:
    """Live groups: every other completion is right. No two completions of a group begin with the same token."""
    assert group_size <= 2 * (VOCABULARY - 2)
    return [
        Group(
            task=Task(id=f"q{number}", prompt="?"),
            prompt=Prompt(task_id=f"q{number}", token_ids=prompt),
            rollouts=tuple(
                Rollout(completion=said("", *completion(c, length)), verdict=verdict(float(c % 2)))
                for c in range(group_size)
            ),
        )
        for number, prompt in enumerate(prompts)
    ]


def completion(number: int, length: int) -> tuple[int, ...]:
    """Completions 0, 1, 2 ... begin with another token each, until the vocabulary is used up."""
    first, round_of = 2 + number % (VOCABULARY - 2), number // (VOCABULARY - 2)
    return (first, *(2 + round_of,) * (length - 2), END)


def distinct_parents(batch: Batch) -> int:
    """Positions whose hidden state says something about a trained token."""
    return len({s.token_ids[:end] for s in batch.sequences for end in range(s.prompt_length, len(s.token_ids))})


def distinct_prefixes(sequences: Sequence[Sequence[int]]) -> int:
    """The definition of a tree's nodes, counted the slow way."""
    return len({tuple(s[:end]) for s in sequences for end in range(1, len(s) + 1)})


SYSTEM = tuple(2 + i % 20 for i in range(30))
PROMPTS = [(*SYSTEM, 3, 4), (*SYSTEM, 5), (*SYSTEM, 3, 6, 7)]


def test_a_step_forwards_every_distinct_prefix_once() -> None:
    """3 prompts under a system turn of 30 tokens: 30 + 6 of their own (two share the 3), minus that 3; 8 completions
    of 5 tokens each."""
    batch = batch_of(groups_of(PROMPTS, group_size=8, length=5), GrpoOptions())
    num_nodes = 30 + (2 + 1 + 3 - 1) + 3 * 8 * 5
    work, metrics = step(batch, GrpoOptions())
    assert work.embedded == [num_nodes]
    assert work.attended == [(layer, num_nodes) for layer in range(NUM_LAYERS)]
    assert metrics["num_forward_nodes"] == num_nodes
    assert metrics["num_plain_tokens"] == 8 * (32 + 31 + 33) + 3 * 8 * 5
    assert count_nodes([s.token_ids for s in batch.sequences]) == num_nodes


def test_the_padded_path_forwards_every_token() -> None:
    """The same step without a tree: 24 rows as long as the longest. What the counts above are compared with."""
    batch = batch_of(groups_of(PROMPTS, group_size=8, length=5), GrpoOptions())
    work, _ = step(batch, GrpoOptions(), scores=padded_scores)
    assert work.embedded == [24 * (33 + 5)]
    assert work.head_rows == 24 * (33 + 5)


@pytest.mark.parametrize("limit", [1, 20, 60, WHOLE_STEP])
def test_one_forward_a_microbatch_and_no_other(limit: int) -> None:
    """Without KL term: none of a reference, and none for the old log-probabilities."""
    batch = batch_of(mixed_groups(), GrpoOptions())
    cuts = microbatches(batch.sequences, limit)
    work, metrics = step(batch, GrpoOptions(), tokens_per_microbatch=limit)
    expected = [distinct_prefixes([batch.sequences[r].token_ids for r in rows]) for rows in cuts]
    assert work.embedded == expected
    assert len(work.attended) == NUM_LAYERS * len(cuts)
    assert metrics["num_forward_nodes"] == sum(expected)


def test_a_reference_costs_one_more_forward_a_microbatch() -> None:
    options = GrpoOptions(beta=0.1)
    batch = batch_of(mixed_groups(), options)
    num_cuts = len(microbatches(batch.sequences, 30))
    assert num_cuts > 1
    work, _ = step(batch, options, tokens_per_microbatch=30, reference=frozen_reference(small_llama(seed=1)))
    assert len(work.embedded) == num_cuts  # of the policy
    assert len(work.attended) == 2 * NUM_LAYERS * num_cuts  # of both


def test_the_head_sees_each_parent_of_a_trained_node_once() -> None:
    """Per prompt its last token, which all first tokens share, and the 5 - 1 inner tokens of 8 completions."""
    batch = batch_of(groups_of(PROMPTS, group_size=8, length=5), GrpoOptions())
    work, _ = step(batch, GrpoOptions())
    assert work.head_rows == distinct_parents(batch) == 3 * (1 + 8 * 4)


def test_completions_that_begin_alike_share_their_nodes_and_head_rows() -> None:
    """12 completions of 5 tokens behind one prompt, all [7, 7, 7, 7, END] but one: 5 + 4 nodes after the prompt."""
    group = groups_of(PROMPTS[:1], group_size=12, length=5)[0]
    rollouts = [Rollout(completion=said("", 7, 7, 7, 7, END), verdict=r.verdict) for r in group.rollouts[:-1]]
    rollouts.append(Rollout(completion=said("", 7, 8, 8, 8, END), verdict=group.rollouts[-1].verdict))
    batch = batch_of([Group(task=group.task, prompt=group.prompt, rollouts=tuple(rollouts))], GrpoOptions())
    work, _ = step(batch, GrpoOptions())
    assert work.embedded == [32 + 5 + 4]
    assert work.head_rows == 5 + 3


def test_dead_groups_cost_nothing_unless_something_needs_them() -> None:
    """mixed_groups: 2 of 4 groups are alive, one of them with an unscored rollout, which is never forwarded."""
    groups = mixed_groups()
    alive, every = ([groups[0], groups[2]], groups)

    def nodes_of(chosen: Sequence[Group]) -> int:
        return distinct_prefixes(
            [
                g.prompt.token_ids + r.completion.token_ids
                for g in chosen
                for r in g.rollouts
                if r.verdict.reward is not None
            ]
        )

    assert nodes_of(alive) < nodes_of(every)
    skipping, keeping, with_kl = GrpoOptions(), GrpoOptions(skip_dead_groups=False), GrpoOptions(beta=0.1)
    assert step(batch_of(groups, skipping), skipping)[0].embedded == [nodes_of(alive)]
    assert step(batch_of(groups, keeping), keeping)[0].embedded == [nodes_of(every)]
    reference = frozen_reference(small_llama(seed=1))
    assert step(batch_of(groups, with_kl), with_kl, reference=reference)[0].embedded == [nodes_of(every)]


def test_doubling_the_group_costs_less_than_double() -> None:
    """Prompt P = 100, completions of L = 4: P + G (L - 1) + (distinct first tokens) nodes, so 164 and 228 at most."""
    prompt = tuple(2 + i % 22 for i in range(100))
    nodes = {}
    for group_size in (16, 32):
        batch = batch_of(groups_of([prompt], group_size=group_size, length=4), GrpoOptions())
        work, _ = step(batch, GrpoOptions())
        (nodes[group_size],) = work.embedded
        assert nodes[group_size] == 100 + 3 * group_size + min(group_size, VOCABULARY - 2)
    assert nodes[32] / nodes[16] < 1.6


def fake_prompts(prompts: Sequence[tuple[int, ...]]) -> list[Prompt]:
    return [Prompt(task_id=f"q{i}", token_ids=ids) for i, ids in enumerate(prompts)]


def test_sampling_takes_one_prefill_and_one_forward_a_token() -> None:
    """The prefill gives every row its first token, so that L tokens take L - 1 decode forwards of the unfinished rows;
    the prompts are prefilled once, and what they share once in all."""
    policy = small_policy()
    engine = TorchEngine(policy)
    with watched(policy.model) as work:
        groups = engine.generate(fake_prompts(PROMPTS), 4, Sampling(max_tokens=MAX_TOKENS), seed=2)
    lengths = [len(c.token_ids) for group in groups for c in group]
    prefill, *decode = work.embedded
    assert prefill == distinct_prefixes(PROMPTS) == 30 + 5
    assert len(decode) == max(lengths) - 1 <= MAX_TOKENS
    assert max(decode) <= 12
    assert sum(decode) >= sum(lengths) - 12
    said = engine.last_work
    assert (said.num_prefills, said.num_prefill_tokens) == (1, prefill)
    assert (said.num_steps, said.num_row_steps) == (len(decode), sum(decode))


def test_a_whole_step_is_one_prefill_the_decoding_and_one_training_forward() -> None:
    """Nothing is forwarded again between sampling and learning: no scoring of what was sampled, no old policy."""
    policy = small_policy()
    engine = TorchEngine(policy)
    options = GrpoOptions()
    with watched(policy.model) as work:
        completions = engine.generate(fake_prompts(PROMPTS), 4, Sampling(max_tokens=MAX_TOKENS), seed=2)
        num_sampling = len(work.embedded)
        batch = batch_of(
            [
                Group(
                    task=Task(id=prompt.task_id, prompt="?"),
                    prompt=prompt,
                    rollouts=tuple(Rollout(completion=c, verdict=verdict(float(i == 0))) for i, c in enumerate(group)),
                )
                for prompt, group in zip(fake_prompts(PROMPTS), completions, strict=True)
            ],
            options,
        )
        metrics = optimizer_step(
            policy.model,
            torch.optim.SGD(policy.model.parameters(), lr=0.1),
            batch,
            loss_function(options),
            scores=tree_scores,
            temperature=1.0,
            tokens_per_microbatch=WHOLE_STEP,
            max_grad_norm=1.0,
        )
    assert num_sampling == 1 + engine.last_work.num_steps
    assert work.embedded[num_sampling:] == [distinct_prefixes([s.token_ids for s in batch.sequences])]
    assert metrics["kl_sampler_trainer"] < 1e-6  # and yet what was sampled is what is learned from


def test_a_tree_is_what_the_counts_say() -> None:
    """count_nodes, a built tree and the definition agree."""
    sequences = [s.token_ids for s in batch_of(mixed_groups(), GrpoOptions(skip_dead_groups=False)).sequences]
    assert TokenTree.build(sequences).num_nodes == count_nodes(sequences) == distinct_prefixes(sequences)
