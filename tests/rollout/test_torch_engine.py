from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from fakes import fake_prompts
from groupwise.errors import EngineError
from groupwise.models import LoadedModel, ScoredSequence, loss_mask, padded_logprobs, tree_logprobs
from groupwise.models.fused_forward import sampling_forward
from groupwise.models.token_tree import count_nodes
from groupwise.rollout import Sampling, TorchEngine, prefill, torch_engine, tree_decoder
from groupwise.rollout.budget import bytes_per_token
from groupwise.types import Completion, Prompt, Stop

TinyModel = Callable[..., LoadedModel]
Completions = list[list[Completion]]
TREE_FAMILIES = ["llama", "qwen2", "gpt2"]
MANY_ENDS = (256, *range(40))
"""About every seventh token of a random model ends a completion: rows then leave the batch one after another."""
SAMPLING = Sampling(max_tokens=12, temperature=0.8)
SEED = 3

HEADER = tuple(range(100, 108))
SHARED = fake_prompts((*HEADER, 1, 2, 3), (*HEADER, 4), (*HEADER, 1, 2, 5, 6, 7, 8))
NOTHING_SHARED = fake_prompts((1, 2, 3), (4,), (5, 6, 7, 8, 9, 10))
EQUAL = fake_prompts((*HEADER, 1), (*HEADER, 2, 3), (*HEADER, 1))
NESTED = fake_prompts(HEADER, (*HEADER, 1, 2), HEADER[:3])
PROMPT_SETS = {"shared": SHARED, "nothing shared": NOTHING_SHARED, "equal": EQUAL, "nested": NESTED}


def ending_often(loaded: LoadedModel) -> LoadedModel:
    return replace(loaded, end_token_ids=MANY_ENDS)


def never_ending(loaded: LoadedModel) -> LoadedModel:
    return replace(loaded, end_token_ids=())


def ids_of(completions: Completions) -> list[list[tuple[int, ...]]]:
    return [[c.token_ids for c in group] for group in completions]


def flat(completions: Completions) -> list[Completion]:
    return [c for group in completions for c in group]


def assert_equal_completions(left: Completions, right: Completions) -> None:
    """Equal tokens, texts and ends; log-probabilities up to rounding, which depends on what is computed together."""
    assert ids_of(left) == ids_of(right)
    for one, other in zip(flat(left), flat(right), strict=True):
        assert (one.text, one.stop, one.policy_version) == (other.text, other.stop, other.policy_version)
        assert one.sampler_logprobs == pytest.approx(other.sampler_logprobs, abs=1e-4)


def scored(prompts: list[Prompt], completions: Completions) -> tuple[list[ScoredSequence], list[float]]:
    """Every completion behind its prompt, and what the sampler reported, one after another."""
    pairs = [(p, c) for p, group in zip(prompts, completions, strict=True) for c in group]
    sequences = [ScoredSequence(token_ids=p.token_ids + c.token_ids, prompt_length=len(p.token_ids)) for p, c in pairs]
    return sequences, [logprob for _, c in pairs for logprob in c.sampler_logprobs]


@contextmanager
def forwards(loaded: LoadedModel) -> Iterator[list[int]]:
    """Collects the number of tokens of every forward."""
    tokens: list[int] = []
    hook = loaded.model.get_input_embeddings().register_forward_hook(
        lambda _, ids, output: tokens.append(ids[0].numel())
    )
    try:
        yield tokens
    finally:
        hook.remove()


def test_the_same_seed_gives_the_same_completions_and_another_seed_others(tiny_model: TinyModel) -> None:
    engine = TorchEngine(ending_often(tiny_model()))
    first = engine.generate(SHARED, 4, SAMPLING, seed=SEED)
    assert engine.generate(SHARED, 4, SAMPLING, seed=SEED) == first
    assert ids_of(engine.generate(SHARED, 4, SAMPLING, seed=SEED + 1)) != ids_of(first)
    assert [len(group) for group in first] == [4, 4, 4]
    for group in first:
        assert len({c.token_ids for c in group}) > 1


