"""Numbers of what a step took: seconds by phase, tokens, memory, and what the run has cost so far."""

from __future__ import annotations

from groupwise.runs.metrics.metric import ROLLOUTS, Metric

PHASES = ("generate", "judge", "score", "train", "sync", "record", "other")
"""Of a step, in the order in which they begin. seconds_<phase> of all of them sum to seconds_step; those that a row
lacks are 0."""

COST_METRICS = (
    Metric(
        name="seconds_step",
        group="time",
        unit="seconds",
        reduction="sum",
        denominator="the phases below",
        meaning="the whole step, from the end of the one before. Evaluations and checkpoints are between steps: their "
        "events have their seconds",
    ),
    Metric(
        name="seconds_generate",
        group="time",
        unit="seconds",
        reduction="sum",
        denominator="rounds",
        meaning="sampling completions",
        algorithms=ROLLOUTS,
    ),
    Metric(
        name="seconds_judge",
        group="time",
        unit="seconds",
        reduction="sum",
        denominator="rounds",
        meaning="the verifier, on the clock: judgements run beside each other",
        algorithms=ROLLOUTS,
    ),
    Metric(
        name="seconds_score",
        group="time",
        unit="seconds",
        reduction="value",
        meaning="forwards without gradient, for numbers that the loss reads: those of PPO's networks, of a reference "
        "whose KL is in the reward, of the weights that sampled where a step makes several updates",
        algorithms=ROLLOUTS,
        when="PPO, or one of these",
    ),
    Metric(
        name="seconds_train",
        group="time",
        unit="seconds",
        reduction="value",
        meaning="forward, loss, backward and updates of all networks, a reference in the loss included",
    ),
    Metric(
        name="seconds_sync",
        group="time",
        unit="seconds",
        reduction="value",
        meaning="handing the new weights to the engine; near 0 where it shares them",
    ),
    Metric(
        name="seconds_record",
        group="time",
        unit="seconds",
        reduction="value",
        meaning="writing this step's rollouts and the row of the step before: a row cannot hold the time that writing "
        "it takes",
    ),
    Metric(
        name="seconds_other",
        group="time",
        unit="seconds",
        reduction="value",
        meaning="the rest: choosing prompts, advantages, batches; in a stage's first row its set-up, too",
    ),
    Metric(
        name="num_prompt_tokens",
        group="tokens",
        unit="tokens",
        reduction="sum",
        denominator="distinct prompts of the step",
        meaning="sampled from; a group's prompt counts once",
        algorithms=ROLLOUTS,
    ),
    Metric(
        name="num_generated_tokens",
        group="tokens",
        unit="tokens",
        reduction="sum",
        denominator="sampled rollouts",
        meaning="tokens of all completions",
        algorithms=ROLLOUTS,
    ),
    Metric(
        name="num_trained_tokens",
        group="tokens",
        unit="tokens",
        reduction="sum",
        denominator="rows of all updates",
        meaning="completion tokens that the loss saw",
    ),
    Metric(
        name="num_forward_nodes",
        group="tokens",
        unit="tokens",
        reduction="sum",
        denominator="micro-batches of all updates",
        meaning="nodes of their token trees: what was really forwarded and backwarded",
    ),
    Metric(
        name="num_plain_tokens",
        group="tokens",
        unit="tokens",
        reduction="sum",
        denominator="rows of all updates",
        meaning="prompt and completion tokens of every row: what a batch without shared prefixes would have taken",
    ),
    Metric(
        name="spent_seconds",
        group="cost",
        unit="seconds",
        reduction="sum",
        denominator="the run so far",
        meaning="on the clock since the run's first stage began",
    ),
    Metric(
        name="spent_rollout_tokens",
        group="cost",
        unit="tokens",
        reduction="sum",
        denominator="the run so far",
        meaning="of completions that were sampled to learn from",
    ),
    Metric(
        name="spent_frac_of_plan",
        group="cost",
        unit="",
        reduction="value",
        meaning="spent_seconds / the planned seconds of the run; above 1: it takes longer than planned",
        when="where the machine was measured and planning knows the model",
    ),
    Metric(
        name="spent_price",
        group="cost",
        unit="the plan's currency",
        reduction="value",
        meaning="spent_seconds at the planned price",
        when="with a price",
    ),
    Metric(
        name="memory_bytes",
        group="memory",
        unit="bytes",
        reduction="maximum",
        denominator="the process so far",
        meaning="the most it has held: allocated on a GPU, else resident. It never falls; the limit is "
        "memory_limit_bytes in environment.json",
    ),
)
"""In the order in which they are shown."""
