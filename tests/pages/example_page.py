"""A page with every kind of chart, as a plan would be, for the tests and for looking at."""

from __future__ import annotations

from dataclasses import replace

from groupwise.pages import (
    Board,
    Card,
    Chart,
    Fact,
    Listing,
    Notice,
    Page,
    Section,
    Table,
    bar_chart,
    column_chart,
    histogram,
    line_chart,
    points_with_intervals,
)


def informative_by_group_size() -> Chart:
    """1 - p^G - (1 - p)^G for three pass rates, with a band around each."""
    rows = [
        {"size": size, "share": share, "low": share * 0.9, "high": min(1.0, share * 1.05), "rate": f"pass rate {rate}"}
        for rate in (0.05, 0.1, 0.5)
        for size in (2, 4, 8, 16, 32, 64)
        for share in [1 - rate**size - (1 - rate) ** size]
    ]
    return line_chart(
        rows,
        title="Groups with a signal, by group size",
        x="size",
        y="share",
        series="rate",
        series_title="prompts with",
        band=("low", "high"),
        x_title="group size (completions a prompt)",
        y_title="share of groups that train",
        log_x=True,
        y_format=".0%",
        y_bounds=(0, 1),
        caption="A group whose completions are all right or all wrong has no gradient.",
    )


def reward_curve() -> Chart:
    rows = [{"step": step, "reward": 0.2 + 0.6 * step / (step + 40)} for step in range(1, 201)]
    return line_chart(
        rows, title="Mean reward", x="step", y="reward", x_title="step", y_title="mean reward (0 to 1)", log_x=False
    )


def memory_by_method() -> Chart:
    parts = {
        "sft": {"weights": 1.2, "gradients": 1.2, "optimizer": 7.1, "activations": 2.0},
        "dpo": {"weights": 1.2, "reference": 1.2, "gradients": 1.2, "optimizer": 7.1, "activations": 3.9},
        "grpo": {"weights": 1.2, "reference": 1.2, "gradients": 1.2, "optimizer": 7.1, "activations": 2.0, "keys": 3.3},
        "ppo": {"weights": 3.6, "reference": 1.2, "gradients": 2.4, "optimizer": 14.2, "activations": 4.1, "keys": 3.3},
    }
    rows = [{"method": m, "part": p, "gb": gb} for m, sizes in parts.items() for p, gb in sizes.items()]
    return bar_chart(
        rows,
        title="Memory by method",
        label="method",
        value="gb",
        series="part",
        label_title="method",
        value_title="memory (GB)",
    )


def bake_off() -> Chart:
    rows = [
        {"method": "start", "pass": 0.31, "low": 0.27, "high": 0.35, "prompts": 400},
        {"method": "sft", "pass": 0.44, "low": 0.40, "high": 0.48, "prompts": 400},
        {
            "method": "sft, then grpo with a longer name than fits",
            "pass": 0.58,
            "low": 0.54,
            "high": 0.62,
            "prompts": 400,
        },
    ]
    return points_with_intervals(
        rows,
        title="Held-out pass rate",
        label="method",
        value="pass",
        low="low",
        high="high",
        label_title="method",
        value_title="pass@1, 95 % interval",
        value_format=".0%",
        reference=0.31,
        tooltips=["prompts"],
    )


def pass_rates() -> Chart:
    values = [((7 * i) % 101 / 100) ** 2 for i in range(400)]
    return histogram(
        values, title="Pass rates of the prompts", x_title="pass rate", y_title="prompts", bounds=(0, 1), num_bins=16
    )


def grouped_bars() -> Chart:
    rows = [
        {"phase": p, "gpu": g, "s": s}
        for p, a, b in [("sample", 41, 22), ("train", 12, 6)]
        for g, s in [("a100", a), ("h100", b)]
    ]
    return bar_chart(
        rows,
        title="Seconds of a step",
        label="phase",
        value="s",
        series="gpu",
        stacked=False,
        label_title="phase",
        value_title="time (s)",
    )


def many_lines() -> Chart:
    """Nine series, more than there are colours, on two logarithmic axes; the value at step 4 of each is unusable."""
    rows = [
        {"step": step, "loss": 0 if step == 4 else (i + 1) / step, "run": f"run {i}"}
        for i in range(9)
        for step in range(1, 60)
    ]
    return line_chart(
        rows,
        title="Loss of nine runs",
        x="step",
        y="loss",
        series="run",
        x_title="step",
        y_title="loss (nats)",
        log_x=True,
        log_y=True,
    )


