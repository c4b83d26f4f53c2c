"""Stages as a display gets them, for the tests that draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from groupwise.launch.display import HeldoutView, StageOutlook, StepView

OUTLOOK = StageOutlook(
    run="shop-sql",
    name="grpo",
    title="grpo: 30 steps",
    num_steps=30,
    number=2,
    num_stages=3,
    stage_left_s=200.0,
    run_left_s=300.0,
    memory_limit_bytes=8_000_000_000,
)
METRICS = {
    "grpo": {
        "reward_mean": 0.55,
        "pass_rate": 0.5,
        "num_groups": 8.0,
        "num_rollouts": 64.0,
        "live_groups": 5.0,
        "dead_groups_all_solved": 1.0,
        "dead_groups_none_solved": 2.0,
        "unscored_groups": 0.0,
        "unscored_frac": 0.0,
        "invalid_frac": 0.25,
        "truncated_frac": 0.125,
        "mean_length": 24.0,
        "num_generated_tokens": 1536.0,
        "num_trained_tokens": 960.0,
        "kl_to_ref": 0.0123,
        "entropy": 0.4,
        "grad_norm": 0.54,
        "seconds_generate": 4.0,
        "seconds_train": 3.0,
        "seconds_step": 8.1,
    },
    "sft": {"nll": 0.75, "num_trained_tokens": 300.0, "seconds_train": 5.0, "seconds_step": 5.0, "grad_norm": 0.9},
    "dpo": {"reward_margin": 0.1, "accuracy": 0.75, "loss": 0.6, "seconds_step": 3.0},
    "ppo": {"pass_rate": 0.4, "explained_variance": 0.3, "kl_to_ref_sum": 0.45, "kl_to_ref": 0.02, "seconds_step": 9.0},
    "reward_model": {"margin": 0.2, "accuracy": 0.8, "seconds_step": 2.0},
}


def view(step: int, metrics: Mapping[str, float]) -> StepView:
    return StepView(
        step=step,
        metrics=metrics,
        note="a note",
        stage_left_s=146.0,
        run_left_s=397.0,
        heldout=HeldoutView(name="sft", rate=0.344, low=0.26, high=0.43),
        memory_bytes=3_100_000_000,
        spent_s=760.0,
        planned_s=1200.0,
        budget="42% of the budget",
    )


def steps(kind: str, count: int) -> Iterator[StepView]:
    """Views of steps whose main number rises."""
    for step in range(1, count + 1):
        moved = {
            name: METRICS[kind][name] + 0.01 * step
            for name in ("pass_rate", "nll", "accuracy")
            if name in METRICS[kind]
        }
        yield view(step, METRICS[kind] | moved)