@pytest.mark.parametrize("family", TREE_FAMILIES)
@pytest.mark.parametrize("prompts", PROMPT_SETS.values(), ids=PROMPT_SETS.keys())
def test_what_is_decoded_together_does_not_matter(tiny_model: TinyModel, family: str, prompts: list[Prompt]) -> None:
    loaded = ending_often(tiny_model(family))
    whole = TorchEngine(loaded).generate(prompts, 4, SAMPLING, seed=SEED)
    for limits in (*({"max_rows": n} for n in (1, 3, 5, 8)), {"prefill_nodes": 1}, {"prefill_nodes": 12}):
        assert_equal_completions(TorchEngine(loaded, **limits).generate(prompts, 4, SAMPLING, seed=SEED), whole)
    for count in (1, 2):
        assert_equal_completions(TorchEngine(loaded).generate(prompts[:count], 4, SAMPLING, seed=SEED), whole[:count])
    smaller_groups = TorchEngine(loaded).generate(prompts, 2, SAMPLING, seed=SEED)
    assert_equal_completions(smaller_groups, [group[:2] for group in whole])


@pytest.mark.parametrize("sizes", [(1, 4, 2), (4, 1, 1), (3, 3, 4), (1, 1, 4)])
@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_group_sizes_change_no_completion(tiny_model: TinyModel, family: str, sizes: tuple[int, ...]) -> None:
    """Completion c of prompt p is that of equal groups: with room for all rows, with few rows, in the plain path."""
    loaded = ending_often(tiny_model(family))
    for prompts in (SHARED, NESTED):
        whole = TorchEngine(loaded).generate(prompts, 4, SAMPLING, seed=SEED)
        expected = [group[:size] for group, size in zip(whole, sizes, strict=True)]
        for limits in ({}, {"max_rows": 1}, {"max_rows": 3}, {"max_rows": 5}, {"prefill_nodes": 1}):
            engine = TorchEngine(loaded, **limits)
            assert_equal_completions(engine.generate(prompts, sizes, SAMPLING, seed=SEED), expected)
        plain = TorchEngine(loaded, use_tree=False, max_rows=3)
        assert_equal_completions(plain.generate(prompts, sizes, SAMPLING, seed=SEED), expected)


@pytest.mark.parametrize("num_tokens", [25, 60, 100])
def test_unequal_groups_stay_within_the_cache_budget(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, num_tokens: int
) -> None:
    monkeypatch.setattr(prefill, "TRUNK_WORTH", 1)
    loaded, sizes = ending_often(tiny_model()), (2, 9, 1)
    whole = TorchEngine(loaded).generate(SHARED, 9, SAMPLING, seed=SEED)
    budget = num_tokens * bytes_per_token(loaded.model)
    engine = TorchEngine(loaded, cache_gb=budget / 1e9 + 1e-9)
    found = engine.generate(SHARED, sizes, SAMPLING, seed=SEED)
    assert_equal_completions(found, [group[:size] for group, size in zip(whole, sizes, strict=True)])
    assert 0 < engine.last_work.cache_bytes <= budget


def test_unequal_groups_cost_a_prefill_once_and_one_token_a_row(tiny_model: TinyModel) -> None:
    loaded = never_ending(tiny_model())
    with forwards(loaded) as tokens:
        TorchEngine(loaded).generate(SHARED, (1, 6, 2), SAMPLING, seed=SEED)
    assert tokens == [16] + [1 + 6 + 2] * (SAMPLING.max_tokens - 1)


@pytest.mark.parametrize("sizes", [(2, 2), (2, 0, 2), ()])
def test_group_sizes_that_do_not_fit_the_prompts_are_refused(tiny_model: TinyModel, sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="group_size"):
        TorchEngine(tiny_model()).generate(SHARED, sizes, SAMPLING, seed=SEED)


@pytest.mark.parametrize("family", TREE_FAMILIES)
@pytest.mark.parametrize("prompts", PROMPT_SETS.values(), ids=PROMPT_SETS.keys())
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_tree_decodes_what_plain_decoding_does(
    tiny_model: TinyModel, family: str, prompts: list[Prompt], temperature: float
) -> None:
    loaded, sampling = ending_often(tiny_model(family)), replace(SAMPLING, temperature=temperature)
    tree = TorchEngine(loaded).generate(prompts, 3, sampling, seed=SEED)
    plain = TorchEngine(loaded, use_tree=False).generate(prompts, 3, sampling, seed=SEED)
    assert_equal_completions(tree, plain)