def two_metrics() -> Chart:
    """Names that would be markup, or a path into the row, if they were not only text."""
    rows = [
        {"run.name[0]": name, "value": value, "low": value - 0.05, "high": value + 0.05, "metric": metric}
        for name, pair in {"<b>base</b>": (0.2, 0.4), "</script><script>": (0.5, 0.7)}.items()
        for metric, value in zip(("pass@1", "pass@4 <i>"), pair, strict=True)
    ]
    return points_with_intervals(
        rows,
        title="Two metrics <script>document.documentElement.dataset.hacked = 2</script>",
        label="run.name[0]",
        value="value",
        low="low",
        high="high",
        series="metric",
        label_title="run",
        value_title="share of prompts",
        value_bounds=(0, 1),
    )


def phases() -> Chart:
    """Ten steps of two stages: 3 s of training, and from step 4 on 2 s of sampling below it."""
    rows = [
        {"from": step - 0.5, "to": step + 0.5, "phase": phase, "s": s, "step": step}
        for step in range(1, 11)
        for phase, s in (("sample", 2.0 if step > 3 else 0.0), ("train", 3.0))
    ]
    return column_chart(
        rows,
        title="Time of a step by phase",
        low="from",
        high="to",
        y="s",
        series="phase",
        x_title="step",
        y_title="time (s)",
        markers=((1, "sft"), (4, "grpo <b>")),
        tooltips=("step",),
    )


def lengths() -> Chart:
    """Two sets in the same bins: 30 values from 0 to 29, and 10 from 20 to 29."""
    values = [*range(30), *range(20, 30)]
    return histogram(
        values,
        series=["right"] * 30 + ["wrong"] * 10,
        series_title="answers",
        title="Lengths by correctness",
        x_title="tokens",
        y_title="share",
        num_bins=3,
        bounds=(0, 30),
    )


def no_numbers() -> Chart:
    return line_chart(
        [{"x": 1, "y": float("nan")}], title="Nothing yet", x="x", y="y", x_title="step", y_title="entropy (nats)"
    )


def example_page() -> Page:
    """Ten charts that are drawn, one that is not, tables, cards and hostile text."""
    hostile = "<script>document.documentElement.dataset.hacked = 1</script><img src=x onerror=alert(1)>"
    table = Table(
        columns=("method", "learns from", "hours", "price", "pass@1", "fits"),
        rows=(
            ("sft", "demonstrations: completions that are worth imitating", 0.21, "$ 0.40", 0.44, True),
            ("grpo", "rewards on groups of fresh samples of the policy itself", 3.2071, "$ 6.10", 0.5812, True),
            ("ppo", "reward-model scores on fresh samples", 12345.678, None, None, False),
        ),
        caption="Methods side by side",
    )
    prompts = Table(columns=("prompt", "why it went"), rows=((hostile, "solved 0 of 16"),), caption="Set aside")
    return Page(
        title="Plan for text-to-SQL",
        lead="Groups of 16 train on 72 % of the prompts. 300 steps take about 3.2 hours on one A100.",
        facts=(
            Fact(label="group size", value=16, note="72 % of the groups train"),
            Fact(label="time", value="3.2 h", note="one A100"),
            Fact(label="price", value="$ 6.10"),
            Fact(label="memory", value="16.1 GB", note="of 80 GB"),
        ),
        sections=(
            Section(
                heading="Group size",
                text=("A group of 4 at a pass rate of 0.1 holds no success with probability 0.66.",),
                charts=(informative_by_group_size(), pass_rates()),
            ),
            Section(heading="Methods", charts=(memory_by_method(), bake_off(), grouped_bars()), tables=(table,)),
            Section(heading="Training", charts=(reward_curve(), many_lines(), two_metrics(), no_numbers())),
            Section(
                heading="Beside each other",
                notices=(Notice(title=f"Outputs are cut {hostile}", text=(hostile,), tone="problem"),),
                charts=(replace(phases(), small=True), replace(lengths(), small=True)),
                boards=(
                    Board(
                        title=f"q17 {hostile}",
                        text=f"How many? {hostile}",
                        cards=tuple(
                            Card(title=name + hostile, text=hostile, facts=(hostile,), notes=(hostile,), tone="problem")
                            for name in ("first", "second", "third")
                        ),
                        is_open=True,
                    ),
                ),
            ),
            Section(
                heading="Prompts",
                tables=(prompts,),
                listings=(Listing(title="worst completion", text=f"\nSELECT 1\n  FROM t -- {hostile}"),),
            ),
        ),
        footer="groupwise plan recipe.toml",
    )
