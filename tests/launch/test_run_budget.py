"""A run with a budget: where it stops in each unit, what is counted, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from groupwise.config import load_recipe, parse_recipe
from groupwise.errors import ConfigError
from groupwise.launch import local
from groupwise.launch.spending import SPENT, CountedModel, Spending, metered_scores, sampled_tokens, tree_tokens
from groupwise.models import ScoredSequence
from groupwise.models.logprobs import TokenScores
from groupwise.planning.model_shape import ModelShape
from groupwise.runs import RunDirectory, read_events, read_metrics, read_stage_log
from groupwise.types import Completion, Prompt
from tiny_job import RECIPE, write_job


def budgeted(budget: str, change: Callable[[str], str] = lambda text: text) -> Callable[[str], str]:
    return lambda text: change(text).replace("[curation]", f"[budget]\n{budget}\n\n[curation]")


def without_grpo(text: str) -> str:
    return "[[stages]]".join(text.split("[[stages]]")[:2])


def without_sft(text: str) -> str:
    head, _, grpo = text.split("[[stages]]")
    return f"{head}[[stages]]{grpo}".replace("steps = 2", "steps = 9").replace(
        '{ name = "grpo" }', '{ name = "grpo", beta = 0.1 }'
    )


def run(folder: Path, budget: str, change: Callable[[str], str]) -> RunDirectory:
    folder.mkdir()
    return local.train(load_recipe(write_job(folder, budgeted(budget, change))))[0]


def spent(directory: RunDirectory) -> dict[str, float]:
    return next(e for e in read_events(directory.events) if e["event"] == SPENT)


def test_rollout_tokens_end_a_stage_after_the_step_that_reaches_them(tmp_path: Path) -> None:
    directory = run(tmp_path / "job", "rollout_tokens = 400", without_sft)
    tokens = [row["num_generated_tokens"] for row in read_metrics(directory.metrics)]
    assert 1 < len(tokens) < 9
    assert sum(tokens[:-1]) < 400 <= sum(tokens)
    assert spent(directory)["rollout_tokens"] == sum(tokens)  # and not those of the two evaluations
    assert (directory.checkpoints / f"grpo-{len(tokens)}").is_dir()
    assert [stage.name for stage in read_stage_log(directory).finished] == ["base", "grpo"]


def test_seconds_end_the_run_and_evaluations_are_not_counted(tmp_path: Path) -> None:
    directory = run(tmp_path / "job", "seconds = 1e-6", lambda text: text)
    assert [(row["stage"], row["step"]) for row in read_metrics(directory.metrics)] == [("sft", 1)]  # no grpo after it
    evaluations = [e for e in read_events(directory.events) if e["event"] == "evaluation"]
    assert [e["name"] for e in evaluations] == ["base", "sft"]
    assert evaluations[0][SPENT]["seconds"] == 0
    assert evaluations[1][SPENT]["seconds"] == spent(directory)["seconds"]


def test_operations_end_a_stage_at_the_step_that_their_count_says(tmp_path: Path) -> None:
    one_step = spent(run(tmp_path / "one", "flops = 1.0", without_grpo))["flops"]
    assert one_step > 1e6
    directory = run(tmp_path / "more", f"flops = {2.5 * one_step}", without_grpo)
    assert len(read_metrics(directory.metrics)) == 3
    assert spent(directory)["flops"] == pytest.approx(3 * one_step, rel=0.15)


@pytest.mark.parametrize("budget", ["", "seconds = 1.0\nflops = 1.0"])
def test_a_budget_is_one_number(budget: str) -> None:
    with pytest.raises(ConfigError, match="exactly one of rollout_tokens, seconds and flops"):
        parse_recipe(budgeted(budget)(RECIPE))


def test_operations_by_hand() -> None:
    shape = ModelShape(
        num_layers=1, hidden=2, intermediate=3, num_heads=1, num_kv_heads=1, head_dim=2, vocab=5, tied_embeddings=True
    )
    counted = CountedModel(shape=shape, lora_rank=None, gradient_checkpointing=False)
    # a prompt of 2 tokens and two completions that share their first token: 2 + 1 + 1 + 1 nodes
    rows = [ScoredSequence(token_ids=(1, 2, 3, end), prompt_length=2) for end in (4, 5)]
    tokens = tree_tokens(rows)
    assert (tokens.nodes, tokens.pairs, tokens.head_rows) == (5, 1 + 2 + 3 + 4 + 4, 3)
    body = 4 * 2 * 2 + 3 * 2 * 3  # q, k, v, o and three MLP matrices
    forward = 2 * body * 5 + 4 * 14 * 2 + 2 * (2 * 5) * 3
    assert counted.forward(tokens) == forward
    assert counted.train(tokens) == 3 * forward
    assert counted.forward(tokens, with_head=False) == forward - 60


def test_sampled_tokens_by_hand() -> None:
    def completions(*lengths: int) -> Sequence[Completion]:
        return [Completion(text="", token_ids=(7,) * n, sampler_logprobs=(0.0,) * n) for n in lengths]

    prompts = [Prompt(task_id="a", token_ids=(1, 2, 3)), Prompt(task_id="b", token_ids=(1, 2, 4))]
    tokens = sampled_tokens(prompts, [completions(3, 1), completions(2)])
    # 4 prompt nodes; of the completions 2 + 0 + 1 tokens are read again, each behind its prompt
    assert tokens.nodes == 4 + 3
    assert tokens.head_rows == 2 + 3
    assert tokens.pairs == (1 + 2 + 3 + 3) + (4 + 5) + 4


def test_spending_goes_on_where_a_run_stopped() -> None:
    earlier = {"event": SPENT, "rollout_tokens": 30, "seconds": 4.0, "flops": None, "seconds_generate": 1.0}
    spending = Spending(budget=parse_recipe(budgeted("rollout_tokens = 40")(RECIPE)).budget)
    spending.restore([{"event": "other"}, earlier])
    assert spending.share == 0.75
    assert not spending.is_used_up
    spending.rollout_tokens += 10
    assert spending.is_used_up


def test_a_forward_with_gradient_counts_with_its_backward() -> None:
    shape = ModelShape(
        num_layers=1, hidden=2, intermediate=3, num_heads=1, num_kv_heads=1, head_dim=2, vocab=5, tied_embeddings=True
    )
    counted = CountedModel(shape=shape, lora_rank=None, gradient_checkpointing=False)
    rows = [ScoredSequence(token_ids=(1, 2, 3), prompt_length=1)]

    def spent_with(gradient: bool, *, is_learning: bool = True) -> float:
        spending = Spending(budget=parse_recipe(budgeted("flops = 1e9")(RECIPE)).budget, counted=counted)
        scores = metered_scores(lambda *_, **__: TokenScores(torch.zeros(1, 2)), spending)  # type: ignore[arg-type]
        with spending.learning(), torch.set_grad_enabled(gradient):
            if not is_learning:
                spending.stop()
            scores(None, rows, temperature=1.0)  # type: ignore[arg-type]
        return spending.flops

    assert spent_with(True) == 3 * spent_with(False) > 0
    assert spent_with(True, is_learning=False) == 0