@pytest.mark.parametrize("family", TREE_FAMILIES)
@pytest.mark.parametrize("prompts", PROMPT_SETS.values(), ids=PROMPT_SETS.keys())
def test_the_sampler_reports_the_trainers_log_probabilities(
    tiny_model: TinyModel, family: str, prompts: list[Prompt]
) -> None:
    """The first on-policy ratio is 1. It also shows that every completion stands behind its own prompt."""
    loaded = ending_often(tiny_model(family))
    completions = TorchEngine(loaded).generate(prompts, 4, SAMPLING, seed=SEED)
    sequences, sampled = scored(prompts, completions)
    with torch.no_grad():
        trained = tree_logprobs(loaded.model, sequences, temperature=SAMPLING.temperature)
    assert sampled == pytest.approx(trained[loss_mask(sequences)].tolist(), abs=1e-4)


@pytest.mark.parametrize("family", ["gemma2", "mistral_window"])
def test_the_fallback_serves_windows_and_soft_caps(tiny_model: TinyModel, family: str) -> None:
    loaded = ending_often(tiny_model(family))
    completions = TorchEngine(loaded, use_tree=False).generate(SHARED, 3, SAMPLING, seed=SEED)
    sequences, sampled = scored(SHARED, completions)
    with torch.no_grad():
        trained = padded_logprobs(loaded.model, sequences, temperature=SAMPLING.temperature)
    assert sampled == pytest.approx(trained[loss_mask(sequences)].tolist(), abs=1e-4)


@pytest.mark.parametrize("use_tree", [True, False])
def test_greedy_tokens_are_the_most_likely_ones(tiny_model: TinyModel, use_tree: bool) -> None:
    loaded = never_ending(tiny_model())
    greedy = replace(SAMPLING, temperature=0.0)
    found = TorchEngine(loaded, use_tree=use_tree).generate(SHARED, 2, greedy, seed=SEED)
    for prompt, group in zip(SHARED, found, strict=True):
        ids = list(prompt.token_ids)
        for _ in range(greedy.max_tokens):
            ids.append(int(loaded.model(torch.tensor([ids])).logits[0, -1].argmax()))
        expected = tuple(ids[len(prompt.token_ids) :])
        assert [c.token_ids for c in group] == [expected, expected]


@pytest.mark.parametrize("use_tree", [True, False])
def test_every_end_token_ends_a_completion(tiny_model: TinyModel, use_tree: bool) -> None:
    loaded = tiny_model()
    free = TorchEngine(never_ending(loaded), use_tree=use_tree).generate(SHARED, 6, SAMPLING, seed=SEED)
    assert all(c.stop is Stop.LENGTH and len(c.token_ids) == SAMPLING.max_tokens for c in flat(free))
    ended = TorchEngine(ending_often(loaded), use_tree=use_tree).generate(SHARED, 6, SAMPLING, seed=SEED)
    seen = set()
    for long, cut in zip(flat(free), flat(ended), strict=True):
        first = next((i for i, token in enumerate(long.token_ids) if token in MANY_ENDS), None)
        assert cut.stop is (Stop.LENGTH if first is None else Stop.END)
        assert cut.token_ids == (long.token_ids if first is None else long.token_ids[: first + 1])
        seen.add(cut.token_ids[-1])
    assert len(seen & set(MANY_ENDS)) > 2  # not only the first of them


def test_an_end_token_at_the_limit_is_an_end(tiny_model: TinyModel) -> None:
    greedy = Sampling(max_tokens=3, temperature=0.0)
    last = TorchEngine(never_ending(tiny_model())).generate(SHARED[:1], 1, greedy, seed=SEED)[0][0].token_ids[-1]
    loaded = replace(tiny_model(), end_token_ids=(last,))
    assert TorchEngine(loaded).generate(SHARED[:1], 1, greedy, seed=SEED)[0][0].stop is Stop.END


def test_special_tokens_are_not_in_the_text(tiny_model: TinyModel) -> None:
    loaded = tiny_model("gpt2")  # its own modules run, so that a hook can change what the head says
    greedy = Sampling(max_tokens=2, temperature=0.0)
    engine = TorchEngine(loaded)
    head = loaded.model.get_output_embeddings()
    end = head.register_forward_hook(lambda _, hidden, logits: logits.index_fill(-1, torch.tensor([256]), 1e4))
    try:
        found = engine.generate(SHARED[:1], 1, greedy, seed=SEED)[0][0]
    finally:
        end.remove()
    assert (found.text, found.token_ids, found.stop) == ("", (256,), Stop.END)


@pytest.mark.parametrize("use_tree", [True, False])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_stop_text_ends_and_cuts(tiny_model: TinyModel, length: int, use_tree: bool) -> None:
    loaded = never_ending(tiny_model())
    decode = loaded.tokenizer.decode
    sampling = replace(SAMPLING, max_tokens=16)
    free = flat(TorchEngine(loaded).generate(SHARED, 6, sampling, seed=SEED))
    pieces = [c.text[i : i + length] for c in free for i in range(2, len(c.text) - length)]
    specials = "".join(loaded.tokenizer.all_special_tokens)  # these are spelled out when a stop text is looked for
    stop = next(piece for piece in pieces if piece.isascii() and not set(piece) & set(specials))
    engine = TorchEngine(loaded, use_tree=use_tree)
    stopped = flat(engine.generate(SHARED, 6, replace(sampling, stop=(stop,)), seed=SEED))
    assert any(c.stop is Stop.END for c in stopped)
    for long, cut in zip(free, stopped, strict=True):
        needed = [n for n in range(1, 17) if stop in decode(long.token_ids[:n])]
        assert cut.token_ids == (long.token_ids[: needed[0]] if needed else long.token_ids)
        assert cut.stop is (Stop.END if needed else Stop.LENGTH)
        assert cut.text == long.text.split(stop)[0]


@pytest.mark.parametrize("share", [0.0, 2.0])
def test_leaving_rows_do_not_change_those_that_stay(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Finished rows leave at every token (0), at the usual share, or never (2)."""
    engine = TorchEngine(ending_often(tiny_model()))
    usual = engine.generate(SHARED, 8, SAMPLING, seed=SEED)
    assert len({len(c.token_ids) for c in flat(usual)}) > 4
    monkeypatch.setattr(tree_decoder, "LEAVE_AT", share)
    assert_equal_completions(engine.generate(SHARED, 8, SAMPLING, seed=SEED), usual)


def test_a_prefill_forwards_every_distinct_prefix_once_and_then_one_token_a_row(tiny_model: TinyModel) -> None:
    loaded = never_ending(tiny_model())
    with forwards(loaded) as tokens:
        TorchEngine(loaded).generate(SHARED, 4, SAMPLING, seed=SEED)
    # The header's 8 tokens, then 1 2 3, 4, and 5 6 7 8 behind 1 2.
    assert count_nodes([p.token_ids for p in SHARED]) == 8 + 3 + 1 + 4
    assert tokens == [16] + [3 * 4] * (SAMPLING.max_tokens - 1)


def test_finished_rows_are_not_forwarded(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_decoder, "LEAVE_AT", 0.0)
    loaded = ending_often(tiny_model())
    with forwards(loaded) as tokens:
        found = flat(TorchEngine(loaded).generate(SHARED, 8, SAMPLING, seed=SEED))
    longest = max(len(c.token_ids) for c in found)
    assert tokens[1:] == [sum(len(c.token_ids) > n for c in found) for n in range(1, longest)]


def test_waiting_rows_enter_a_running_batch(tiny_model: TinyModel) -> None:
    loaded = never_ending(tiny_model())
    with forwards(loaded) as tokens:
        TorchEngine(loaded, max_rows=5).generate(SHARED, 4, Sampling(max_tokens=2), seed=SEED)
    # Rows 0-4 belong to the prompts 0 and 1 and end together; then rows 5-9 with prompt 2, and rows 10 and 11. The keys
    # of prompt 1 wait for rows 5-7, those of prompt 2 for rows 10 and 11: no prompt is computed twice.
    assert tokens == [8 + 3 + 1, 5, 8 + 6, 5, 2]
    with forwards(loaded) as tokens:
        TorchEngine(loaded, prefill_nodes=12).generate(SHARED, 4, Sampling(max_tokens=2), seed=SEED)
    # The prompts 0 and 1 make 12 nodes, with prompt 2 16. Prompt 2 alone has 14, more than allowed, and still goes.
    assert tokens == [12, 14, 12]


def test_late_rows_are_decoded_beside_earlier_ones(tiny_model: TinyModel) -> None:
    """Far fewer forwards than one batch after another would take, which waits for the longest row of each."""
    loaded = ending_often(tiny_model())
    sampling = replace(SAMPLING, max_tokens=24)
    engine = TorchEngine(loaded, max_rows=6)
    lengths = [len(c.token_ids) for c in flat(engine.generate(SHARED, 16, sampling, seed=SEED))]
    in_turn = sum(max(lengths[i : i + 6]) - 1 for i in range(0, len(lengths), 6))
    work = engine.last_work
    assert work.num_steps < 0.7 * in_turn
    assert sum(lengths) - len(lengths) <= work.num_row_steps <= 1.2 * (sum(lengths) - len(lengths))


def test_a_trunk_is_computed_once_for_all_who_enter(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = ending_often(tiny_model())
    alone = TorchEngine(loaded).generate(SHARED, 4, SAMPLING, seed=SEED)
    monkeypatch.setattr(prefill, "TRUNK_WORTH", 1)
    for limits in ({}, {"max_rows": 3}, {"prefill_nodes": 1}):
        engine = TorchEngine(loaded, **limits)
        assert_equal_completions(engine.generate(SHARED, 4, SAMPLING, seed=SEED), alone)
    # One prompt a prefill: the header's 8 tokens and 1 2 3, then 4, then 1 2 5 6 7 8 behind the stored header.
    assert engine.last_work.num_prefills == 3
    assert engine.last_work.num_prefill_tokens == 8 + 3 + 1 + 6


@pytest.mark.parametrize("num_tokens", [25, 60, 100, 1000])
def test_the_cache_stays_within_its_budget(tiny_model: TinyModel, num_tokens: int) -> None:
    loaded = ending_often(tiny_model())
    whole = TorchEngine(loaded).generate(SHARED, 6, SAMPLING, seed=SEED)
    budget = num_tokens * bytes_per_token(loaded.model)
    engine = TorchEngine(loaded, cache_gb=budget / 1e9 + 1e-9)
    assert_equal_completions(engine.generate(SHARED, 6, SAMPLING, seed=SEED), whole)
    assert 0 < engine.last_work.cache_bytes <= budget


@pytest.mark.parametrize("use_tree", [True, False])
def test_a_budget_below_one_completion_is_refused(tiny_model: TinyModel, use_tree: bool) -> None:
    loaded = tiny_model()
    engine = TorchEngine(loaded, cache_gb=20 * bytes_per_token(loaded.model) / 1e9, use_tree=use_tree)
    with pytest.raises(EngineError, match=r"rollout\.cache_gb"):
        engine.generate(SHARED, 2, SAMPLING, seed=SEED)


def test_the_last_tokens_are_not_forwarded(tiny_model: TinyModel) -> None:
    engine = TorchEngine(never_ending(tiny_model()))
    engine.generate(SHARED, 4, SAMPLING, seed=SEED)
    work = engine.last_work
    assert (work.num_prefills, work.num_prefill_tokens) == (1, 16)
    assert (work.num_steps, work.num_row_steps) == (SAMPLING.max_tokens - 1, 12 * (SAMPLING.max_tokens - 1))
    engine.generate(SHARED, 4, replace(SAMPLING, max_tokens=1), seed=SEED)
    assert engine.last_work.num_steps == 0


@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_logits_are_those_of_the_models_own_cache(tiny_model: TinyModel, family: str) -> None:
    """Every logit of every step, not only those of the drawn tokens."""
    loaded = never_ending(tiny_model(family))
    seen: list[torch.Tensor] = []
    original = sampling_forward(loaded.model, 4)

    class Recorded:
        def __call__(self, *arguments: Any) -> torch.Tensor:
            return original(*arguments)

        def head(self, hidden: torch.Tensor) -> torch.Tensor:
            seen.append(original.head(hidden))
            return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_engine, "sampling_forward", lambda *_: Recorded())
        engine = TorchEngine(loaded)
        found = engine.generate(SHARED, 2, SAMPLING, seed=SEED)
    for number, (prompt, group) in enumerate(zip(SHARED, found, strict=True)):
        for place, completion in enumerate(group):
            cache = {engine._cache_name: DynamicCache(config=loaded.model.config)}
            ids = torch.tensor([prompt.token_ids])
            for step, token_id in enumerate(completion.token_ids):
                with torch.no_grad():
                    logits = loaded.model(ids, use_cache=True, **cache).logits[0, -1]
                ids = torch.tensor([[token_id]])
                row = number if step == 0 else 2 * number + place
                torch.testing.assert_close(seen[step][row], logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("use_tree", [True, False])
def test_progress_rises_to_all_completions(tiny_model: TinyModel, use_tree: bool) -> None:
    reports: list[tuple[int, int]] = []
    TorchEngine(ending_often(tiny_model()), max_rows=7, use_tree=use_tree).generate(
        SHARED, 6, SAMPLING, seed=SEED, progress=lambda *counts: reports.append(counts)
    )
    finished = [done for done, _ in reports]
    assert {total for _, total in reports} == {18}
    assert finished == sorted(finished)
    assert finished[-1] == 18
    assert len(set(finished)) > 4


@pytest.mark.parametrize("use_tree", [True, False])
def test_a_completion_under_way_counts_for_what_it_has_of_the_limit(tiny_model: TinyModel, use_tree: bool) -> None:
    reports: list[float] = []
    never_ending = replace(SAMPLING, max_tokens=4, temperature=0.0)
    TorchEngine(tiny_model(), max_rows=64, use_tree=use_tree).generate(
        SHARED[:1], 2, never_ending, seed=SEED, progress=lambda done, _: reports.append(done)
    )
    assert reports == [0.5, 1.0, 1.5, 2.0]  # 2 completions of 4 tokens


def test_completions_carry_the_policy_version(tiny_model: TinyModel) -> None:
    engine = TorchEngine(tiny_model())
    sampling = Sampling(max_tokens=1)
    assert {c.policy_version for c in flat(engine.generate(SHARED, 2, sampling, seed=SEED))} == {0}
    engine.set_policy_version(7)
    assert {c.policy_version for c in flat(engine.generate(SHARED, 2, sampling, seed=SEED))} == {7}


def test_an_interrupted_call_leaves_the_model_as_it_was(tiny_model: TinyModel) -> None:
    loaded = tiny_model()
    attention = loaded.model.config._attn_implementation

    def interrupt(finished: int, total: int) -> None:
        assert not loaded.model.training
        raise KeyboardInterrupt

    loaded.model.train()
    try:
        with pytest.raises(KeyboardInterrupt):
            TorchEngine(loaded).generate(SHARED, 2, SAMPLING, seed=SEED, progress=interrupt)
        assert loaded.model.training
        assert loaded.model.config._attn_implementation == attention
    finally:
        loaded.model.eval()


def test_sampling_keeps_nothing_for_a_backward_pass(tiny_model: TinyModel) -> None:
    """And the weights it sampled from can still be trained afterwards."""
    loaded = tiny_model()
    completions = TorchEngine(loaded).generate(SHARED, 2, SAMPLING, seed=SEED)
    sequences, _ = scored(SHARED, completions)
    assert tree_logprobs(loaded.model, sequences, temperature=1.0).requires_grad


def test_top_k_reaches_the_draw(tiny_model: TinyModel) -> None:
    loaded = never_ending(tiny_model())
    only_best = TorchEngine(loaded).generate(SHARED, 2, replace(SAMPLING, top_k=1), seed=SEED)
    greedy = TorchEngine(loaded).generate(SHARED, 2, replace(SAMPLING, temperature=0.0), seed=SEED)
    assert ids_of(only_best) == ids_of(greedy)
    assert {logprob for c in flat(only_best) for logprob in c.sampler_logprobs} == {0.0}
    nucleus = TorchEngine(loaded).generate(SHARED, 2, replace(SAMPLING, top_p=1e-6), seed=SEED)
    assert ids_of(nucleus) == ids_of(greedy)


def test_no_prompts_give_no_completions(tiny_model: TinyModel) -> None:
    assert TorchEngine(tiny_model()).generate([], 4, SAMPLING, seed=SEED) == []
